"""A queue in the classic sense: entries in strict order, and the consumers that take them in turn.

Consumers stand in rings, one for each consumer priority. An entry leaves from the head of its lane to the
highest ring with a consumer that can take it; within a ring, consumers are served round robin.

A queue whose rules ask for more than that has a `Rulebook`, which does the rest. A queue without such rules
pays one test for them on each message.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from warren.broker.consumer import Consumer, ConsumeRequest, Ring, View
from warren.broker.death import Reason
from warren.broker.entry import Entry
from warren.broker.lane import Lane, part_of
from warren.broker.message import Message
from warren.broker.queue import Queue
from warren.broker.queue_walk import QueueWalk
from warren.broker.rulebook import Rulebook
from warren.broker.rules import Rules
from warren.broker.selector import Selector
from warren.broker.store import MessageLog, Store, StreamLog
from warren.broker.turns import DELIVERED_AT_A_TIME_MAX, MARKED_AT_A_TIME_MAX, TooMuchForATurn
from warren.broker.view import choose_view

TRIED_FOR_A_UNIT = 10  # asking so many consumers in vain costs a unit of work
SEEN_PART = "seen"  # the part of the queue's log in which deduplication keeps its notes


class ClassicQueue(Queue):
    def __init__(self, *identity: Any, **properties: Any) -> None:
        super().__init__(*identity, **properties)
        self.rings: list[Ring] = []  # the consumers that take whatever is next, by priority, highest first
        self.choosy: list[Consumer] = []  # the consumers that select or browse by a view, also by priority
        memory, open_overflow = self.surroundings.memory, self.surroundings.open_overflow
        levels = self.rules.max_priority + 1
        self.lanes = [  # one for each level of message priority, from the lowest to the highest
            Lane(self, self.budget, memory, open_overflow, level, levels) for level in range(levels)
        ]
        self.lane = self.lanes[0]  # the lowest, and in most queues the only one
        self.book: Rulebook | None = None  # None while the queue needs none, as most do
        self.set_rules(self.rules)

    # --- on the path of every message (`warren perf throughput` watches it) ---

    def publish(self, message: Message) -> int:
        if self.book is not None:
            return self.book.publish(message)
        if message.expiration_ms >= 0:
            return self.rulebook().publish(message)
        unsafe = self.lane.put(message)
        self.tally.published += 1
        if not self.touched:
            self.touch()
        return unsafe  # True is ON_ITS_WAY, and False STORED

    def touch(self) -> None:
        if not self.touched and (self.rings or self.book is not None) and not self.deleted:
            self.touched = True
            self.touched_queues.append(self)

    def drain(self) -> None:
        self.touched = False
        if self.deleted or self.returning:
            return
        if self.book is not None:
            self.book.drain()
        elif not self.paused:
            self.drain_lane()
        if self.holding:
            self.flow.relieve(self)

    def drain_lane(self) -> None:
        lane, tally, budget, most = self.lane, self.tally, self.budget, self.most_to_deliver()
        delivered, left = tally.delivered, budget.left
        while True:
            head = lane.first()
            if head is None:
                break
            consumer = self.next_consumer(head.size)
            if consumer is None:
                break
            entry = lane.pop()
            self.goes_out(entry, consumer.no_ack)
            delivery_tag = consumer.deliver(entry)
            if self.events.delivered:
                self.tell_drained(entry, consumer, delivery_tag)
            is_enough = tally.delivered - delivered >= most or left - budget.left > MARKED_AT_A_TIME_MAX
            if is_enough or budget.draining <= 0:
                self.touch()  # it is other queues' turn; this one goes on after them
                break
        budget.draining -= tally.delivered - delivered

    def most_to_deliver(self) -> int:
        """How many messages the queue may deliver before it is other queues' turn, or the next turn's."""
        return max(min(self.budget.draining, DELIVERED_AT_A_TIME_MAX), 1)

    def deliver(self, entry: Entry, consumer: Consumer) -> None:
        self.budget.draining -= 1
        self.goes_out(entry, consumer.no_ack)
        delivery_tag = consumer.deliver(entry)
        if self.events.delivered:
            self.tell_drained(entry, consumer, delivery_tag)

    def goes_out(self, entry: Entry, no_ack: bool) -> None:
        """Count an entry that is delivered, and have the delivery noted on disk."""
        lane = self.lane if self.book is None else self.lane_of(entry.message)
        self.delivered_bytes += entry.size
        self.count_delivered(entry, no_ack)
        if no_ack:
            lane.done(entry)
        else:
            self.unacked += 1
            entry.delivered_ms = self.clock.time_ms
            lane.note_delivered(entry)

    def count_delivered(self, entry: Entry, no_ack: bool) -> None:
        self.tally.delivered += 1
        self.type_tally.delivered += 1
        if no_ack:
            self.tally.delivered_no_ack += 1
            self.type_tally.delivered_no_ack += 1
        if entry.delivery_count > 0:
            self.tally.redelivered += 1
            self.type_tally.redelivered += 1

    def lane_of(self, message: Message) -> Lane:
        """The lane of a message's priority. A message above the queue's highest level belongs to that one."""
        return self.lanes[min(message.priority, len(self.lanes) - 1)]

    def next_consumer(self, size: int) -> Consumer | None:
        for ring in self.rings:
            consumer = ring.next_for(size)
            self.budget.draining -= ring.tried // TRIED_FOR_A_UNIT
            if consumer is not None:
                return consumer
        return None

    def settle(self, entry: Entry) -> None:
        if entry.position == 0:  # the client only browsed: the entry is not the queue's own
            return
        self.unacked -= 1
        self.tally.acked += 1
        self.type_tally.acked += 1
        if self.book is not None:
            self.book.settled(entry)
        self.forget(entry)

    def forget(self, entry: Entry) -> None:
        lane = self.lane if self.book is None else self.lane_of(entry.message)
        if not self.deleted:
            lane.done(entry)

    def requeue(self, entry: Entry) -> None:
        """Put an entry back at its old place, and count the delivery that failed."""
        if entry.position == 0:
            return
        self.unacked -= 1
        if self.deleted:
            return
        entry.delivery_count += 1
        entry.returned = True
        if self.book is not None:
            self.book.requeue(entry)
        else:
            self.lane.put_back(entry)
        self.touch()

    def redelivered(self, entry: Entry) -> None:
        self.count_delivered(entry, False)
        self.lane_of(entry.message).note_delivered(entry)

    # --- the rest ---

    def take_back(self, entry: Entry) -> None:
        self.requeue(entry)

    def reject(self, entry: Entry) -> None:
        if entry.position == 0:
            return
        self.unacked -= 1
        if self.book is not None:
            self.book.settled(entry)
        if not self.deleted:
            self.bury(entry, Reason.REJECTED)

    def bury(self, entry: Entry, reason: Reason) -> None:
        """Remove an entry that is in no lane and with no client; dead-letter it, if the rules say so."""
        if self.rules.dead_letter_exchange is None and not self.events.died:
            self.forget(entry)
        else:
            self.surroundings.dead_letters.bury(self, entry, reason)

    def put_back(self, entry: Entry) -> None:
        if self.deleted:
            return
        if self.book is not None:
            self.book.make_ready(entry)
        else:
            self.lane.put_back(entry)
        self.touch()

    def get(self, no_ack: bool) -> Entry | None:
        self.used()
        if self.paused:
            return None
        if self.returning:
            raise TooMuchForATurn
        entry = None
        if self.book is not None:
            entry = self.book.get(no_ack)
        elif self.lane.first() is not None:
            entry = self.lane.pop()
            self.goes_out(entry, no_ack)
        self.count_got(entry, no_ack)
        return entry

    def used(self) -> None:
        if self.book is not None:
            self.book.used()

    def rulebook(self) -> Rulebook:
        if self.book is None:
            self.book = Rulebook(self)
        return self.book

    def set_rules(self, rules: Rules) -> None:
        self.rules = rules
        if self.book is not None or rules.need_rulebook:
            self.rulebook().read(rules)
            self.touch()

    def pause(self, *, paused: bool) -> None:
        super().pause(paused=paused)
        self._tell_lanes()
        self.flow.relieve(self)

    def walk(self, selector: Selector | None = None, above: int = 0) -> QueueWalk:
        return QueueWalk(self, selector, above, self.has_expired)

    def has_expired(self, message: Message) -> bool:
        return self.book is not None and self.book.is_expired(message)

    def is_full_for(self, message: Message) -> bool:
        return self.book is not None and self.book.would_refuse(message)

    def has_seen(self, message: Message) -> bool:
        return self.book is not None and self.book.has_seen(message)

    def place_on_disk(self, message: Message) -> tuple[str, int] | None:
        lane = self.lane_of(message)
        if lane.log is None or not (message.persistent or self.rules.keeps_transient):
            return None
        return part_of(lane.level), lane.position

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

    def held_in_memory(self) -> tuple[int, int]:
        ready = [lane.ready for lane in self.lanes]
        return sum(entries.count for entries in ready), sum(entries.bytes for entries in ready)

    def head(self) -> Message | None:
        for lane in reversed(self.lanes):
            if lane.has_any():
                entry = lane.ready.head
                return None if entry is None else entry.message
        return None

    @property
    def next_offset(self) -> int:
        return self.lane.position

    def logs(self) -> list[tuple[str, MessageLog | StreamLog]]:
        return [(part_of(lane.level), lane.log) for lane in self.lanes if lane.log is not None]

    def last_safe(self, part: str) -> int:
        for lane in self.lanes:
            if part_of(lane.level) == part:
                return lane.released
        return super().last_safe(part)

    @property
    def consumers(self) -> list[Consumer]:
        return [*(consumer for ring in self.rings for consumer in ring.consumers), *self.choosy]

    @staticmethod
    def _view_of(consumer: Consumer) -> View:
        assert consumer.view is not None, "only consumers with a view of their own are choosy"
        return consumer.view

    @property
    def is_consumed(self) -> bool:
        return bool(self.rings or self.choosy)

    @property
    def is_worked_off(self) -> bool:
        return not self.paused and (bool(self.rings) or any(consumer.takes for consumer in self.choosy))

    def is_active(self, consumer: Consumer) -> bool:
        return self.book is None or self.book.is_active(consumer)

    def view_for(self, request: ConsumeRequest) -> View | None:
        return choose_view(self, request.arguments)

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
            self._view_of(consumer).end()
        if self.exclusive_consumer is consumer:
            self.exclusive_consumer = None
        if not self.deleted:
            self._tell_lanes()
            if self.book is not None:
                self.book.consumer_is_gone(consumer)
                self.touch()
        self.flow.relieve(self)

    def _tell_lanes(self) -> None:
        """Tell the lanes whether there is a consumer for whom to hold messages ready."""
        consumed = self.is_worked_off
        for lane in self.lanes:
            lane.set_consumed(consumed)

    def purge(self) -> tuple[int, Iterator[int]]:
        count = self.message_count
        steps: list[Iterator[int]] = []
        if self.book is not None:
            returning = self.book.clear()
            count += len(returning)
            steps.append(self.book.forgetting(returning))
        for consumer in self.choosy:
            self._view_of(consumer).was_purged()
        steps += [lane.clear(deleted=self.deleted) for lane in self.lanes]
        return count, chain.from_iterable(steps)

    def detach(self) -> None:
        for lane in self.lanes:
            lane.detach()
        if self.book is not None and self.book.seen is not None:
            self.book.seen.log = None

    def end(self) -> None:
        for lane in self.lanes:
            lane.end()
        if self.book is not None:
            self.book.end()
            self.book = None
        super().end()

    def open(self, store: Store) -> None:
        """Open the queue's logs: one for each lane, and one for what deduplication has seen. Only a durable
        queue that outlives its connection has any.
        """
        if not self.durable or self.owner is not None or self.lane.log is not None:
            return
        for lane in self.lanes:
            opened = store.open_log(self.vhost, self.name, part_of(lane.level))
            if opened is not None:
                self.restore(*opened, lane.level)
        if self.book is not None and self.book.seen is not None:
            opened = store.open_log(self.vhost, self.name, SEEN_PART)
            if opened is not None:
                self.book.seen.restore(*opened, self.lanes)

    def restore(self, log: MessageLog, position: int, level: int = 0) -> None:
        """Take over the messages that a lane's log has. `position` is the last that was used."""
        self.lanes[level].restore(log, position)
        self.safety = log.safety
        if self.book is not None or self.lanes[level].expires_any:
            self.rulebook().restored()

    def release_memory(self) -> None:
        for lane in self.lanes:
            lane.release_memory()
        if self.book is not None:
            self.book.release_memory()
