"""A federated queue: takes messages of the queue upstream while its own consumers have nothing to do.

The link consumes upstream only while the queue here is empty and some consumer could take a message, and with
a priority below that of usual consumers there. So messages stay where they are while somebody there takes
them. Links of others, which consume here in the same way, do not count as consumers: no message goes back and
forth for want of a consumer.

Whether consumers are busy is looked at when a message comes, when a consumer comes or goes, and from time to
time while the link waits for them, less often the longer they are busy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from warren.amqp.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    QueueDeclare,
    QueueDeclareOk,
)
from warren.amqp.table import Int64, Table
from warren.broker.consumer import Consumer
from warren.broker.queue import Queue
from warren.relay.ends import End
from warren.relay.federation_headers import rewrite_for_queue
from warren.relay.federation_link import Upstairs, ask_once, exists
from warren.relay.federation_upstream import Upstream
from warren.relay.link import RelayLink
from warren.relay.pump import NO_ACK, Rewrite

PRIORITY = Int64(-1)  # of the link as a consumer
LOOK_SECONDS, LOOK_SECONDS_MAX = 0.02, 0.64
"""Between two looks at consumers that are busy. Each time they still are, it is twice as long."""


class QueueSide:
    def __init__(self, queues: Mapping[str, Queue], queue: Queue, upstream: Upstream) -> None:
        self.queues = queues  # of the vhost, by name
        self.known = queue
        self.upstream = upstream
        self.there = upstream.queue or queue.name  # the name of the queue there
        self.is_consuming = False
        self.look_seconds = LOOK_SECONDS  # until the next look
        self.changed = asyncio.Event()

    @property
    def queue(self) -> Queue:
        """In a cluster another object stands for it when another node leads it."""
        self.known = self.queues.get(self.known.name, self.known)
        return self.known

    async def prepare(self, upstairs: Upstairs) -> RelayLink:
        if not await exists(upstairs, QueueDeclare(queue=self.there, passive=True, arguments={})):
            await ask_once(upstairs, self._as_here(), QueueDeclareOk)
        return await upstairs.open_for(self.upstream)

    def _as_here(self) -> QueueDeclare:
        """Declares the queue there like the one here."""
        return QueueDeclare(
            queue=self.there,
            durable=self.queue.durable,
            auto_delete=self.queue.auto_delete,
            arguments=self.queue.arguments,
        )

    def rewrite(self, upstream: RelayLink, end: End) -> Rewrite:
        station: Table = {"uri": end.shown, "queue": self.queue.name}
        return rewrite_for_queue(
            self.queue.name, station, seen=self._message_came, trust_user_id=self.upstream.trust_user_id
        )

    def _message_came(self) -> None:
        if self.is_consuming and not self.changed.is_set() and not wants_messages(self.queue):
            self.changed.set()

    async def follow(self, upstream: RelayLink, end: End) -> None:
        self.is_consuming = False
        while True:
            self.changed.clear()
            if wants_messages(self.queue) != self.is_consuming:
                self.look_seconds = LOOK_SECONDS
                await (self._pause(upstream) if self.is_consuming else self._consume(upstream))
            await self._until_next_look()

    async def _consume(self, upstream: RelayLink) -> None:
        self.is_consuming = True
        consume = BasicConsume(
            queue=self.there,
            consumer_tag=self.upstream.consumer_tag,
            no_ack=self.upstream.ack_mode == NO_ACK,
            arguments={"x-priority": PRIORITY},
        )
        await upstream.ask(consume, BasicConsumeOk)

    async def _pause(self, upstream: RelayLink) -> None:
        """Messages that are on their way already still come."""
        self.is_consuming = False
        await upstream.ask(BasicCancel(consumer_tag=self.upstream.consumer_tag), BasicCancelOk)

    async def _until_next_look(self) -> None:
        if self.is_consuming or not any(map(counts, self.queue.consumers)):
            await self.changed.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.look_seconds):
                await self.changed.wait()
        self.look_seconds = min(2 * self.look_seconds, LOOK_SECONDS_MAX)

    async def clean_up(self, upstairs: Upstairs) -> None:
        """The queue there is not the link's own: it stays."""


def counts(consumer: Consumer) -> bool:
    """Whether messages are fetched for this consumer: not for links of others."""
    return consumer.priority >= 0


def wants_messages(queue: Queue) -> bool:
    """Whether the queue has nothing for a consumer that could take a message."""
    if queue.paused or queue.length():
        return False
    return any(
        counts(consumer) and consumer.takes and queue.is_active(consumer) and consumer.can_take(0)
        for consumer in queue.consumers
    )
