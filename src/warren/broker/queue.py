"""A queue: entries in strict order, and the consumers that take them in turn.

Entries leave the ready list from its head to whoever is next: in rings of equal priority, highest
first, each ring round robin over those that can take one more. Publishing only marks the queue as
touched; it is drained at the end of the turn, so that one turn's deliveries leave together.

What waits behind the first `UNPACKED_MAX` entries is packed, and made into entries when its time comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.amqp.errors import AccessRefused
from warren.amqp.table import Table
from warren.broker.binding import Binding
from warren.broker.consumer import Consumer, Ring
from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList
from warren.broker.events import Events, MessageDelivered
from warren.broker.flow import QueueFlow
from warren.broker.message import Message
from warren.broker.pack import Pack

if TYPE_CHECKING:
    from warren.broker.session.connection import Connection

DROPPED_A_TURN_MAX = 20_000
UNPACKED_MAX = 10_000


class Queue:
    """`owner` is the connection that an exclusive queue belongs to."""

    is_queue = True

    def __init__(
        self,
        name: str,
        vhost: str,
        events: Events,
        touched_queues: list[Queue],
        flow: QueueFlow,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        owner: Connection | None = None,
        arguments: Table | None = None,
    ) -> None:
        self.name = name
        self.vhost = vhost
        self.events = events
        self.touched_queues = touched_queues
        self.touched = False
        self.flow = flow
        self.holding = False
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.arguments = arguments or {}
        self.incoming: set[Binding] = set()
        self.deleted = False
        self.had_consumer = False
        self.exclusive_consumer: Consumer | None = None
        self.ready = EntryList()
        self.packed = Pack()
        self.unpacked_max = UNPACKED_MAX
        self.unacked = 0
        self.position = 0
        self.delivered = 0
        self.delivered_bytes = 0
        self.rings: list[Ring] = []

    # --- on the path of every message ---

    def publish(self, message: Message) -> None:
        self.position += 1
        if self.packed.count or self.ready.count >= self.unpacked_max:
            self.packed.append(message)
        else:
            self.ready.append(Entry(message, self, self.position))
        if not self.touched:
            self.touch()

    def touch(self) -> None:
        """See to it that the queue is drained at the end of this turn."""
        if self.rings and not self.touched:
            self.touched = True
            self.touched_queues.append(self)

    def drain(self) -> None:
        """Deliver as much as there are messages, and consumers that can take them."""
        self.touched = False
        while self.ready.head is not None or self.packed.count:
            head = self.ready.head
            if head is None:
                self.unpack()
                continue
            consumer = self.next_consumer(head.size)
            if consumer is None:
                break
            entry = self.ready.pop_head()
            self.delivered += 1
            self.delivered_bytes += entry.size
            if not consumer.no_ack:
                self.unacked += 1
            delivery_tag = consumer.deliver(entry)
            if self.events.delivered:
                self.tell_delivered(entry, consumer.tag, delivery_tag)
        if self.holding:
            self.flow.relieve(self)

    def unpack(self) -> None:
        """Make entries of the next packed messages, whose positions end with the queue's last one."""
        room = self.unpacked_max
        while self.packed.count and room > 0:
            position = self.position - self.packed.count + 1
            self.ready.append(Entry(self.packed.pop(), self, position))
            room -= 1

    def next_consumer(self, size: int) -> Consumer | None:
        for ring in self.rings:
            consumer = ring.next_for(size)
            if consumer is not None:
                return consumer
        return None

    def settle(self, entry: Entry) -> None:
        """An entry that was out with a client is done with."""
        self.unacked -= 1

    def requeue(self, entry: Entry) -> None:
        """An entry that was out with a client returns to its place."""
        self.unacked -= 1
        if self.deleted:
            return
        entry.delivery_count += 1
        self.ready.insert(entry)
        self.touch()

    def get(self, no_ack: bool) -> Entry | None:
        """The first message for basic.get."""
        if self.ready.head is None:
            self.unpack()
        if self.ready.head is None:
            return None
        entry = self.ready.pop_head()
        self.delivered += 1
        self.delivered_bytes += entry.size
        if not no_ack:
            self.unacked += 1
        return entry

    # --- the rest ---

    def tell_delivered(self, entry: Entry, consumer_tag: str, delivery_tag: int) -> None:
        redelivered = entry.delivery_count > 0
        self.events.emit(
            MessageDelivered(self.vhost, self.name, entry.message, consumer_tag, delivery_tag, redelivered)
        )

    @property
    def message_count(self) -> int:
        """How many are ready."""
        return self.ready.count + self.packed.count

    @property
    def message_bytes(self) -> int:
        return self.ready.bytes + self.packed.bytes

    @property
    def consumers(self) -> list[Consumer]:
        return [consumer for ring in self.rings for consumer in ring.consumers]

    @property
    def is_consumed(self) -> bool:
        return bool(self.rings)

    def add_consumer(self, consumer: Consumer) -> None:
        if self.exclusive_consumer is not None or (consumer.exclusive and self.rings):
            raise AccessRefused(f"queue '{self.name}' in vhost '{self.vhost}' in exclusive use")
        if consumer.exclusive:
            self.exclusive_consumer = consumer
        ring = next((ring for ring in self.rings if ring.priority == consumer.priority), None)
        if ring is None:
            ring = Ring(consumer.priority)
            self.rings.append(ring)
            self.rings.sort(key=lambda ring: -ring.priority)
        ring.consumers.append(consumer)
        self.had_consumer = True
        self.touch()

    def remove_consumer(self, consumer: Consumer) -> None:
        for ring in self.rings:
            ring.remove(consumer)
        self.rings = [ring for ring in self.rings if ring.consumers]
        if self.exclusive_consumer is consumer:
            self.exclusive_consumer = None
        self.flow.relieve(self)

    @property
    def is_abandoned(self) -> bool:
        """An auto-delete queue whose last consumer is gone."""
        return self.auto_delete and self.had_consumer and not self.rings

    def purge(self) -> int:
        """Drop all that is ready; of very many a part each turn, so that nobody has to wait for it."""
        count = self.message_count
        dropped, self.ready, self.packed = self.ready, EntryList(), Pack()
        self._drop(dropped)
        return count

    def release_memory(self) -> None:
        """The broker ends: nothing else frees entries, of which the garbage collector knows nothing."""
        self.ready.drop(self.ready.count)

    def _drop(self, entries: EntryList) -> None:
        entries.drop(DROPPED_A_TURN_MAX)
        if entries.count:
            self.flow.timers.call_soon(lambda: self._drop(entries))
