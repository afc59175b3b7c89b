"""`/api/vhosts`: vhosts, and switching their firehose on and off, as in RabbitMQ: `{"tracing": true}`."""

from __future__ import annotations

from aiohttp import web

from warren.broker.access import Permissions
from warren.broker.commands import AddVhost, Command, DeleteVhost, SetPermissions, SetTracing
from warren.broker.vhost import Vhost
from warren.management.auth import visible_vhost, visible_vhosts
from warren.management.bodies import object_in
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest, ObjectNotFound
from warren.management.json_text import json_response
from warren.management.listing import LIST, QUERY, send_list
from warren.management.paths import VHOST
from warren.management.rights import Right, user_of
from warren.management.schema import FLAG, TABLE, record

NAME_BYTES_MAX = 255
EVERYTHING = Permissions(".*", ".*", ".*")


class Vhosts:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        one = f"/api/vhosts/{VHOST}"
        return [
            Endpoint(
                method="GET",
                path="/api/vhosts",
                handler=self.list_all,
                summary="The vhosts that the user sees.",
                query=QUERY,
                gives=LIST,
            ),
            Endpoint(method="GET", path=one, handler=self.get, summary="One vhost.", gives=TABLE),
            Endpoint(
                method="PUT",
                path=one,
                handler=self.put,
                summary="Make or change a vhost. The user who makes it gets all permissions there.",
                right=Right.ADMINISTRATOR,
                takes=record(tracing=FLAG),
                done=(201, 204),
            ),
            Endpoint(
                method="DELETE",
                path=one,
                handler=self.delete,
                summary="Delete a vhost with all that is in it, and close its connections.",
                right=Right.ADMINISTRATOR,
                done=(204,),
            ),
        ]

    async def list_all(self, request: web.Request) -> web.StreamResponse:
        return await send_list(request, visible_vhosts(self.node, request), self._describe)

    async def get(self, request: web.Request) -> web.StreamResponse:
        return json_response(self._describe(visible_vhost(self.node, request)))

    async def put(self, request: web.Request) -> web.StreamResponse:
        """Make or change a vhost. The user who makes a vhost gets all permissions there."""
        user = user_of(request)
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
            "cluster_state": {self.node.name: "running"},
        }


def tracing_in(body: bytes) -> bool | None:
    """Whether the body switches the firehose on or off; None if it says nothing of it."""
    tracing = object_in(body, '{"tracing": true or false}').get("tracing") if body else None
    if not isinstance(tracing, bool | None):
        raise BadRequest('expected {"tracing": true or false}')
    return tracing
