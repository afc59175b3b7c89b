"""A consumer on a channel: its prefetch limits, and how it sends a message to the client."""

from __future__ import annotations

from typing import Any, Protocol

from warren.amqp.methods import METHOD_ID, BasicDeliver
from warren.amqp.table import encode_name
from warren.broker.consumer import Consumer
from warren.broker.entry import Entry
from warren.broker.queue import Queue
from warren.session.deliveries import Deliveries


class ConsumerHost(Protocol):
    """What a consumer needs of its channel."""

    def queue_is_gone(self, consumer: ChannelConsumer) -> None: ...
    def queue_is_unavailable(self, consumer: ChannelConsumer, reason: str) -> None: ...


class ChannelConsumer(Consumer):
    def __init__(
        self,
        *,
        queue: Queue,
        channel: ConsumerHost,
        deliveries: Deliveries,
        prefetch_count: int,
        prefetch_size: int,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.queue = queue
        self.channel = channel
        self.deliveries = deliveries
        self.prefix = METHOD_ID.pack(*BasicDeliver.id) + encode_name(self.tag)  # begins each basic.deliver
        self.prefetch_count = prefetch_count  # 0 for no limit
        self.prefetch_size = prefetch_size  # in bytes; 0 for no limit
        self.unacked = 0
        self.unacked_bytes = 0

    def can_take(self, size: int) -> bool:
        """Whether a message of this size may be delivered now. If nothing is unacked, any size may.

        `warren perf throughput` watches this and `deliver`.
        """
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
        entry.consumer = None
        self.unacked -= 1
        self.unacked_bytes -= entry.size
        self.deliveries.counted -= 1
        self.deliveries.counted_bytes -= entry.size

    def queue_is_gone(self) -> None:
        self.channel.queue_is_gone(self)

    def queue_is_unavailable(self, reason: str) -> None:
        self.channel.queue_is_unavailable(self, reason)
