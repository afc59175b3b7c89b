"""A consumer: who gets a queue's messages, and how many before acknowledging some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.amqp.methods import METHOD_ID, BasicDeliver
from warren.amqp.table import Table, encode_name
from warren.broker.deliveries import Deliveries
from warren.broker.entry import Entry

if TYPE_CHECKING:
    from warren.broker.queue import Queue
    from warren.broker.session.channel import Channel
    from warren.broker.stream import StreamView
    from warren.broker.view import View


class Consumer:
    """`prefix` is how each of its deliveries begins: basic.deliver and its tag. `view` is there if it does
    not get what comes next, but looks for itself. Once it is `cancelled` it gets nothing more.
    """

    def __init__(
        self,
        *,
        tag: str,
        queue: Queue,
        channel: Channel,
        deliveries: Deliveries,
        no_ack: bool,
        exclusive: bool,
        priority: int,
        arguments: Table,
        prefetch_count: int,
        prefetch_size: int,
        view: View | StreamView | None = None,
    ) -> None:
        self.tag = tag
        self.queue = queue
        self.channel = channel
        self.deliveries = deliveries
        self.prefix = METHOD_ID.pack(*BasicDeliver.id) + encode_name(tag)
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority = priority
        self.arguments = arguments
        self.prefetch_count = prefetch_count
        self.prefetch_size = prefetch_size
        self.unacked = 0
        self.unacked_bytes = 0
        self.view = view
        self.cancelled = False

    def can_take(self, size: int) -> bool:
        """Whether a message of this size may be delivered now. One alone may exceed a limit in bytes."""
        deliveries = self.deliveries
        if not deliveries.active or not deliveries.output.has_room():
            return False
        if not self.no_ack:
            if self.prefetch_count and self.unacked >= self.prefetch_count:
                return False
            if self.prefetch_size and self.unacked_bytes and self.unacked_bytes + size > self.prefetch_size:
                return False
        return deliveries.rota is None or deliveries.rota.admits(self.queue, deliveries.has_room(size))

    def deliver(self, entry: Entry) -> int:
        """Send it; the delivery tag."""
        if self.deliveries.rota is not None:
            self.deliveries.rota.took(self.queue)
        if not self.no_ack:
            entry.consumer = self
            self.unacked += 1
            self.unacked_bytes += entry.size
            self.deliveries.counted += 1
            self.deliveries.counted_bytes += entry.size
        return self.deliveries.send(entry, self.prefix, self.no_ack)

    def settled(self, entry: Entry) -> None:
        """An entry delivered here was acked, rejected or requeued."""
        entry.consumer = None
        self.unacked -= 1
        self.unacked_bytes -= entry.size
        self.deliveries.counted -= 1
        self.deliveries.counted_bytes -= entry.size


class Ring:
    """A queue's consumers of one priority, served in turn. `tried` are those that could not take the last
    message for which one was looked for.
    """

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.consumers: list[Consumer] = []
        self.turn = 0
        self.tried = 0

    def remove(self, consumer: Consumer) -> None:
        """Take it out, if it is here, without anybody losing a turn."""
        if consumer in self.consumers:
            index = self.consumers.index(consumer)
            del self.consumers[index]
            self.turn -= index < self.turn

    def next_for(self, size: int) -> Consumer | None:
        """The next in turn that can take a message of this size."""
        count = len(self.consumers)
        self.tried = 0
        while self.tried < count:
            if self.turn >= count:
                self.turn = 0
            consumer = self.consumers[self.turn]
            self.turn += 1
            if consumer.can_take(size):
                return consumer
            self.tried += 1
        return None
