"""`/api/vhosts`: vhosts with their descriptions, tags and default types of queues, and switching their
firehose on and off, as in RabbitMQ: `{"tracing": true}`.
"""

from __future__ import annotations

from aiohttp import web

from warren.broker.access import Permissions
from warren.broker.commands import (
    AddVhost,
    Command,
    DeleteVhost,
    SetPermissions,
    SetTracing,
    SetVhostMetadata,
)
from warren.broker.node import Node
from warren.broker.vhost import Vhost
from warren.broker.vhost_metadata import NO_METADATA, VhostMetadata
from warren.management.auth import visible_vhost, visible_vhosts
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest, ObjectNotFound
from warren.management.fields import Fields, fields_in, name_in
from warren.management.listing import list_endpoint, send_list
from warren.management.message_stats import QUERY, stats_for
from warren.management.paths import NAME, VHOST
from warren.management.rights import Right, user_of
from warren.management.schema import FLAG, TEXT, WORDS, record

EVERYTHING = Permissions(".*", ".*", ".*")
UNDEFINED = "undefined"  # as RabbitMQ writes that there is no default type
EXPECTED = '{"description": text, "tags": text, "default_queue_type": type, "tracing": true or false}'
QUEUE_TYPE = "default_queue_type"
METADATA = ("description", "tags", QUEUE_TYPE, "metadata")


class Vhosts:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        one = f"/api/vhosts/{VHOST}"
        return [
            list_endpoint("/api/vhosts", self.list_all, "The vhosts that the user sees.", QUERY),
            object_endpoint(one, self.get, "One vhost.", QUERY),
            Endpoint(
                method="PUT",
                path=one,
                handler=self.put,
                summary="Make or change a vhost. The user who makes it gets all permissions there.",
                right=Right.ADMINISTRATOR,
                takes=record(tracing=FLAG, description=TEXT, tags=WORDS, default_queue_type=TEXT),
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
            Endpoint(
                method="POST",
                path=f"{one}/start/{NAME}",
                handler=self.start,
                summary="Start a vhost on a node: it runs.",
                right=Right.ADMINISTRATOR,
                done=(204,),
            ),
        ]

    async def start(self, request: web.Request) -> web.StreamResponse:
        """A vhost that is there runs. As in RabbitMQ, it is 400 if the vhost or the node is absent."""
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        if vhost not in self.node.vhosts:
            raise BadRequest(f"Request to node {name} failed: no vhost '{vhost}'")
        if name != self.node.name:
            raise BadRequest(f"Request to node {name} failed: this node is '{self.node.name}'")
        return web.Response(status=204)

    async def list_all(self, request: web.Request) -> web.StreamResponse:
        stats = stats_for(self.context, request)
        return await send_list(
            request,
            visible_vhosts(self.node, request),
            lambda each: self._describe(each) | stats.of_vhost(each),
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        vhost, stats = visible_vhost(self.node, request), stats_for(self.context, request)
        return send_object(request, self._describe(vhost) | stats.of_vhost(vhost))

    async def put(self, request: web.Request) -> web.StreamResponse:
        """Make or change a vhost. The user who makes a vhost gets all permissions there."""
        user = user_of(request)
        name = name_in(request, "vhost")
        fields = await fields_in(request, EXPECTED)
        is_new = name not in self.node.vhosts
        changes = vhost_commands(self.node, name, fields)
        if is_new and user.name in self.node.users:
            changes.append(SetPermissions(user=user.name, vhost=name, permissions=EVERYTHING))
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
            QUEUE_TYPE: UNDEFINED,
            **describe_metadata(vhost),
            "tracing": vhost.firehose is not None,
            "cluster_state": {self.node.name: "running"},
        }


def vhost_commands(node: Node, name: str, fields: Fields) -> list[Command]:
    """The commands that make a vhost, or change it, as these fields say."""
    changes: list[Command] = [AddVhost(name=name)]
    if any(field in fields for field in METADATA):
        known = node.vhosts[name].metadata if name in node.vhosts else NO_METADATA
        changes.append(SetVhostMetadata(vhost=name, metadata=metadata_in(fields, known)))
    if "tracing" in fields:
        changes.append(SetTracing(vhost=name, on=fields.flag("tracing")))
    return changes


def metadata_in(fields: Fields, known: VhostMetadata) -> VhostMetadata:
    """What the fields say; the rest is as it is known. RabbitMQ exports the metadata twice, in an object of
    their own and beside it.
    """
    inner = fields.fields("metadata")
    description = fields.text("description", inner.text("description", known.description))
    tags = known.tags
    if "tags" in fields or "tags" in inner:
        tags = (fields if "tags" in fields else inner).words("tags")
    kind = fields.text(QUEUE_TYPE, inner.text(QUEUE_TYPE, known.default_queue_type or UNDEFINED))
    metadata = VhostMetadata(description, tags, None if kind in {UNDEFINED, ""} else kind)
    metadata.check()
    return metadata


def describe_metadata(vhost: Vhost) -> dict[str, object]:
    """Twice, as RabbitMQ has them. Some versions of it would take a type `undefined` in a file for one."""
    metadata = vhost.metadata
    told: dict[str, object] = {"description": metadata.description, "tags": sorted(metadata.tags)}
    if metadata.default_queue_type is not None:
        told[QUEUE_TYPE] = metadata.default_queue_type
    return {**told, "metadata": told}
