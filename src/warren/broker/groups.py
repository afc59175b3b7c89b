"""Messages that belong together: those with the same value of a header are delivered in order, and to one
consumer at a time.

A group is locked while messages of it are out: the next ones go to the same consumer, or wait until it can
take them. When the last one is settled the group is anybody's, so that groups spread over consumers, and go
to others when consumers come and go, by themselves.

    walked up to here ─────────────v
    ready    a1  b1  a2  c1  b2    a3  c2  …
             └ each is in its group's `waiting`, since the group could not be served when it was reached
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from warren.amqp.traits import header_of
from warren.broker.entry import Entry

if TYPE_CHECKING:
    from warren.broker.consumer import Consumer
    from warren.broker.lane import Lane
    from warren.broker.queue import Queue
    from warren.broker.rulebook import Rulebook

AHEAD_MAX = 100_000  # entries that may be passed over; beyond that even others wait
PASSED_A_TURN_MAX = 5_000


class Group:
    """`owner` is who has messages of it out, as many as `out`; `lent`: they are out with nobody who could
    get more, such as a basic.get. While some are `delayed`, the rest waits.
    """

    __slots__ = ("delayed", "key", "lent", "out", "owner", "waiting")

    def __init__(self, key: object) -> None:
        self.key = key
        self.owner: Consumer | None = None
        self.out = 0
        self.lent = False
        self.delayed = 0
        self.waiting: list[Entry] = []

    @property
    def is_closed(self) -> bool:
        """Nobody can get anything of it now."""
        return self.lent or self.delayed > 0

    @property
    def is_free(self) -> bool:
        return self.owner is None and not self.is_closed

    @property
    def is_idle(self) -> bool:
        return not self.out and not self.delayed and not self.waiting

    def wait(self, entry: Entry) -> None:
        if self.waiting and self.waiting[-1].position > entry.position:
            insort(self.waiting, entry, key=lambda other: other.position)
        else:
            self.waiting.append(entry)


class Groups:
    """Of one queue. `known` are the groups that are locked or have something waiting, `passed_over` the
    latter, with so many entries as `passed`. The walk has come to `walked` in each lane, and `last` is the
    entry there, or the one before it.
    """

    def __init__(self, header: str, queue: Queue, book: Rulebook) -> None:
        self.header = header.encode()
        self.queue = queue
        self.book = book
        self.known: dict[object, Group] = {}
        self.passed_over: dict[object, Group] = {}
        self.walked: dict[int, int] = {}
        self.last: dict[int, Entry | None] = {}
        self.passed = 0

    def group_of(self, entry: Entry) -> Group:
        """Each message without the header is a group of its own."""
        value = header_of(entry.message.properties, self.header)
        key = (entry.position, entry.message.priority) if value is None else value
        group = self.known.get(key)
        if group is None:
            group = self.known[key] = Group(key)
        return group

    # --- what can go out ---

    def drain(self) -> None:
        """Groups that were passed over first, then on from where the walk has come to."""
        for group in list(self.passed_over.values()):
            while not group.is_closed:
                entry = self._first_waiting(group)
                if entry is None or not self._offer(entry, group.owner):
                    break
                self._drop_waiting(group)
        stop = self.passed + PASSED_A_TURN_MAX
        for lane in reversed(self.queue.lanes):
            if not self._walk(lane, stop):
                return

    def take_free(self) -> Entry | None:
        """For basic.get: the first message of a group that nobody has, out of its lane."""
        for group in list(self.passed_over.values()):
            entry = self._first_waiting(group) if group.is_free else None
            if entry is not None:
                self._drop_waiting(group)
                return self._take_of(group, entry)
        for lane in reversed(self.queue.lanes):
            while (entry := self._next_unseen(lane)) is not None:
                group = self.group_of(entry)
                if group.is_free and not group.waiting:
                    return self._take_of(group, entry)
                self._pass_over(lane, entry, group)
        return None

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
        del group.waiting[0]
        self.passed -= 1
        if not group.waiting:
            self.passed_over.pop(group.key, None)

    def _walk(self, lane: Lane, stop: int) -> bool:
        """Whether it came to the end: else nobody can take anything, or it is enough for this turn."""
        while (entry := self._next_unseen(lane)) is not None:
            if self.passed >= stop:
                self.book.go_on_soon()
                return False
            group = self.group_of(entry)
            blocked = group.is_closed or bool(group.waiting)
            if not blocked and self._offer(entry, group.owner):
                self.forget_if_idle(group)
                continue
            if not blocked and group.owner is None:
                self.forget_if_idle(group)
                return False
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
        self.passed_over[group.key] = group
        self.passed += 1

    def _offer(self, entry: Entry, owner: Consumer | None) -> bool:
        """Deliver it to the one who has its group, or to the next who can take it; whether it is gone."""
        book = self.book
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
        self.forget_if_idle(group)

    def delay(self, entry: Entry, change: int) -> None:
        group = self.group_of(entry)
        group.delayed += change
        self.forget_if_idle(group)

    def consumer_is_gone(self, consumer: Consumer) -> None:
        """What it still has out, it may settle; it gets no more."""
        for group in self.known.values():
            if group.owner is consumer:
                group.owner = None
                group.lent = True

    def clear(self) -> None:
        """The queue was purged: what is out is still out."""
        for group in list(self.known.values()):
            group.waiting.clear()
            group.delayed = 0
            self.forget_if_idle(group)
        self.passed = 0
        self.passed_over.clear()
        self.walked.clear()
        self.last.clear()

    def forget_if_idle(self, group: Group) -> None:
        if group.is_idle:
            self.known.pop(group.key, None)
