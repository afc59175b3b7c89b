"""`/api/shovels`: how shovels do, as RabbitMQ's plugin has it, and how many messages they have carried.

A shovel is made by its parameter, at `/api/parameters/shovel/{vhost}/{name}`. Nothing here tells a password.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aiohttp import web

from warren.broker.commands import ClearParameter
from warren.management.auth import sees, visible_vhost
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest, NotAuthorised, ObjectNotFound
from warren.management.listing import list_endpoint, send_list
from warren.management.paths import NAME, VHOST
from warren.management.rights import Right, user_of
from warren.management.schema import COUNT, TEXT, one_of, record
from warren.relay.ends import End
from warren.relay.service import STATIC, RelayName, Relays, relays_of
from warren.relay.shovel import Shovel
from warren.relay.shovel_definition import COMPONENT, PROTOCOL
from warren.relay.supervisor import State, Supervised

ROW = record(
    {
        "node": TEXT,
        "timestamp": TEXT,
        "name": TEXT,
        "vhost": TEXT,
        "type": one_of("static", "dynamic"),
        "state": one_of(*(state.value for state in State)),
        "since": COUNT,
    },
    reason=TEXT,
    src_uri=TEXT,
    dest_uri=TEXT,
    blocked_status=one_of("running", "flow", "blocked"),
    forwarded=COUNT,
    pending=COUNT,
)


class Shovels:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    @property
    def relays(self) -> Relays:
        return relays_of(self.context.broker)

    def endpoints(self) -> list[Endpoint]:
        one = f"/api/shovels/vhost/{VHOST}/{NAME}"
        delete = partial(Endpoint, method="DELETE", right=Right.MONITORING, done=(204,))
        lists = [
            list_endpoint("/api/shovels", self.all, "How all shovels do."),
            list_endpoint(f"/api/shovels/{VHOST}", self.of_vhost, "How the shovels of a vhost do."),
        ]
        return [
            *(replace(each, right=Right.MONITORING) for each in lists),
            object_endpoint(one, self.get, "How a shovel does.", right=Right.MONITORING, gives=ROW),
            delete(path=one, handler=self.delete, summary="Delete a shovel, with its parameter."),
            delete(path=f"{one}/restart", handler=self.restart, summary="Start a shovel anew."),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        user = user_of(request)
        return await self._send(request, [name for name in self.relays.shovels if sees(user, name.vhost)])

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(self.node, request).name
        return await self._send(request, [name for name in self.relays.shovels if name.vhost == vhost])

    async def _send(self, request: web.Request, names: list[RelayName]) -> web.StreamResponse:
        shovels = [(name, self.relays.shovels[name]) for name in sorted(names)]
        return await send_list(
            request, shovels, lambda each: self._describe(*each), lambda each: each[0].name
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        name = self._named(request)
        return send_object(request, self._describe(name, self.relays.shovels[name]))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        name = self._changeable(request)
        if self.relays.kind_of(name) == STATIC:
            raise BadRequest(f"shovel '{name.name}' is static: it stands in the settings of the broker")
        await self.context.execute(ClearParameter(vhost=name.vhost, component=COMPONENT, name=name.name))
        return web.Response(status=204)

    async def restart(self, request: web.Request) -> web.StreamResponse:
        name = self._changeable(request)
        shovel = self.relays.shovels[name]
        if not shovel.is_here:
            raise BadRequest(f"shovel '{name.name}' does not run on this node: {shovel.status.reason}")
        self.relays.restart(name)
        return web.Response(status=204)

    def _named(self, request: web.Request) -> RelayName:
        """The shovel that the path names."""
        name = RelayName(visible_vhost(self.node, request).name, request.match_info["name"])
        if name not in self.relays.shovels:
            raise ObjectNotFound(f"no shovel '{name.name}' in vhost '{name.vhost}'")
        return name

    def _changeable(self, request: web.Request) -> RelayName:
        """The same, if the user may change something in its vhost: to see it is not enough."""
        user, vhost = user_of(request), request.match_info["vhost"]
        if not user.may_enter(vhost) and not Right.ADMINISTRATOR.is_had_by(user):
            raise NotAuthorised("User not authorised to access virtual host")
        return self._named(request)

    def _describe(self, name: RelayName, supervised: Supervised) -> dict[str, Any]:
        status = supervised.status
        row: dict[str, Any] = {
            "node": self.node.cluster_name,
            "timestamp": _time_of_day(status.since_ms),
            "name": name.name,
            "vhost": name.vhost,
            "type": self.relays.kind_of(name),
            "state": status.state.value,
            "since": status.since_ms,
        }
        if status.state in {State.TERMINATED, State.ELSEWHERE}:
            row["reason"] = status.reason
        if isinstance(supervised.relay, Shovel):
            row |= _describe_shovel(supervised.relay)
        return row


def _describe_shovel(shovel: Shovel) -> dict[str, Any]:
    definition = shovel.definition
    named = {
        "src_queue": definition.source_queue,
        "src_exchange": definition.source_exchange,
        "src_exchange_key": definition.source_key,
        "dest_queue": definition.destination_queue,
        "dest_exchange": definition.destination_exchange,
        "dest_exchange_key": definition.destination_key,
    }
    return {
        "src_uri": _shown(shovel.source_end, definition.source),
        "src_protocol": PROTOCOL,
        "dest_uri": _shown(shovel.destination_end, definition.destination),
        "dest_protocol": PROTOCOL,
        **{key: value for key, value in named.items() if value},
        "blocked_status": shovel.flow,
        "forwarded": shovel.carried,
        "pending": shovel.pending,
    }


def _shown(tried: End | None, ends: tuple[End, ...]) -> str:
    """The URI that is in use, or was tried last, or is the first to be tried; without a password."""
    return (tried or ends[0]).shown


def _time_of_day(time_ms: int) -> str:
    """RabbitMQ's form of the broker's local time."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
