"""`/api/vhosts`: vhosts, and switching their firehose on and off, as in RabbitMQ: `{"tracing": true}`."""

from __future__ import annotations

from aiohttp import web

from warren.broker.access import Permissions
from warren.broker.commands import AddVhost, Command, DeleteVhost, SetPermissions, SetTracing
from warren.broker.vhost import Vhost
from warren.management.auth import administrator, manager, visible_vhost, visible_vhosts
from warren.management.bodies import object_in
from warren.management.context import Context
from warren.management.errors import BadRequest, ObjectNotFound
from warren.management.json_text import json_response
from warren.management.paths import VHOST

NAME_BYTES_MAX = 255
EVERYTHING = Permissions(".*", ".*", ".*")


class Vhosts:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def routes(self) -> list[web.RouteDef]:
        one = f"/api/vhosts/{VHOST}"
        return [
            web.get("/api/vhosts", self.list_all),
            web.get(one, self.get),
            web.put(one, self.put),
            web.delete(one, self.delete),
        ]

    async def list_all(self, request: web.Request) -> web.StreamResponse:
        return json_response([self._describe(v) for v in visible_vhosts(self.node, manager(request))])

    async def get(self, request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(self.node, manager(request), request.match_info["vhost"])
        return json_response(self._describe(vhost))

    async def put(self, request: web.Request) -> web.StreamResponse:
        """Make or change a vhost. The user who makes a vhost gets all permissions there."""
        user = administrator(request)
        name = request.match_info["vhost"]
        if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
            raise BadRequest(f"the name of a vhost has at most {NAME_BYTES_MAX} bytes")
        tracing = tracing_in(await request.read())
        is_new = name not in self.node.vhosts
        changes: list[Command] = []
        if is_new:
            changes.append(AddVhost(name=name))
            if user.name in self.node.users:
                changes.append(SetPermissions(user=user.name, vhost=name, permissions=EVERYTHING))
        if tracing is not None:
            changes.append(SetTracing(vhost=name, on=tracing))
        await self.context.execute(*changes)
        return web.Response(status=201 if is_new else 204)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        administrator(request)
        name = request.match_info["vhost"]
        if name not in self.node.vhosts:
            raise ObjectNotFound(f"no vhost '{name}'")
        await self.context.execute(DeleteVhost(name=name))
        return web.Response(status=204)

    def _describe(self, vhost: Vhost) -> dict[str, object]:
        return {
            "name": vhost.name,
            "description": "",
            "tags": [],
            "default_queue_type": "undefined",
            "metadata": {"description": "", "tags": []},
            "tracing": vhost.firehose is not None,
            "cluster_state": {self.node.cluster_name: "running"},
        }


def tracing_in(body: bytes) -> bool | None:
    """Whether the body switches the firehose on or off; None if it says nothing of it."""
    tracing = object_in(body, '{"tracing": true or false}').get("tracing") if body else None
    if not isinstance(tracing, bool | None):
        raise BadRequest('expected {"tracing": true or false}')
    return tracing
