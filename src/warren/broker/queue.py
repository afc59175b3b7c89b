"""A queue: entries in strict order, and the consumers that take them in turn.

Entries leave the ready list from its head to whoever is next: in rings of equal priority, highest
first, each ring round robin over those that can take one more. Publishing only marks the queue as
touched; it is drained at the end of the turn, so that one turn's deliveries leave together.

Only the first entries are objects. What waits behind `READY_MAX` of them, or `READY_BYTES_MAX`, is made into
entries when its time comes:

    ready -> log         on disk, what is persistent in a queue that is durable
          -> packed      the rest, in memory
             -> overflow    and on disk, when memory for that is used up

All three are in order of position, and so is what is read from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from warren.amqp.errors import AccessRefused
from warren.amqp.table import Table
from warren.broker.binding import Binding
from warren.broker.consumer import Consumer, Ring
from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList
from warren.broker.events import Events, MessageDelivered
from warren.broker.flow import QueueFlow
from warren.broker.memory import Memory
from warren.broker.message import Message
from warren.broker.pack import Pack
from warren.broker.rules import Rules, rules_of
from warren.broker.store import NOTHING_TO_READ, MessageLog

if TYPE_CHECKING:
    from warren.broker.session.connection import Connection

DROPPED_A_TURN_MAX = 20_000
READY_MAX, READY_BYTES_MAX = 10_000, 16 * 1024 * 1024
READ_MAX = 2_000  # from disk at a time


class Queue:
    """`owner` is the connection that an exclusive queue belongs to; `log` is there if messages may have to
    survive a restart.
    """

    is_queue = True

    def __init__(
        self,
        name: str,
        vhost: str,
        events: Events,
        touched_queues: list[Queue],
        flow: QueueFlow,
        memory: Memory,
        open_overflow: Callable[[], MessageLog | None],
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
        self.rules = rules_of(self.arguments)
        self.incoming: set[Binding] = set()
        self.deleted = False
        self.had_consumer = False
        self.exclusive_consumer: Consumer | None = None
        self.ready = EntryList()
        self.ready_max = READY_MAX
        self.log: MessageLog | None = None
        self.memory = memory
        self.packed = Pack(memory)
        self.open_overflow = open_overflow
        self.overflow: MessageLog | None = None
        self.unacked = 0
        self.position = 0
        self.delivered = 0
        self.delivered_bytes = 0
        self.rings: list[Ring] = []

    # --- on the path of every message ---

    def publish(self, message: Message) -> bool:
        """Whether the message is on its way to disk, and not safe before it is there."""
        self.position += 1
        waits = self.ready.count >= self.ready_max or self.ready.bytes >= READY_BYTES_MAX or self.has_behind()
        log = self.log if message.persistent else None
        if log is not None:
            log.append(message, self.position, not waits)
        elif waits:
            self.put_behind(message)
        if not waits:
            self.ready.append_new(message, self, self.position, 0)
        if not self.touched:
            self.touch()
        return log is not None

    def has_behind(self) -> bool:
        """Whether anything waits behind the ready entries."""
        if self.packed.count:
            return True
        if self.log is not None and self.log.unread:
            return True
        return self.overflow is not None and self.overflow.unread > 0

    def put_behind(self, message: Message) -> None:
        """Keep a message that need not survive: in memory, or on disk if there is no more room."""
        full = self.memory.used_bytes >= self.memory.limit_bytes
        if full and self.overflow is None:
            self.overflow = self.open_overflow()
        if self.overflow is not None and (full or self.overflow.unread):
            self.overflow.append(message, self.position, False)
        else:
            self.packed.append(message, self.position)

    def touch(self) -> None:
        """See to it that the queue is drained at the end of this turn."""
        if self.rings and not self.touched:
            self.touched = True
            self.touched_queues.append(self)

    def drain(self) -> None:
        """Deliver as much as there are messages, and consumers that can take them."""
        self.touched = False
        while self.ready.head is not None or self.has_behind():
            head = self.ready.head
            if head is None:
                self.read_on()
                continue
            consumer = self.next_consumer(head.size)
            if consumer is None:
                break
            entry = self.ready.pop_head()
            self.goes_out(entry, consumer.no_ack)
            delivery_tag = consumer.deliver(entry)
            if self.events.delivered:
                self.tell_delivered(entry, consumer.tag, delivery_tag)
        if self.holding:
            self.flow.relieve(self)

    def goes_out(self, entry: Entry, no_ack: bool) -> None:
        """Count an entry that is delivered, and have it noted on disk."""
        self.delivered += 1
        self.delivered_bytes += entry.size
        if not no_ack:
            self.unacked += 1
            self.note_delivered(entry)
        elif self.log is not None and entry.message.persistent:
            self.log.acked(entry.position)

    def note_delivered(self, entry: Entry) -> None:
        if self.log is not None and entry.message.persistent:
            self.log.delivered(entry.position, entry.delivery_count + 1)

    def read_on(self) -> None:
        """Make entries of the next messages that wait behind; from memory many, from disk some at a time."""
        stored = NOTHING_TO_READ if self.log is None else self.log.peek()
        self.unpack(stored)
        if self.ready.count:
            return
        aside = NOTHING_TO_READ
        if self.packed.count:
            aside = self.packed.next_position
        elif self.overflow is not None:
            aside = self.overflow.peek()
        if self.log is not None and stored < aside:
            self.log.read_on(self, self.ready, READ_MAX, aside)
        elif self.overflow is not None:
            self.overflow.read_on(self, self.ready, READ_MAX, stored)

    def unpack(self, before: int) -> None:
        room = self.ready_max
        while self.packed.count and room > 0 and self.packed.next_position < before:
            position = self.packed.next_position
            self.ready.append_new(self.packed.pop(), self, position, 0)
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
        if self.log is not None and entry.message.persistent and not self.deleted:
            self.log.acked(entry.position)

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
            self.read_on()
        if self.ready.head is None:
            return None
        entry = self.ready.pop_head()
        self.goes_out(entry, no_ack)
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
        stored = 0 if self.log is None else self.log.unread
        overflowed = 0 if self.overflow is None else self.overflow.unread
        return self.ready.count + self.packed.count + stored + overflowed

    @property
    def message_bytes(self) -> int:
        stored = 0 if self.log is None else self.log.unread_bytes
        overflowed = 0 if self.overflow is None else self.overflow.unread_bytes
        return self.ready.bytes + self.packed.bytes + stored + overflowed

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
        if self.log is not None and self.deleted:
            self.log.delete()
        elif self.log is not None:
            self.log.purge()
            for entry in self.ready:
                if entry.message.persistent:
                    self.log.acked(entry.position)
        if self.overflow is not None:
            self.overflow.delete()
            self.overflow = None
        dropped, self.ready, self.packed = self.ready, EntryList(), Pack(self.memory)
        self._drop(dropped)
        return count

    def set_rules(self, rules: Rules) -> None:
        """Policies have changed; from now on these hold."""
        self.rules = rules
        self.touch()

    def restore(self, log: MessageLog, position: int) -> None:
        """Take over what is on disk; positions go on behind this one."""
        self.log = log
        self.position = position

    def release_memory(self) -> None:
        """The broker ends: nothing else frees entries, of which the garbage collector knows nothing."""
        self.ready.drop(self.ready.count)

    def _drop(self, entries: EntryList) -> None:
        entries.drop(DROPPED_A_TURN_MAX)
        if entries.count:
            self.flow.timers.call_soon(lambda: self._drop(entries))
