"""A queue: entries in strict order, and the consumers that take them in turn.

Entries leave from the head of a lane to whoever is next: in rings of equal priority, highest first, each ring
round robin over those that can take one more. Publishing only marks the queue as touched; it is drained at
the end of the turn, so that one turn's deliveries leave together.

A queue whose rules ask for more than that has a `Rulebook`, which does it; the others pay one test for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from warren.amqp.errors import AccessRefused
from warren.amqp.table import Table
from warren.broker.binding import Incoming
from warren.broker.consumer import Consumer, Ring
from warren.broker.death import Reason
from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList
from warren.broker.events import MessageDelivered
from warren.broker.flow import QueueFlow
from warren.broker.lane import Lane
from warren.broker.message import Message
from warren.broker.rulebook import Rulebook
from warren.broker.rules import Rules, rules_of
from warren.broker.store import MessageLog
from warren.broker.surroundings import Surroundings
from warren.broker.turns import DELIVERED_AT_A_TIME_MAX, TooMuchForATurn
from warren.broker.view import takes, view_of

if TYPE_CHECKING:
    from warren.broker.session.channel import Channel
    from warren.broker.session.connection import Connection

TRIED_FOR_A_UNIT = 10  # consumers that cannot take a message, for a unit of work
DROP_STEP = 1_000


class Queue:
    """`owner` is the connection that an exclusive queue belongs to. `lanes` are the levels of priority, from
    the lowest to the highest; `lane` is the lowest, and in most queues the only one.
    """

    is_queue = True
    internal = False  # it belongs to an exchange, and is not for clients

    def __init__(
        self,
        name: str,
        vhost: str,
        surroundings: Surroundings,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        owner: Connection | None = None,
        arguments: Table | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.name = name
        self.vhost = vhost
        self.surroundings = surroundings
        self.events = surroundings.events
        self.clock = surroundings.clock
        self.budget = surroundings.turns.budget
        self.touched_queues = surroundings.touched_queues
        self.touched = False
        self.flow = QueueFlow(surroundings.timers)
        self.holding = False
        self.returning = 0  # clients that are giving back very many: until they are there, nothing goes out
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.arguments = arguments or {}
        self.rules = rules or rules_of(self.arguments)
        self.incoming = Incoming()
        self.deleted = False
        self.had_consumer = False
        self.exclusive_consumer: Consumer | None = None
        self.unacked = 0
        self.delivered = 0
        self.delivered_bytes = 0
        self.rings: list[Ring] = []
        self.choosy: list[Consumer] = []
        memory, open_overflow = surroundings.memory, surroundings.open_overflow
        levels = self.rules.max_priority + 1
        self.lanes = [Lane(self, memory, open_overflow, level, levels) for level in range(levels)]
        self.lane = self.lanes[0]
        self.book: Rulebook | None = None
        self.set_rules(self.rules)

    # --- on the path of every message ---

    def publish(self, message: Message) -> int:
        """STORED, ON_ITS_WAY to disk and not safe before it is there, or REFUSED."""
        if self.book is not None:
            return self.book.publish(message)
        if message.expiration_ms >= 0:
            return self.rulebook().publish(message)
        unsafe = self.lane.put(message)
        if not self.touched:
            self.touch()
        return unsafe

    def touch(self) -> None:
        """See to it that the queue is drained at the end of this turn."""
        if not self.touched and (self.rings or self.book is not None) and not self.deleted:
            self.touched = True
            self.touched_queues.append(self)

    def drain(self) -> None:
        """Deliver as much as there are messages, and consumers that can take them; of very many a part."""
        self.touched = False
        if self.deleted or self.returning:
            return
        if self.book is not None:
            self.book.drain()
        else:
            self.drain_lane()
        if self.holding:
            self.flow.relieve(self)

    def drain_lane(self) -> None:
        lane, delivered, most = self.lane, self.delivered, self.most_to_deliver()
        while lane.ready.head is not None or lane.has_behind():
            head = lane.ready.head
            if head is None:
                lane.read_on()
                continue
            consumer = self.next_consumer(head.size)
            if consumer is None:
                break
            entry = lane.ready.pop_head()
            self.goes_out(entry, consumer.no_ack)
            delivery_tag = consumer.deliver(entry)
            if self.events.delivered:
                self.tell_delivered(entry, consumer.channel, consumer.tag, delivery_tag)
            if self.delivered - delivered == most:
                self.touch()  # other queues first
                break
        self.budget.draining -= self.delivered - delivered

    def most_to_deliver(self) -> int:
        """How many may go out before other queues, or the next turn, come."""
        return max(min(self.budget.draining, DELIVERED_AT_A_TIME_MAX), 1)

    def deliver(self, entry: Entry, consumer: Consumer) -> None:
        self.budget.draining -= 1
        self.goes_out(entry, consumer.no_ack)
        delivery_tag = consumer.deliver(entry)
        if self.events.delivered:
            self.tell_delivered(entry, consumer.channel, consumer.tag, delivery_tag)

    def goes_out(self, entry: Entry, no_ack: bool) -> None:
        """Count an entry that is delivered, and have it noted on disk."""
        lane = self.lane if self.book is None else self.lane_of(entry)
        self.delivered += 1
        self.delivered_bytes += entry.size
        if not no_ack:
            self.unacked += 1
            entry.delivered_ms = self.clock.time_ms
        if lane.log is None:
            return
        if no_ack:
            lane.done(entry)
        else:
            lane.note_delivered(entry)

    def lane_of(self, entry: Entry) -> Lane:
        return self.lanes[self.level_of(entry.message)]

    def level_of(self, message: Message) -> int:
        """What is above the highest level belongs to that."""
        return min(message.priority, len(self.lanes) - 1)

    def next_consumer(self, size: int) -> Consumer | None:
        for ring in self.rings:
            consumer = ring.next_for(size)
            self.budget.draining -= ring.tried // TRIED_FOR_A_UNIT
            if consumer is not None:
                return consumer
        return None

    def settle(self, entry: Entry) -> None:
        """An entry that was out with a client is done with."""
        if entry.position == 0:
            return
        self.unacked -= 1
        if self.book is not None:
            self.book.settled(entry)
        self.forget(entry)

    def forget(self, entry: Entry) -> None:
        """Nothing of it is left here."""
        lane = self.lane if self.book is None else self.lane_of(entry)
        if lane.log is not None and not self.deleted:
            lane.done(entry)

    def requeue(self, entry: Entry) -> None:
        """An entry that was out with a client returns to its place."""
        if entry.position == 0:
            return
        self.unacked -= 1
        if self.deleted:
            return
        entry.delivery_count += 1
        if self.book is not None:
            self.book.requeue(entry)
        else:
            self.lane.put_back(entry)
        self.touch()

    # --- the rest ---

    def take_back(self, entry: Entry) -> None:
        """The client is gone, or asks for all that it has not settled."""
        self.requeue(entry)

    def reject(self, entry: Entry) -> None:
        """A client does not want it back in the queue."""
        if entry.position == 0:
            return
        self.unacked -= 1
        if self.book is not None:
            self.book.settled(entry)
        if not self.deleted:
            self.bury(entry, Reason.REJECTED)

    def bury(self, entry: Entry, reason: Reason) -> None:
        """An entry that nobody holds leaves, for the dead-letter exchange if there is one."""
        if self.rules.dead_letter_exchange is None and not self.events.died:
            self.forget(entry)
        else:
            self.surroundings.dead_letters.bury(self, entry, reason)

    def get(self, no_ack: bool) -> Entry | None:
        """The first message for basic.get. TooMuchForATurn while it is not known which one is the first."""
        self.used()
        if self.returning:
            raise TooMuchForATurn
        if self.book is not None:
            return self.book.get(no_ack)
        if self.lane.first() is None:
            return None
        entry = self.lane.pop()
        self.goes_out(entry, no_ack)
        return entry

    def used(self) -> None:
        """Somebody has declared, consumed from or looked into it."""
        if self.book is not None:
            self.book.used()

    def rulebook(self) -> Rulebook:
        if self.book is None:
            self.book = Rulebook(self)
        return self.book

    def set_rules(self, rules: Rules) -> None:
        """From now on these hold, for what is there as well."""
        self.rules = rules
        if self.book is not None or rules.need_rulebook:
            self.rulebook().read(rules)
            self.touch()

    def tell_delivered(self, entry: Entry, channel: Channel, consumer_tag: str, delivery_tag: int) -> None:
        message, redelivered = entry.message, entry.delivery_count > 0
        if channel.vhost.firehose is not None:
            channel.vhost.firehose.delivered(message, self.name, channel, redelivered=redelivered)
        if self.events.delivering.is_next():
            self.events.emit(
                MessageDelivered(self.vhost, self.name, message, consumer_tag, delivery_tag, redelivered)
            )

    def length(self) -> int:
        length = 0
        for lane in self.lanes:
            length += lane.length()
        return length

    def body_bytes(self) -> int:
        total = 0
        for lane in self.lanes:
            total += lane.body_bytes()
        return total

    @property
    def message_count(self) -> int:
        """How many are ready."""
        return self.length()

    @property
    def message_bytes(self) -> int:
        return self.body_bytes()

    @property
    def consumers(self) -> list[Consumer]:
        return [*(consumer for ring in self.rings for consumer in ring.consumers), *self.choosy]

    @property
    def is_consumed(self) -> bool:
        return bool(self.rings or self.choosy)

    @property
    def is_worked_off(self) -> bool:
        """Whether it has consumers who do not only look."""
        return bool(self.rings) or any(map(takes, self.choosy))

    def admit(self, consumer: Consumer) -> None:
        """403 if another one, or this one, wants to be alone."""
        if self.exclusive_consumer is not None or (consumer.exclusive and self.is_consumed):
            raise AccessRefused(f"queue '{self.name}' in vhost '{self.vhost}' in exclusive use")
        if consumer.exclusive:
            self.exclusive_consumer = consumer

    def add_consumer(self, consumer: Consumer) -> None:
        self.admit(consumer)
        if consumer.view is not None:
            self.rulebook()
            self.choosy.append(consumer)
            self.choosy.sort(key=lambda consumer: -consumer.priority)
        else:
            self._add_to_ring(consumer)
        self.had_consumer = True
        self._tell_lanes()
        self.used()
        if self.book is not None:
            self.book.consumers_changed()
        self.touch()

    def _add_to_ring(self, consumer: Consumer) -> None:
        ring = next((ring for ring in self.rings if ring.priority == consumer.priority), None)
        if ring is None:
            ring = Ring(consumer.priority)
            self.rings.append(ring)
            self.rings.sort(key=lambda ring: -ring.priority)
        ring.consumers.append(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        consumer.cancelled = True
        for ring in self.rings:
            ring.remove(consumer)
        self.rings = [ring for ring in self.rings if ring.consumers]
        if consumer in self.choosy:
            self.choosy.remove(consumer)
            view_of(consumer).end()
        if self.exclusive_consumer is consumer:
            self.exclusive_consumer = None
        if not self.deleted:
            self._tell_lanes()
            if self.book is not None:
                self.book.consumer_is_gone(consumer)
                self.touch()
        self.flow.relieve(self)

    def _tell_lanes(self) -> None:
        """Whether somebody is there for whom to hold messages ready."""
        consumed = self.is_worked_off
        for lane in self.lanes:
            if lane.consumed != consumed:
                lane.set_consumed(consumed)

    @property
    def is_abandoned(self) -> bool:
        """An auto-delete queue whose last consumer is gone."""
        return self.auto_delete and self.had_consumer and not self.is_consumed

    def purge(self) -> int:
        """Drop all that is ready; of very many a part each turn, so that nobody has to wait for it."""
        count = self.message_count
        if self.book is not None:
            count += self.book.clear()
        for consumer in self.choosy:
            view_of(consumer).was_purged()
        for lane in self.lanes:
            self.surroundings.turns.spread(self._dropping(lane.clear(deleted=self.deleted)))
        return count

    def end(self) -> None:
        """It is deleted and empty. Whatever refers back to it is let go, so that it is gone with the last of
        its messages that is out, and need not wait for the garbage collector.
        """
        for lane in self.lanes:
            lane.end()
        if self.book is not None:
            self.book.end()
            self.book = None
        self.owner = None

    def restore(self, log: MessageLog, position: int, level: int = 0) -> None:
        """Take over what is on disk; positions go on behind this one."""
        self.lanes[level].restore(log, position)
        if self.book is not None or self.lanes[level].expiry is not None:
            self.rulebook().restored()

    def release_memory(self) -> None:
        """The broker ends."""
        for lane in self.lanes:
            lane.release_memory()
        if self.book is not None:
            self.book.release_memory()

    def _dropping(self, entries: EntryList) -> Iterator[int]:
        while entries.count:
            entries.drop(DROP_STEP)
            yield DROP_STEP
