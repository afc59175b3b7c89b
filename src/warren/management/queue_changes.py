"""Declaring, purging and deleting queues over HTTP, with the permissions that AMQP asks for."""

from __future__ import annotations

from aiohttp import web

from warren.broker.access import Permission
from warren.broker.commands import DeclareQueue, DeleteQueue
from warren.broker.events import QueuePurged
from warren.broker.topology_rights import check_may_declare_queue
from warren.broker.vhost import check_here, check_owner
from warren.management.auth import entered_vhost
from warren.management.context import Context
from warren.management.endpoint import Endpoint, Parameter
from warren.management.errors import BadRequest
from warren.management.exchanges import IF_UNUSED
from warren.management.fields import Fields, fields_in, name_in
from warren.management.paths import QUEUE, VHOST
from warren.management.schema import FLAG, TABLE, TEXT, record
from warren.management.steps import take

ONE = f"/api/queues/{VHOST}/{QUEUE}"
EXPECTED = '{"durable": true, "auto_delete": false, "arguments": {}}'
IF_EMPTY = Parameter("if-empty", FLAG, "Refuse to delete it while it has messages.")
ACTIONS = ("sync", "cancel_sync")  # of mirrored queues, which we do not have: nothing to do


class QueueChanges:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="PUT",
                path=ONE,
                handler=self.put,
                summary="Declare a queue.",
                takes=record(durable=FLAG, auto_delete=FLAG, arguments=TABLE, node=TEXT),
                done=(201, 204),
            ),
            Endpoint(
                method="DELETE",
                path=ONE,
                handler=self.delete,
                summary="Delete a queue with its messages.",
                query=(IF_EMPTY, IF_UNUSED),
                done=(204,),
            ),
            Endpoint(
                method="DELETE",
                path=f"{ONE}/contents",
                handler=self.purge,
                summary="Drop all ready messages of a queue.",
                done=(204,),
            ),
            Endpoint(
                method="POST",
                path=f"{ONE}/actions",
                handler=self.act,
                summary="RabbitMQ's actions for mirrored queues; ours are never out of sync.",
                takes=record({"action": TEXT}),
                done=(204,),
            ),
        ]

    async def put(self, request: web.Request) -> web.StreamResponse:
        vhost, access = entered_vhost(self.node, request)
        given = await fields_in(request, EXPECTED)
        name = name_in(request, "queue")
        _check_node(given, self.node.name)
        command = DeclareQueue(
            vhost=vhost.name,
            name=name,
            durable=given.flag("durable", default=False),
            auto_delete=given.flag("auto_delete", default=False),
            arguments=given.table("arguments", {}),
        )
        check_may_declare_queue(access, vhost, command)
        vhost.tally.declared_queues += 1
        is_new = name not in vhost.queues
        await self.context.execute(command)
        known = None if is_new else vhost.queues.get(name)  # which may be deleted by now
        if known is not None:
            known.used()
        return web.Response(status=201 if is_new else 204)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """An exclusive queue goes, too: operators may delete what its client left."""
        vhost, access = entered_vhost(self.node, request)
        queue = vhost.find_queue(request.match_info["queue"])
        access.check(Permission.CONFIGURE, "queue", queue.name)
        vhost.queue_for(queue.owner, queue.name)
        command = DeleteQueue(
            vhost=vhost.name,
            name=queue.name,
            if_empty=request.query.get(IF_EMPTY.name) == "true",
            if_unused=request.query.get(IF_UNUSED.name) == "true",
        )
        await self.context.execute(command)
        return web.Response(status=204)

    async def purge(self, request: web.Request) -> web.StreamResponse:
        vhost, access = entered_vhost(self.node, request)
        queue = vhost.find_queue(request.match_info["queue"])
        access.check(Permission.READ, "queue", queue.name)
        check_owner(queue, None)
        check_here(queue)
        count, steps = queue.purge()
        self.node.events.emit(QueuePurged(queue.vhost, queue.name, count))
        await take(self.node.turns, steps)
        self.node.end_turn()
        return web.Response(status=204)

    async def act(self, request: web.Request) -> web.StreamResponse:
        vhost, access = entered_vhost(self.node, request)
        queue = vhost.find_queue(request.match_info["queue"])
        access.check(Permission.CONFIGURE, "queue", queue.name)
        action = (await fields_in(request, '{"action": "sync"}')).text("action")
        if action not in ACTIONS:
            raise BadRequest(f"action: {action!r} is none of {', '.join(ACTIONS)}")
        return web.Response(status=204)


def _check_node(given: Fields, here: str) -> None:
    """As in RabbitMQ, a queue can be declared on a node of the cluster: there is one."""
    node = given.text("node", here)
    if node not in {"", here}:
        raise BadRequest(f"Node {node} could not be contacted: this one is '{here}'")
