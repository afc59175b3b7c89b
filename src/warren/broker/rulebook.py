"""The behaviour of a queue that has rules beyond first in, first out.

A queue gets a rulebook with its first such rule, with the first message that has an expiration of its own, or
with the first consumer that has a view of its own. Each turn that touches the queue takes these steps:

    deliver     to consumers that have a view of their own, then to the others
    expire      messages older than the queue's TTL, at the heads of lanes, or older than their own, anywhere
    drop        messages above the length limits, from the head
    plan        when the next message expires or returns, and the queue has to be drained again

Delivering comes first: a message that finds a consumer waiting is delivered even if the TTL, or the length
limit, is 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from warren.broker.consumer import Consumer
from warren.broker.death import Reason
from warren.broker.deduplication import Seen
from warren.broker.entry import Entry
from warren.broker.events import ActiveConsumerChanged, MessageDeduplicated, MessageRefused, MessageReturns
from warren.broker.groups import Groups
from warren.broker.lane import Lane
from warren.broker.lifetime import Lifetime
from warren.broker.message import Message
from warren.broker.outcome import AFTER_NEXT_ROUND, ON_ITS_WAY, REFUSED, STORED
from warren.broker.post import FULL_MS
from warren.broker.retry import Retry
from warren.broker.ruled_queue import RuledQueue
from warren.broker.rules import DROP_HEAD, REJECT_TO_DLX, Rules
from warren.broker.timetable import Appointment
from warren.broker.turns import MARKED_AT_A_TIME_MAX, TooMuchForATurn
from warren.broker.view import Views, would_take

NONE = -1  # stands for no limit, and for no time
GONE_AT_A_TIME_MAX = 200  # messages that expire or are dropped, before it is other queues' turn
RETURNED_AT_A_TIME_MAX = 2_000  # messages that return after a delay
DELAY_WORK, GONE_WORK, RETURN_WORK = 5, 3, 3  # units of work, for one message
CONSUMERS_FOR_A_UNIT = 10  # asked whether they could take a message, for a unit of work


class Rulebook:
    """The rules of one queue, and the state that they need."""

    def __init__(self, queue: RuledQueue) -> None:
        self.queue = queue
        self.budget = queue.surroundings.turns.budget
        self.clock = queue.surroundings.clock
        self.events = queue.surroundings.events
        self.timetable = queue.surroundings.timetable
        self.groups: Groups | None = None  # for `x-group-header`
        self.seen: Seen | None = None  # what deduplication has seen
        self.retry = Retry(self.clock)  # messages that were given back, and return after a delay
        self.appointment: Appointment | None = None  # to drain the queue when something is due
        self.lifetime = Lifetime(queue)  # for `x-expires`
        self.views = Views(queue, self)  # serves consumers that have a view of their own
        self.draining = False  # whether `drain` is running
        self.room = 0  # how many more messages may expire or be dropped before it is other queues' turn
        self.arrived = 0  # messages that came since the last turn
        self.going_on = False  # whether `go_on` will be called
        self.active: Consumer | None = None  # the single active consumer
        self.line: list[Consumer] = []  # with a single active consumer: all consumers, in order of arrival
        self.read(queue.rules)

    def read(self, rules: Rules) -> None:
        """These rules hold from now on."""
        self.ttl_ms = _or_none(rules.message_ttl)
        self.max_length = _or_none(rules.max_length)  # of ready messages
        self.max_bytes = _or_none(rules.max_length_bytes)  # of their bodies
        self.drops_head = rules.overflow == DROP_HEAD  # else new messages are refused when the queue is full
        self.refuses_to_dlx = rules.overflow == REJECT_TO_DLX  # whether refused messages are dead-lettered
        self.delivery_limit = _or_none(rules.delivery_limit)  # how often a message may be given back
        self.retry.set_limits(_or_none(rules.retry_delay_min), rules.retry_delay_max)
        self.single_active = rules.single_active_consumer
        self.keeps_transient = rules.keeps_transient
        if self.groups is None and rules.group_header is not None:
            self.groups = Groups(rules.group_header, self.queue, self)
            for lane in self.queue.lanes:
                lane.keep_all()
        if self.seen is None and rules.message_deduplication:
            self.seen = Seen(rules.cache_size, rules.cache_ttl, rules.deduplication_header)
        self.lifetime.set_limit(_or_none(rules.expires))

    # --- in ---

    def publish(self, message: Message) -> int:
        """Add a message; return one of the answers in `outcome.py`."""
        if self.keeps_transient and not message.persistent:
            message = message.made_persistent()
        if self.seen is not None and self.seen.concerns(message):
            return self.publish_once(message, self.seen)
        return self.put(message)

    def publish_once(self, message: Message, seen: Seen) -> int:
        """Add a message that carries the deduplication header, unless it is a duplicate. A duplicate is
        answered as its original was.
        """
        queue = self.queue
        if seen.has(message, self.clock.time_ms):
            if self.events.died:
                self.events.emit(MessageDeduplicated(queue.vhost, queue.name, message))
            result = STORED
        else:
            result = self.put(message)
            if result != REFUSED:
                lane = queue.lane_of(message)
                place = f"{lane.level} {lane.position}" if result == ON_ITS_WAY else ""
                seen.note(message, self.clock.time_ms, place)
        return AFTER_NEXT_ROUND if seen.log is not None and result != REFUSED else result

    def put(self, message: Message) -> int:
        queue = self.queue
        if self.would_refuse(message):
            return self.refuse(message)
        unsafe = queue.lane_of(message).put(message)
        queue.tally.published += 1
        self.arrived += 1
        queue.touch()
        return ON_ITS_WAY if unsafe else STORED

    def has_seen(self, message: Message) -> bool:
        """Whether a message is a duplicate."""
        seen = self.seen
        return seen is not None and seen.concerns(message) and seen.has(message, self.clock.time_ms)

    def would_refuse(self, message: Message) -> bool:
        """Whether the queue is full, and refuses new messages then."""
        return not self.drops_head and self.is_full(message)

    def is_full(self, message: Message) -> bool:
        """Whether there is no room for a message. A message that a consumer can take at once needs none."""
        size = len(message.body)
        if not self.is_beyond(1, size):
            return False
        queue = self.queue
        if queue.touched:
            self.drain()
        if not self.is_beyond(1, size):
            return False
        return queue.length() > 0 or not self.could_deliver(message, size)

    def is_beyond(self, more: int, more_bytes: int) -> bool:
        """Whether so many more messages, or bytes, would be above a length limit."""
        queue = self.queue
        if self.max_length >= 0 and queue.length() + more > self.max_length:
            return True
        return self.max_bytes >= 0 and queue.body_bytes() + more_bytes > self.max_bytes

    def could_deliver(self, message: Message, size: int) -> bool:
        if self.queue.paused:
            return False
        consumers = self.queue.consumers
        self.budget.left -= len(consumers) // CONSUMERS_FOR_A_UNIT
        return any(
            self.is_active(consumer) and consumer.can_take(size) and would_take(consumer, message)
            for consumer in consumers
        )

    def refuse(self, message: Message) -> int:
        queue = self.queue
        if self.events.died:
            self.events.emit(MessageRefused(queue.vhost, queue.name, message))
        if self.refuses_to_dlx:
            queue.surroundings.dead_letters.send(queue, message, Reason.MAXLEN)
        return REFUSED

    def requeue(self, entry: Entry) -> None:
        """A client gives an entry back. Bury it if that was too often, or if it has expired; delay it if
        retries are delayed; else put it back to its place.
        """
        queue = self.queue
        if 0 <= self.delivery_limit < entry.delivery_count:
            self.settled(entry)
            queue.bury(entry, Reason.DELIVERY_LIMIT)
        elif self.is_ttl_over(entry.message, self.clock.time_ms):
            self.settled(entry)
            queue.bury(entry, Reason.EXPIRED)
        elif self.retry.is_on:
            if self.groups is not None:
                self.groups.delay(entry, 1)
            self.settled(entry)
            self.delay(entry)
        else:
            self.put_back(entry)

    def delay(self, entry: Entry) -> None:
        """Have an entry wait for its retry."""
        delay_ms = self.retry.delay(entry)
        self.budget.left -= DELAY_WORK
        if self.events.died:
            queue = self.queue
            self.events.emit(MessageReturns(queue.vhost, queue.name, entry.message, delay_ms))
        self.queue.touch()

    def is_worn(self, entry: Entry) -> bool:
        """Whether an entry from an earlier run was delivered too often then to be delivered again. One
        delivery is not enough: after a power cut all messages count as delivered once.
        """
        return not entry.returned and 0 <= self.delivery_limit < entry.delivery_count > 1

    def is_unfit(self, entry: Entry) -> bool:
        """Whether an entry must not be delivered now: it has expired, was delivered too often, or still has
        to wait for its retry.
        """
        if self.is_expired_at(entry.message, self.clock.time_ms):
            return True
        return entry.delivery_count > 0 and (self.is_worn(entry) or self.retry.was_waiting(entry))

    def send_away(self, entry: Entry) -> None:
        """Bury or delay an unfit entry, which has been taken out of its lane."""
        if self.is_expired_at(entry.message, self.clock.time_ms):
            self.bury(entry, Reason.EXPIRED)
        elif self.is_worn(entry):
            self.bury(entry, Reason.DELIVERY_LIMIT)
        else:
            self.room -= 1
            if self.groups is not None:
                self.groups.delay(entry, 1)
            self.delay(entry)

    def bury(self, entry: Entry, reason: Reason) -> None:
        """An entry, which has been taken out of its lane, dies."""
        self.room -= 1
        self.budget.left -= GONE_WORK
        self.queue.bury(entry, reason)

    def put_back(self, entry: Entry) -> None:
        self.make_ready(entry)
        self.settled(entry)

    def make_ready(self, entry: Entry) -> None:
        """Put an entry back to its old place. Groups and views that have passed it look there again."""
        queue = self.queue
        queue.lane_of(entry.message).put_back(entry)
        if self.groups is not None:
            self.groups.came_back(entry)
        for consumer in queue.choosy:
            if consumer.view is not None:
                consumer.view.came_back(entry, queue.lane_of(entry.message).level)

    def settled(self, entry: Entry) -> None:
        """An entry is not out with a client any more."""
        if self.groups is not None:
            self.groups.settled(entry)

    # --- a turn ---

    def drain(self) -> None:
        """Take the steps of a turn. Dead letters may lead back to this queue, and to this call, meanwhile."""
        if self.draining or self.queue.returning:
            return
        self.draining = True
        try:
            self.go_through()
        finally:
            self.draining = False

    def go_through(self) -> None:
        """The steps of a turn, in their order. `tests/stress/test_rules.py` measures it with a million
        messages that expire.
        """
        queue = self.queue
        now_ms = self.clock.refresh()
        is_full = self.must_keep()
        self.room = (
            0 if is_full else GONE_AT_A_TIME_MAX + self.arrived
        )  # else more arrives than can be dropped
        self.arrived = 0
        if self.retry.waiting:
            self.bring_back(now_ms)
        if not queue.paused:
            self.deliver(now_ms)
        self.expire(now_ms)
        if self.drops_head and (self.max_length >= 0 or self.max_bytes >= 0):
            self.drop_head()
        for lane in queue.lanes:
            lane.note_expiries()
        if is_full:
            self.come_back(now_ms + FULL_MS)
        else:
            self.come_back(now_ms if self.room <= 0 else self.next_due())

    def must_keep(self) -> bool:
        """Whether nothing should die now: too many dead letters wait already."""
        rules, surroundings = self.queue.rules, self.queue.surroundings
        if rules.dead_letter_exchange is None:
            return False
        return surroundings.post_is_full() or surroundings.dead_letters.is_full

    def deliver(self, now_ms: int) -> None:
        if self.queue.choosy:
            self.views.serve()
        if self.groups is not None:
            self.groups.drain()
        else:
            self.drain_lanes(now_ms)

    def drain_lanes(self, now_ms: int) -> None:
        queue = self.queue
        if not queue.rings:
            return
        budget, most = self.budget, queue.most_to_deliver()
        delivered, left = queue.tally.delivered, budget.left
        while True:
            done = queue.tally.delivered - delivered  # at least one: a message that finds a consumer goes out
            is_enough = done >= most or left - budget.left > MARKED_AT_A_TIME_MAX
            if is_enough or (done and budget.draining <= 0):
                queue.touch()  # it is other queues' turn
                return
            lane = self.first_lane()
            if lane is None:
                return
            head = lane.first()
            if head is None:
                continue
            if (head.delivery_count > 0 or self.is_expired_at(head.message, now_ms)) and self.is_unfit(head):
                if self.room <= 0:
                    return
                self.send_away(lane.pop())
                continue
            consumer = self.next_consumer(head.size)
            if consumer is None:
                return
            queue.deliver(lane.pop(), consumer)

    def first_lane(self) -> Lane | None:
        """The lane of the highest priority that has any message."""
        lanes = self.queue.lanes
        level = len(lanes) - 1
        while level >= 0:
            lane = lanes[level]
            if lane.has_any():
                return lane
            level -= 1
        return None

    def next_consumer(self, size: int) -> Consumer | None:
        if not self.single_active:
            return self.queue.next_consumer(size)
        active = self.active
        return active if active is not None and active.view is None and active.can_take(size) else None

    def is_active(self, consumer: Consumer) -> bool:
        """Whether a consumer may get messages: all may, unless the queue has a single active consumer."""
        return not self.single_active or consumer is self.active

    def go_on_soon(self) -> None:
        """Drain the queue again in a turn to come: there was too much to do for this one."""
        if not self.going_on:
            self.going_on = True
            self.queue.surroundings.turns.later(self.go_on)

    def go_on(self) -> None:
        self.going_on = False
        self.queue.drain()

    def get(self, no_ack: bool) -> Entry | None:
        """Take the first message that may be delivered, for basic.get; bury or delay those before it. While
        nothing should die they stay, and so does what is behind them.
        """
        queue = self.queue
        self.drain()
        entry = self.take_first()
        while entry is not None and self.is_unfit(entry):
            if self.must_keep():
                self.make_ready(entry)
                return None
            self.send_away(entry)
            if self.room <= 0:
                raise TooMuchForATurn
            entry = self.take_first()
        if entry is not None:
            if self.groups is not None and not no_ack:
                self.groups.lend(entry)
            queue.goes_out(entry, no_ack)
        return entry

    def take_first(self) -> Entry | None:
        if self.groups is not None:
            return self.groups.take_free()
        lane = self.first_lane()
        return None if lane is None or lane.first() is None else lane.pop()

    # --- messages that expire or are dropped ---

    def is_expired_at(self, message: Message, now_ms: int) -> bool:
        """Whether a message is too old to be delivered. A message with a TTL of 0 is not, in the turn in
        which it arrives.
        """
        return self.is_ttl_over(message, now_ms) and self.ttl_of(message) != 0

    def is_expired(self, message: Message) -> bool:
        """Whether a message is too old to be shown to a consumer that browses."""
        return self.is_expired_at(message, self.clock.time_ms)

    def is_ttl_over(self, message: Message, now_ms: int) -> bool:
        """Whether a message's TTL is over."""
        ttl_ms = self.ttl_of(message)
        return ttl_ms >= 0 and message.time_ms + ttl_ms <= now_ms

    def ttl_of(self, message: Message) -> int:
        """A message's TTL: the lower of the queue's and the message's own; NONE if there is neither."""
        ttl_ms = message.expiration_ms
        if self.ttl_ms >= 0 and (ttl_ms < 0 or self.ttl_ms < ttl_ms):
            return self.ttl_ms
        return ttl_ms

    def expire(self, now_ms: int) -> None:
        """Bury messages that are too old, as long as there is `room`."""
        queue = self.queue
        for lane in queue.lanes:
            entry = lane.take_expired(now_ms) if self.room > 0 else None
            while entry is not None:
                self.bury(entry, Reason.EXPIRED)
                entry = lane.take_expired(now_ms) if self.room > 0 else None
            head = lane.first() if self.ttl_ms >= 0 else None
            while head is not None and self.room > 0 and head.message.time_ms + self.ttl_ms <= now_ms:
                self.bury(lane.pop(), Reason.EXPIRED)
                head = lane.first()

    def drop_head(self) -> None:
        """Bury messages from the head while the queue is above a limit, as long as there is `room`."""
        while self.room > 0 and self.is_beyond(0, 0):
            lane = self.first_lane()
            if lane is None:
                return
            if lane.first() is not None:
                self.bury(lane.pop(), Reason.MAXLEN)

    def bring_back(self, now_ms: int) -> None:
        """Make entries ready whose delay is over; if there are very many, a part of them."""
        for _ in range(RETURNED_AT_A_TIME_MAX):
            entry = self.retry.take_due(now_ms)
            if entry is None:
                return
            self.budget.left -= RETURN_WORK
            self.make_ready(entry)
            if self.groups is not None:
                self.groups.delay(entry, -1)

    def next_due(self) -> int:
        """When the next message expires or returns; NONE if none does."""
        due_ms = self.retry.next_due()
        for lane in self.queue.lanes:
            expiry_ms = lane.next_expiry()
            if expiry_ms != NONE:
                due_ms = _earlier(due_ms, expiry_ms)
            head = lane.first() if self.ttl_ms >= 0 else None
            if head is not None:
                due_ms = _earlier(due_ms, head.message.time_ms + self.ttl_ms)
        return due_ms

    def come_back(self, due_ms: int) -> None:
        """Have the queue drained at this time; NONE for not at all."""
        appointment = self.appointment
        if due_ms == NONE or (appointment is not None and appointment.due_ms <= due_ms):
            return
        self.timetable.drop(appointment)
        self.appointment = self.timetable.at(due_ms, self.is_due)

    def is_due(self) -> None:
        self.appointment = None
        self.queue.touch()

    # --- consumers come and go ---

    def consumers_changed(self) -> None:
        """Choose the single active consumer: the highest priority, and among equals the first that came."""
        if not self.single_active:
            return
        queue = self.queue
        present = dict.fromkeys(consumer for consumer in queue.consumers if consumer.takes)
        still_there = [consumer for consumer in self.line if consumer in present]
        self.line = list(dict.fromkeys([*still_there, *present]))
        active = max(self.line, key=lambda consumer: consumer.priority, default=None)
        if active is not self.active:
            self.active = active
            tag = None if active is None else active.tag
            self.events.emit(ActiveConsumerChanged(queue.vhost, queue.name, tag))

    def consumer_is_gone(self, consumer: Consumer) -> None:
        if self.groups is not None:
            self.groups.consumer_is_gone(consumer)
        self.consumers_changed()
        self.used()

    def used(self) -> None:
        self.lifetime.begin_anew()

    # --- all of it ---

    def clear(self) -> list[Entry]:
        """The queue is purged: return the messages that wait for their retry, to be forgotten."""
        if self.groups is not None:
            self.queue.surroundings.turns.spread(self.groups.clear())
        return self.retry.take_all()

    def forgetting(self, entries: list[Entry]) -> Iterator[int]:
        """Forget these entries step by step, yielding the cost of each step."""
        queue, groups = self.queue, self.groups
        while entries:
            entry = entries.pop()
            queue.forget(entry)
            if groups is not None:
                groups.delay(entry, -1)
            yield GONE_WORK

    def end(self) -> None:
        """The queue is deleted."""
        self.timetable.drop(self.appointment)
        self.lifetime.end()
        if self.seen is not None:
            self.seen.delete()
        self.views = None  # type: ignore[assignment]  # views refer to this, too
        self.groups = None  # groups refer back to this rulebook

    def restored(self) -> None:
        """The queue has messages from an earlier run."""
        self.retry.restored()
        self.queue.touch()

    def release_memory(self) -> None:
        self.retry.take_all()
        if self.groups is not None:
            for _ in self.groups.clear():
                pass


def _or_none(limit: int | None) -> int:
    return NONE if limit is None else limit


def _earlier(due_ms: int, other_ms: int) -> int:
    """The earlier of two times, the first of which may be NONE."""
    return other_ms if due_ms == NONE or other_ms < due_ms else due_ms
