"""`/api/aliveness-test/{vhost}`: declares a queue, publishes a message to it and gets it, as RabbitMQ does.
The queue `aliveness-test` stays.
"""

from __future__ import annotations

from aiohttp import web

from warren.amqp.properties import BasicProperties
from warren.broker.access import Permission
from warren.broker.commands import DeclareQueue
from warren.broker.topology_rights import check_may_declare_queue
from warren.management.auth import entered_vhost
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.getting import GONE, Wish, get_messages
from warren.management.health_checks import FAILED_STATUS, STATUS, failed, well
from warren.management.paths import VHOST
from warren.management.publication import Draft, Publication, origin_of
from warren.management.shown_message import AUTO

QUEUE = "aliveness-test"
BODY = b"test_message"


class Aliveness:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path=f"/api/aliveness-test/{VHOST}",
                handler=self.test,
                summary="Declare a queue, publish a message to it, and get that.",
                gives=STATUS,
                others={FAILED_STATUS: STATUS},
            )
        ]

    async def test(self, request: web.Request) -> web.StreamResponse:
        vhost, access = entered_vhost(self.node, request)
        origin = origin_of(request)
        name = QUEUE if self.node.proposer is None else f"{QUEUE}.{self.node.name}"  # a queue is on one node
        declare = DeclareQueue(vhost=vhost.name, name=name)
        check_may_declare_queue(access, vhost, declare)
        access.check(Permission.READ, "queue", name)
        await self.context.execute(declare)
        draft = Draft(exchange="", routing_key=name, properties=BasicProperties(), body=BODY)
        await Publication(self.node, vhost, access, origin).publish(draft)
        queue = vhost.queue_for(None, name)
        got = await get_messages(self.node, queue, Wish(1, GONE, AUTO, None), origin)
        return well() if got.entries else failed("the message that was published is not in the queue")
