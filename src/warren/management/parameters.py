"""`/api/parameters`, those of vhosts, and `/api/global-parameters`.

Passwords in URIs are shown to administrators, who can export them anyway; to policymakers they are `***`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from aiohttp import web

from warren.broker.commands import ClearGlobalParameter, SetGlobalParameter
from warren.broker.vhost import Vhost
from warren.client.uri import without_passwords
from warren.management.auth import visible_vhost, visible_vhosts
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint, restricted
from warren.management.errors import ObjectNotFound
from warren.management.fields import fields_in, name_in
from warren.management.listing import Row, send_whole_list, whole_list_endpoint
from warren.management.parameter_kinds import (
    OF_ADMINISTRATORS,
    POLICY,
    check_component,
    clearing_command,
    global_parameters_of,
    parameters_of,
    policy_row,
    setting_command,
)
from warren.management.paths import COMPONENT, NAME, VHOST
from warren.management.rights import Right, check_right, user_of
from warren.management.schema import ANY, TEXT, record
from warren.relay.shovel_definition import COMPONENT as SHOVEL
from warren.relay.shovel_definition import read_shovel

ROW = record({"vhost": TEXT, "component": TEXT, "name": TEXT, "value": ANY})
GLOBAL_ROW = record({"name": TEXT, "value": ANY})
TAKES = record({"value": ANY})
ORDER = ("vhost", "name", "component")  # the columns by which lists go
EXPECTED = '{"value": …}'


class VhostParameters:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        of_component = f"/api/parameters/{COMPONENT}"
        one = f"{of_component}/{VHOST}/{NAME}"
        return [
            *restricted(
                Right.POLICYMAKER,
                whole_list_endpoint("/api/parameters", self.all, "All parameters."),
                whole_list_endpoint(of_component, self.all, "Those of a component."),
                whole_list_endpoint(
                    f"{of_component}/{VHOST}", self.of_vhost, "Those of a component in a vhost."
                ),
            ),
            object_endpoint(one, self.get, "One parameter.", right=Right.POLICYMAKER, gives=ROW),
            Endpoint(
                method="PUT",
                path=one,
                handler=self.put,
                summary="Set a parameter.",
                right=Right.POLICYMAKER,
                takes=TAKES,
                done=(201, 204),
            ),
            Endpoint(
                method="DELETE",
                path=one,
                handler=self.delete,
                summary="Clear a parameter.",
                right=Right.POLICYMAKER,
                done=(204,),
            ),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await _send(request, self._rows(request, visible_vhosts(self.node, request)))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await _send(request, self._rows(request, [visible_vhost(self.node, request)]))

    async def get(self, request: web.Request) -> web.StreamResponse:
        """As in RabbitMQ, a policy is shown as well, though lists leave policies out."""
        vhost = visible_vhost(self.node, request)
        policy = vhost.policies.find(request.match_info["name"], operator=False)
        if request.match_info["component"] == POLICY and policy is not None:
            return send_object(request, policy_row(vhost, policy))
        return send_object(request, _shown(request, self._find(request, vhost)))

    async def put(self, request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(self.node, request)
        component, name = name_in(request, "component"), name_in(request, "name")
        _check_may_change(request)
        check_component(self.node, component, name)
        fields = await fields_in(request, EXPECTED)
        if component == SHOVEL:
            read_shovel(name, fields.value("value"))  # one that cannot run is taken from files only
        is_new = next(self._named(request, vhost), None) is None
        await self.context.execute(setting_command(vhost.name, component, name, fields))
        return web.Response(status=201 if is_new else 204)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        _check_may_change(request)
        found = self._find(request, visible_vhost(self.node, request))
        await self.context.execute(clearing_command(found["vhost"], found["component"], found["name"]))
        return web.Response(status=204)

    def _rows(self, request: web.Request, vhosts: list[Vhost]) -> Iterator[Row]:
        """The parameters of these vhosts, and of the component that the path names, if it names one."""
        component = request.match_info.get("component")
        for vhost in vhosts:
            for row in parameters_of(self.node, vhost):
                if component is None or row["component"] == component:
                    yield row

    def _named(self, request: web.Request, vhost: Vhost) -> Iterator[Row]:
        name = request.match_info["name"]
        return (row for row in self._rows(request, [vhost]) if row["name"] == name)

    def _find(self, request: web.Request, vhost: Vhost) -> Row:
        found = next(self._named(request, vhost), None)
        if found is None:
            component, name = request.match_info["component"], request.match_info["name"]
            raise ObjectNotFound(f"no parameter '{name}' of component '{component}' in vhost '{vhost.name}'")
        return found


class GlobalParameters:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        one = f"/api/global-parameters/{NAME}"
        change = partial(Endpoint, path=one, right=Right.POLICYMAKER)
        return [
            *restricted(
                Right.POLICYMAKER,
                whole_list_endpoint("/api/global-parameters", self.all, "All global parameters."),
            ),
            object_endpoint(
                one, self.get, "One global parameter.", right=Right.POLICYMAKER, gives=GLOBAL_ROW
            ),
            change(
                method="PUT",
                handler=self.put,
                summary="Set a global parameter.",
                takes=TAKES,
                done=(201, 204),
            ),
            change(method="DELETE", handler=self.delete, summary="Clear a global parameter.", done=(204,)),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await _send(request, global_parameters_of(self.node))

    async def get(self, request: web.Request) -> web.StreamResponse:
        return send_object(request, _shown(request, self._find(request)))

    async def put(self, request: web.Request) -> web.StreamResponse:
        name = name_in(request, "name")
        value = (await fields_in(request, EXPECTED)).value("value")
        is_new = all(row["name"] != name for row in global_parameters_of(self.node))
        await self.context.execute(SetGlobalParameter(name=name, value=value))
        return web.Response(status=201 if is_new else 204)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        await self.context.execute(ClearGlobalParameter(name=self._find(request)["name"]))
        return web.Response(status=204)

    def _find(self, request: web.Request) -> Row:
        name = request.match_info["name"]
        for row in global_parameters_of(self.node):
            if row["name"] == name:
                return row
        raise ObjectNotFound(f"no global parameter '{name}'")


def _check_may_change(request: web.Request) -> None:
    """Operator policies hold for those who make policies as well, so they must not change them."""
    if request.match_info["component"] in OF_ADMINISTRATORS:
        check_right(request, Right.ADMINISTRATOR)


async def _send(request: web.Request, rows: Iterable[Row]) -> web.StreamResponse:
    return await send_whole_list(
        request,
        list(rows),
        lambda row: _shown(request, row),
        lambda row: str(row["name"]),
        lambda row: [row.get(column, "") for column in ORDER],
    )


def _shown(request: web.Request, row: Row) -> Row:
    """A parameter as this user may see it."""
    return row if Right.ADMINISTRATOR.is_had_by(user_of(request)) else without_passwords(row)
