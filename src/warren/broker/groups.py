"""Messages that belong together: those with the same value of a header are delivered in order, and to one
consumer at a time.

A group is locked while messages of it are out: the next ones go to the same consumer, or wait until it can
take them. When the last one is settled the group is anybody's, so that groups spread over consumers, and go
to others when consumers come and go, by themselves.

    walked up to here ─────────────v
    ready    a1  b1  a2  c1  b2    a3  c2  …
             └ each is in its group's `waiting`, since the group could not be served when it was reached

Groups with messages that wait stand where the next turn looks for them, so that a turn costs as much as it
delivers, however many groups there are:

    free            groups that any consumer may have
    owned[consumer] groups that this consumer has; they wait until it can take more
    nowhere         closed groups: nobody can get anything of them now
"""

from __future__ import annotations

from bisect import bisect
from collections import deque

from warren.amqp.traits import header_of
from warren.broker.consumer import Consumer
from warren.broker.entry import Entry
from warren.broker.lane import Lane
from warren.broker.ruled_queue import Judge, RuledQueue
from warren.broker.turns import TooMuchForATurn

AHEAD_MAX = 100_000  # entries that may be passed over; beyond that even others wait
STEPS_AT_A_TIME_MAX = 2_000  # entries that are looked at, before other queues have their turn
STEP_WORK = 8


class Group:
    """`owner` is the consumer that has messages of the group out, as many as `out`; `lent`: they are out with
    a client that gets no more, such as one that used basic.get. While some are `delayed`, the rest waits.
    `place` is where the group stands in line, None for nowhere.
    """

    __slots__ = ("delayed", "key", "lent", "out", "owner", "place", "waiting")

    def __init__(self, key: object) -> None:
        self.key = key
        self.owner: Consumer | None = None
        self.out = 0
        self.lent = False
        self.delayed = 0
        self.waiting: deque[Entry] = deque()
        self.place: dict[object, Group] | None = None

    @property
    def is_closed(self) -> bool:
        """Nobody can get anything of it now."""
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


class Groups:
    """Of one queue. `known` are the groups that are locked or have something waiting; so many entries as
    `passed` wait. The walk has come to `walked` in each lane, and `last` is the entry there, or the one
    before it. `steps` are left before other queues have their turn.
    """

    def __init__(self, header: str, queue: RuledQueue, book: Judge) -> None:
        self.header = header.encode()
        self.queue = queue
        self.book = book
        self.budget = queue.surroundings.turns.budget
        self.known: dict[object, Group] = {}
        self.free: dict[object, Group] = {}
        self.owned: dict[Consumer, dict[object, Group]] = {}
        self.walked: dict[int, int] = {}
        self.last: dict[int, Entry | None] = {}
        self.passed = 0
        self.steps = 0

    def group_of(self, entry: Entry) -> Group:
        """Each message without the header is a group of its own."""
        value = header_of(entry.message.properties, self.header)
        key = (entry.position, entry.message.priority) if value is None else value
        group = self.known.get(key)
        if group is None:
            group = self.known[key] = Group(key)
        return group

    def _stand(self, group: Group) -> None:
        """See to it that a group that has changed stands where it belongs."""
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
        """Groups that were passed over first, then on from where the walk has come to."""
        self.steps = STEPS_AT_A_TIME_MAX
        for consumer in list(self.owned):
            if self.steps > 0 and self.book.is_active(consumer) and consumer.can_take(0):
                groups = self.owned.pop(consumer)
                self.owned[consumer] = groups  # behind those that have not had their turn
                self._serve_all(groups)
                if not groups:
                    del self.owned[consumer]
        self._serve_all(self.free)
        for lane in reversed(self.queue.lanes):
            if not self._walk(lane):
                break
        if self.steps <= 0:
            self.book.go_on_soon()

    def _serve_all(self, groups: dict[object, Group]) -> None:
        """Deliver of groups that stand in one place, until one of them cannot be served."""
        while groups and self.steps > 0:
            if not self._serve(next(iter(groups.values()))):
                return

    def _serve(self, group: Group) -> bool:
        """Deliver what waits in a group, as far as its consumer can take it; whether that was something."""
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
        """For basic.get: the first message of a group that nobody has, out of its lane."""
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
        """Whether there is time for another one. It is charged for this one."""
        self.steps -= 1
        self.budget.left -= STEP_WORK
        return self.steps > 0

    def _take_of(self, group: Group, entry: Entry) -> Entry:
        self._take(entry)
        self.forget_if_idle(group)
        return entry

    def lend(self, entry: Entry) -> None:
        """It goes out with basic.get, whose client gets no more of its group until it is settled."""
        self._goes_out(entry, None)

    def _first_waiting(self, group: Group) -> Entry | None:
        """The next entry of a group that was passed over, if it is still there."""
        while group.waiting:
            entry = group.waiting[0]
            if self.queue.lane_of(entry).is_ready(entry):
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
        """Whether it came to the end: else nobody can take anything, or it is enough for now."""
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
        """The next entry of a lane behind those that were passed over."""
        entry = self._behind_walked(lane)
        if entry is None and self.passed < AHEAD_MAX and lane.has_behind():
            lane.read_on()
            entry = self._behind_walked(lane)
        return entry

    def _behind_walked(self, lane: Lane) -> Entry | None:
        last = self.last.get(lane.level)
        if last is not None and lane.is_ready(last):
            return last.behind
        entry, walked = lane.ready.head, self.walked.get(lane.level, 0)
        while entry is not None and entry.position <= walked:
            entry = entry.behind
        return entry

    def _pass_over(self, lane: Lane, entry: Entry, group: Group) -> None:
        self.walked[lane.level] = entry.position
        self.last[lane.level] = entry
        self._wait(group, entry)

    def _wait(self, group: Group, entry: Entry) -> None:
        group.wait(entry)
        self.passed += 1
        self._stand(group)

    def _offer(self, entry: Entry, owner: Consumer | None) -> bool:
        """Deliver it to the one who has its group, or to the next who can take it; whether it is gone."""
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
        return True

    def _send_away(self, entry: Entry) -> bool:
        """Whether there was room for that."""
        if self.book.room <= 0:
            return False
        self._take(entry)
        self.book.send_away(entry)
        return True

    def _take(self, entry: Entry) -> None:
        """Out of its lane, whether it was passed over or is the next one behind those."""
        lane = self.queue.lane_of(entry)
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
        """It is ready again, at its old place, before where the walk has come to."""
        self._wait(self.group_of(entry), entry)

    def settled(self, entry: Entry) -> None:
        """It is not out any more."""
        group = self.group_of(entry)
        group.out -= 1
        if group.out <= 0:
            group.out = 0
            group.owner = None
            group.lent = False
            self._stand(group)
        self.forget_if_idle(group)

    def delay(self, entry: Entry, change: int) -> None:
        group = self.group_of(entry)
        group.delayed += change
        self._stand(group)
        self.forget_if_idle(group)

    def consumer_is_gone(self, consumer: Consumer) -> None:
        """What it still has out, it may settle; it gets no more."""
        for group in self.owned.pop(consumer, {}).values():
            group.place = None

    def clear(self) -> None:
        """The queue was purged: what is out is still out, and whoever forgets what was delayed says so."""
        for group in list(self.known.values()):
            group.waiting.clear()
            group.place = None
            self.forget_if_idle(group)
        self.passed = 0
        self.free.clear()
        self.owned.clear()
        self.walked.clear()
        self.last.clear()

    def forget_if_idle(self, group: Group) -> None:
        if group.is_idle:
            self.known.pop(group.key, None)
