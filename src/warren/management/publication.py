"""Publishing a message that comes over HTTP: with the same permissions, routing, limits and deduplication as
over AMQP. It counts as published when it is safe, as a confirm would say.

The statistics count it as one that a client published with confirms and `mandatory`, as those of RabbitMQ do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from aiohttp import web

from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import encode_name
from warren.amqp.writer import Output
from warren.broker import routing_headers
from warren.broker.access import Access
from warren.broker.client import Origin
from warren.broker.events import MessageDeduplicated
from warren.broker.exchange.exchange import Exchange
from warren.broker.message import Message, enqueue_work
from warren.broker.node import Node
from warren.broker.outcome import AFTER_NEXT_ROUND
from warren.broker.queue import Queue
from warren.broker.safety import when_all_safe
from warren.broker.vhost import Vhost
from warren.management.errors import BadRequest, LeaderChanged
from warren.management.rights import user_of
from warren.management.steps import take
from warren.session.channel import check_expiration
from warren.session.confirms import Confirms
from warren.session.publish_rights import check_key, check_publish, check_user_id
from warren.session.reply_to import PSEUDO_QUEUE, rewrite_reply_to

DELIVERY_MODES = (None, 1, PERSISTENT)


def origin_of(request: web.Request) -> Origin:
    """Who publishes or gets a message, for the firehose."""
    return Origin(f"HTTP from {request.remote}", 0, user_of(request).name)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A message that is to be published."""

    exchange: str
    routing_key: str
    properties: BasicProperties
    body: bytes


class Publication:
    """One draft on its way into the queues of a vhost."""

    def __init__(self, node: Node, vhost: Vhost, access: Access, origin: Origin) -> None:
        self.node = node
        self.vhost = vhost
        self.access = access  # of the user who publishes
        self.origin = origin  # for the firehose
        self.confirms = Confirms(Output([], None), 0)  # notes what the queues do with the message
        self.has_moved = False  # whether one of the queues has another leader meanwhile

    async def publish(self, draft: Draft) -> bool:
        """Publish, and wait until the message is safe. Return whether it was routed to any queue."""
        if self.node.alarms:
            raise BadRequest(f"publishers are blocked: low on {', '.join(sorted(self.node.alarms))}")
        exchange = self._check(draft)
        properties = draft.properties.encode()
        extra_keys, delivered = routing_headers.take(properties)
        for key in extra_keys:
            check_key(self.access, self.vhost, exchange, key)
        queues = self.vhost.walk(exchange, [draft.routing_key, *extra_keys], draft.properties)
        if self.vhost.elsewhere:
            self.vhost.check_route(exchange, queues)
        if len(queues) == 1 and queues[0].routes_again:
            delivered = properties  # with CC and BCC, since the message is routed again later
        message = Message(
            exchange.wire_name,
            encode_name(draft.routing_key),
            delivered,
            draft.body,
            draft.properties.delivery_mode == PERSISTENT,
            self.node.clock.refresh(),
        )
        await self._enqueue_once(exchange, message, queues, extra_keys)
        await self._made_safe()
        if self.has_moved:
            raise LeaderChanged
        if self.confirms.refusals:
            raise BadRequest("rejected Unable to publish message. Check queue limits.")
        self.vhost.tally.clients.confirmed += 1
        return bool(queues)

    def _check(self, draft: Draft) -> Exchange:
        """The exchange, if this user may publish such a message to it."""
        wire_name, wire_key = encode_name(draft.exchange), encode_name(draft.routing_key)
        exchange = check_publish(self.access, self.vhost, wire_name, wire_key)
        properties = draft.properties
        if properties.delivery_mode not in DELIVERY_MODES:
            raise PreconditionFailed(f"invalid message: {{delivery_mode_unknown,{properties.delivery_mode}}}")
        if properties.user_id is not None:
            check_user_id(self.access, encode_name(properties.user_id)[1:])
        if properties.expiration is not None:
            check_expiration(encode_name(properties.expiration)[1:])
        if properties.reply_to == PSEUDO_QUEUE:
            rewrite_reply_to(properties.encode(), None)  # raises: nobody here could get the reply
        most = self.node.limits.message_bytes_max
        if len(draft.body) > most:
            raise PreconditionFailed(
                f"message size {len(draft.body)} is larger than configured max size {most}"
            )
        return exchange

    async def _enqueue_once(
        self, exchange: Exchange, message: Message, queues: list[Queue], extra_keys: list[str]
    ) -> None:
        """Hand the message to its queues, unless the exchange has seen it before; to very many over several
        turns, even if the client hangs up.
        """
        await take(self.node.turns, self._enqueuing_once(exchange, message, queues, extra_keys))

    def _enqueuing_once(
        self, exchange: Exchange, message: Message, queues: list[Queue], extra_keys: list[str]
    ) -> Iterator[int]:
        seen, now_ms = exchange.seen, message.time_ms
        if seen is None:
            yield from self._enqueuing(message, queues)
        else:
            yield from seen.awaiting(message)
            if seen.log is not None:
                self.confirms.note(AFTER_NEXT_ROUND, seen.log.safety)
            if seen.has(message, now_ms):
                if self.node.events.died:
                    self.node.events.emit(MessageDeduplicated(self.vhost.name, exchange.name, message))
                return
            with seen.coming(message):
                yield from self._enqueuing(message, queues)
            if not self.confirms.refusals and not self.has_moved:
                seen.note(message, now_ms, elsewhere=[queue.safety for queue in queues])
        self._count(exchange, len(queues))
        if self.node.events.published:
            self.vhost.tell_published(message, queues, self.origin, extra_keys)

    def _count(self, exchange: Exchange, routed: int) -> None:
        clients = self.vhost.tally.clients
        for tally in (clients, exchange.tally):
            tally.published += 1
            tally.routed += routed
        clients.with_confirms += 1
        if not routed:
            clients.returned += 1

    def _enqueuing(self, message: Message, queues: list[Queue]) -> Iterator[int]:
        work = enqueue_work(message, len(queues)) // (1 + len(queues))
        for queue in queues:
            standing = queue.stands()
            if standing is not None and standing.is_here:
                self.confirms.note(standing.publish(message), standing.safety)
            yield work
        self.has_moved = any(not queue.is_here and queue.stands() is not None for queue in queues)

    async def _made_safe(self) -> None:
        places = self.confirms.take_unsafe().items()
        safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if places:
            when_all_safe(
                places,
                lambda: None if safe.done() else safe.set_result(None),
                lambda: None if safe.done() else safe.set_exception(LeaderChanged()),
            )
        else:
            safe.set_result(None)
        self.node.end_turn()
        await safe
