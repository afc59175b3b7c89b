"""Message groups: messages with the same value of a header are delivered in order, and to one consumer at a
time.

A group is locked while messages of it are out: its next messages go to the same consumer, or wait until that
consumer can take them. When the last message that is out is settled, the group is free for any consumer. So
groups spread over the consumers by themselves, also when consumers come and go.

A walk over the ready entries offers each to its group's consumer. An entry that cannot be delivered is passed
over: it stays in the ready list, and is also put into its group's `waiting`.

    walked up to here ─────────────v
    ready    a1  b1  a2  c1  b2    a3  c2  …
             └ all of these were passed over

A group with waiting entries stands in one of these places, so that a turn looks only at groups that it can
serve, however many there are:

    free            groups without an owner: any consumer may have them
    owned[consumer] groups that this consumer owns; they wait until it can take more
    nowhere         closed groups: nobody can get their messages now
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Iterator

from warren.amqp.traits import header_of
from warren.broker.consumer import Consumer
from warren.broker.entry import Entry
from warren.broker.lane import Lane
from warren.broker.ruled_queue import Judge, RuledQueue
from warren.broker.turns import TooMuchForATurn

AHEAD_MAX = 100_000  # with so many entries passed over, no more are read from behind
STEPS_AT_A_TIME_MAX = 2_000  # entries that are looked at before it is other queues' turn
STEP_WORK = 8  # units of work for each entry, or group, that is looked at
CLEARED_FOR_A_UNIT = 20  # entries that are purged from a group cost a unit of work


class Group:
    """The messages with one value of the header that are out, delayed or passed over."""

    __slots__ = ("delayed", "key", "lent", "out", "owner", "place", "waiting")

    def __init__(self, key: object) -> None:
        self.key = key  # the value of the header; for a message without it, its own position and priority
        self.owner: Consumer | None = None  # the consumer that has messages of the group, if any are out
        self.out = 0  # how many messages are out
        self.lent = False  # whether they are out by basic.get, whose client gets no more of them
        self.delayed = 0  # how many messages wait for a retry; meanwhile the others wait for them
        self.waiting: deque[Entry] = deque()  # ready entries that were passed over, in order
        self.place: dict[object, Group] | None = None  # `free` or one of `owned`; None for nowhere

    def __repr__(self) -> str:
        return f"<Group {self.key!r}: {self.out} out with {self.owner!r}, {len(self.waiting)} waiting>"

    @property
    def is_closed(self) -> bool:
        """Whether nobody can get messages of the group now."""
        return self.lent or self.delayed > 0 or (self.owner is not None and self.owner.cancelled)

    @property
    def is_free(self) -> bool:
        return self.owner is None and not self.is_closed

    @property
    def is_idle(self) -> bool:
        return not self.out and not self.delayed and not self.waiting

    def wait(self, entry: Entry) -> None:
        waiting = self.waiting
        if not waiting or waiting[-1].position < entry.position:
            waiting.append(entry)
        else:
            waiting.insert(bisect(waiting, entry.position, key=lambda other: other.position), entry)

    def was_purged(self) -> None:
        """The entries that wait are in the queue no more."""
        self.waiting.clear()
        self.place = None


class Groups:
    """The groups of one queue."""

    def __init__(self, header: str, queue: RuledQueue, book: Judge) -> None:
        self.header = header.encode()  # the name of the header that names the group
        self.queue = queue
        self.book = book
        self.budget = queue.surroundings.turns.budget
        self.known: dict[object, Group] = {}  # all groups that have messages out, delayed or waiting
        self.purged: dict[object, Group] = {}  # those of before a purge that nobody has asked for since
        self.free: dict[object, Group] = {}  # those of them that any consumer may have
        self.owned: dict[Consumer, dict[object, Group]] = {}  # those that wait for their owner
        self.walked: dict[int, int] = {}  # by level of priority: the position that the walk has come to
        self.last: dict[int, Entry | None] = {}  # the entry there, or if that was taken, the one before it
        self.passed = 0  # how many entries wait, in all groups
        self.steps = 0  # how many more entries may be looked at before it is other queues' turn

    def group_of(self, entry: Entry) -> Group:
        """The group of an entry. A message without the header is a group of its own."""
        value = header_of(entry.message.properties, self.header)
        key = (entry.position, entry.message.priority) if value is None else value
        group = self.known.get(key)
        if group is None:
            group = self.purged.pop(key, None)
            if group is None:
                group = Group(key)
            else:
                group.was_purged()
            self.known[key] = group
        return group

    def _stand(self, group: Group) -> None:
        """Move a group that has changed to the place where it belongs."""
        place = self._place_of(group)
        if group.place is not place:
            if group.place is not None:
                group.place.pop(group.key, None)
            if place is not None:
                place[group.key] = group
            group.place = place

    def _place_of(self, group: Group) -> dict[object, Group] | None:
        if not group.waiting or group.is_closed:
            return None
        return self.free if group.owner is None else self.owned.setdefault(group.owner, {})

    # --- what can go out ---

    def drain(self) -> None:
        """Deliver: first entries that were passed over, then on from where the walk has come to."""
        self.steps = STEPS_AT_A_TIME_MAX
        for consumer in list(self.owned):
            if self.steps > 0 and self.book.is_active(consumer) and consumer.can_take(0):
                groups = self.owned.pop(consumer)
                self.owned[consumer] = groups  # at the end: the next turn begins with others
                self._serve_all(groups)
                if not groups:
                    del self.owned[consumer]
        self._serve_all(self.free)
        for lane in reversed(self.queue.lanes):
            if not self._walk(lane):
                break
        if self.budget.draining <= 0:
            self.queue.touch()  # the next turn has another budget for deliveries
        elif self.steps <= 0:
            self.book.go_on_soon()

    def _serve_all(self, groups: dict[object, Group]) -> None:
        """Serve the groups of one place, until one of them cannot be served."""
        while groups and self.steps > 0:
            if not self._serve(next(iter(groups.values()))):
                return

    def _serve(self, group: Group) -> bool:
        """Deliver a group's waiting entries, as far as consumers can take them. False if none could be."""
        served = False
        while self.steps > 0 and not group.is_closed:
            entry = self._first_waiting(group)
            if entry is None:
                return True
            if not self._offer(entry, group.owner):
                return served
            self._drop_waiting(group)
            served = True
        return True

    def take_free(self) -> Entry | None:
        """For basic.get: take the first entry of a free group out of its lane."""
        while self.free:
            group = next(iter(self.free.values()))
            entry = self._first_waiting(group)
            if entry is not None:
                self._drop_waiting(group)
                return self._take_of(group, entry)
        self.steps = STEPS_AT_A_TIME_MAX
        for lane in reversed(self.queue.lanes):
            while (entry := self._next_unseen(lane)) is not None:
                group = self.group_of(entry)
                if group.is_free and not group.waiting:
                    return self._take_of(group, entry)
                self._pass_over(lane, entry, group)
                if not self._has_steps():
                    raise TooMuchForATurn
        return None

    def _has_steps(self) -> bool:
        """Charge for an entry that was looked at. Return whether there are steps left for another."""
        self.steps -= 1
        self.budget.left -= STEP_WORK
        return self.steps > 0

    def _take_of(self, group: Group, entry: Entry) -> Entry:
        self._take(entry)
        self.forget_if_idle(group)
        return entry

    def lend(self, entry: Entry) -> None:
        """An entry goes out by basic.get: nobody gets more of its group until the entry is settled."""
        self._goes_out(entry, None)

    def _first_waiting(self, group: Group) -> Entry | None:
        """A group's next entry among those that were passed over, if any of them is still ready."""
        while group.waiting:
            entry = group.waiting[0]
            if self.queue.lane_of(entry.message).is_ready(entry):
                return entry
            self._drop_waiting(group)
        self.forget_if_idle(group)
        return None

    def _drop_waiting(self, group: Group) -> None:
        group.waiting.popleft()
        self.passed -= 1
        if not group.waiting:
            self._stand(group)

    def _walk(self, lane: Lane) -> bool:
        """Go on with the walk. False if it did not reach the end of the lane, because no consumer can take
        anything, or the steps are used up.
        """
        while (entry := self._next_unseen(lane)) is not None:
            if self.steps <= 0:
                return False
            group = self.group_of(entry)
            blocked = group.is_closed or bool(group.waiting)
            if not blocked and self._offer(entry, group.owner):
                self.forget_if_idle(group)
                continue
            if not blocked and group.owner is None:
                self.forget_if_idle(group)
                return False
            self._has_steps()
            self._pass_over(lane, entry, group)
        return True

    def _next_unseen(self, lane: Lane) -> Entry | None:
        """The next entry of a lane behind the walk, read from behind if it is not ready yet."""
        entry = self._behind_walked(lane)
        if entry is None and self.passed < AHEAD_MAX and lane.may_read_on():
            lane.read_on()
            entry = self._behind_walked(lane)
        return entry

    def _behind_walked(self, lane: Lane) -> Entry | None:
        return lane.next_ready(self.last.get(lane.level), self.walked.get(lane.level, 0))

    def _pass_over(self, lane: Lane, entry: Entry, group: Group) -> None:
        self.walked[lane.level] = entry.position
        self.last[lane.level] = entry
        self._wait(group, entry)

    def _wait(self, group: Group, entry: Entry) -> None:
        group.wait(entry)
        self.passed += 1
        self._stand(group)

    def _offer(self, entry: Entry, owner: Consumer | None) -> bool:
        """Deliver an entry to the group's owner, or without one to the next consumer that can take it. Return
        whether the entry has left.
        """
        book = self.book
        self._has_steps()
        if book.is_unfit(entry):
            return self._send_away(entry)
        consumer = book.next_consumer(entry.size) if owner is None else owner
        if consumer is None or not consumer.can_take(entry.size) or not book.is_active(consumer):
            return False
        self._take(entry)
        if not consumer.no_ack:
            self._goes_out(entry, consumer)
        self.queue.deliver(entry, consumer)
        if self.budget.draining <= 0:
            self.steps = 0
        return True

    def _send_away(self, entry: Entry) -> bool:
        """Have the rulebook send an unfit entry away, unless that is too much for this turn (False)."""
        if self.book.room <= 0:
            return False
        self._take(entry)
        self.book.send_away(entry)
        return True

    def _take(self, entry: Entry) -> None:
        """Take an entry out of its lane; it was passed over, or is the next one of the walk."""
        lane = self.queue.lane_of(entry.message)
        if entry.position > self.walked.get(lane.level, 0):
            self.walked[lane.level] = entry.position
            self.last[lane.level] = entry.before
        elif self.last.get(lane.level) is entry:
            self.last[lane.level] = entry.before
        lane.remove(entry)

    # --- what is out ---

    def _goes_out(self, entry: Entry, consumer: Consumer | None) -> None:
        group = self.group_of(entry)
        group.out += 1
        group.owner = consumer
        group.lent = consumer is None
        self._stand(group)

    def came_back(self, entry: Entry) -> None:
        """An entry is ready again, at its old place, which the walk has passed: it waits in its group."""
        self._wait(self.group_of(entry), entry)

    def settled(self, entry: Entry) -> None:
        """An entry is not out any more."""
        group = self.group_of(entry)
        group.out -= 1
        if group.out <= 0:
            group.out = 0
            group.owner = None
            group.lent = False
            self._stand(group)
        self.forget_if_idle(group)

    def delay(self, entry: Entry, change: int) -> None:
        """A retry of this entry begins to wait (`change` is 1), or ends (-1)."""
        group = self.group_of(entry)
        group.delayed += change
        self._stand(group)
        self.forget_if_idle(group)

    def consumer_is_gone(self, consumer: Consumer) -> None:
        """The consumer gets no more. Its groups stay locked until it has settled what it has out."""
        for group in self.owned.pop(consumer, {}).values():
            group.place = None

    def clear(self) -> Iterator[int]:
        """The queue was purged: nothing waits any more. Messages that are out stay out; `delay` is called for
        each delayed one that is dropped. What that leaves to do is done step by step, with the cost of each.
        """
        self.purged.update(self.known)
        self.known, self.free, self.owned = {}, {}, {}
        self.passed = 0
        self.walked.clear()
        self.last.clear()
        return self._clearing()

    def _clearing(self) -> Iterator[int]:
        """Forget the groups of before the purge that have nothing out or delayed."""
        while self.purged:
            key, group = self.purged.popitem()
            cost = STEP_WORK + len(group.waiting) // CLEARED_FOR_A_UNIT
            group.was_purged()
            if not group.is_idle:
                self.known[key] = group
            yield cost

    def forget_if_idle(self, group: Group) -> None:
        if group.is_idle:
            self.known.pop(group.key, None)
