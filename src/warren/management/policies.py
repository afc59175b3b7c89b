"""`/api/policies` and `/api/operator-policies`."""

from __future__ import annotations

from functools import partial
from typing import Any

from aiohttp import web

from warren.broker.commands import DeletePolicy, PutPolicy
from warren.broker.policy import ALL, Policy
from warren.broker.vhost import Vhost
from warren.management.auth import visible_vhost, visible_vhosts
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import ObjectNotFound
from warren.management.fields import Fields, fields_in, name_in
from warren.management.listing import send_whole_list, whole_list_endpoint
from warren.management.paths import NAME, VHOST
from warren.management.rights import Right
from warren.management.schema import TABLE, TEXT, WHOLE, record

ROW = record({"vhost": TEXT, "name": TEXT, "pattern": TEXT, "definition": TABLE})
TAKES = record(
    {"pattern": TEXT, "definition": TABLE},
    **{"priority": WHOLE, "apply-to": TEXT},
)
EXPECTED = '{"pattern": pattern, "definition": {…}, "priority": number, "apply-to": kind}'


class Policies:
    operator = False  # whether the policies are operator policies

    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        kind = "operator-policies" if self.operator else "policies"
        words = kind.replace("-", " ")
        right = Right.ADMINISTRATOR if self.operator else Right.POLICYMAKER
        one_of = partial(Endpoint, right=right)
        all_path, one = f"/api/{kind}", f"/api/{kind}/{VHOST}/{NAME}"
        return [
            whole_list_endpoint(all_path, self.all, f"All {words} that the user sees."),
            whole_list_endpoint(f"{all_path}/{VHOST}", self.of_vhost, f"The {words} of a vhost."),
            object_endpoint(one, self.get, f"One of the {words}.", right=right, gives=ROW),
            one_of(
                method="PUT",
                path=one,
                handler=self.put,
                summary=f"Make or change one of the {words}.",
                takes=TAKES,
                done=(201, 204),
            ),
            one_of(
                method="DELETE",
                path=one,
                handler=self.delete,
                summary=f"Delete one of the {words}.",
                done=(204,),
            ),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_vhosts(self.node, request))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, [visible_vhost(self.node, request)])

    async def _send(self, request: web.Request, vhosts: list[Vhost]) -> web.StreamResponse:
        found = [(vhost, policy) for vhost in vhosts for policy in policies_of(vhost, operator=self.operator)]
        return await send_whole_list(
            request,
            found,
            lambda each: describe(*each),
            lambda each: each[1].name,
            lambda each: (each[1].priority, each[0].name, each[1].name),
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        return send_object(request, describe(*self._find(request)))

    async def put(self, request: web.Request) -> web.StreamResponse:
        vhost, name = visible_vhost(self.node, request), name_in(request, "name")
        fields = await fields_in(request, EXPECTED)
        is_new = vhost.policies.find(name, operator=self.operator) is None
        await self.context.execute(policy_command(vhost.name, name, fields, operator=self.operator))
        return web.Response(status=201 if is_new else 204)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        vhost, policy = self._find(request)
        await self.context.execute(DeletePolicy(vhost=vhost.name, name=policy.name, operator=self.operator))
        return web.Response(status=204)

    def _find(self, request: web.Request) -> tuple[Vhost, Policy]:
        vhost = visible_vhost(self.node, request)
        name = request.match_info["name"]
        policy = vhost.policies.find(name, operator=self.operator)
        if policy is None:
            kind = "operator policy" if self.operator else "policy"
            raise ObjectNotFound(f"no {kind} '{name}' in vhost '{vhost.name}'")
        return vhost, policy


class OperatorPolicies(Policies):
    operator = True


def policies_of(vhost: Vhost, *, operator: bool) -> list[Policy]:
    policies = vhost.policies.operator_policies if operator else vhost.policies.policies
    return list(policies.values())


def describe(vhost: Vhost, policy: Policy) -> dict[str, Any]:
    return {"vhost": vhost.name, "name": policy.name, **contents(policy)}


def contents(policy: Policy) -> dict[str, Any]:
    """All of a policy but its names: so RabbitMQ has an operator policy as the value of a parameter."""
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def policy_command(vhost: str, name: str, fields: Fields, *, operator: bool) -> PutPolicy:
    return PutPolicy(
        vhost=vhost,
        name=name,
        pattern=fields.text("pattern"),
        definition=fields.table("definition"),
        priority=fields.number("priority", 0),
        apply_to=fields.text("apply-to", ALL),
        operator=operator,
    )
