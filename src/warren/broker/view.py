"""A consumer's own way through a queue: it looks at the messages one after the other, from head to tail and
on, and takes those that it selects, or none, if it only browses.

Where it is, is the position it has looked at last, in each lane. Ready entries come first, then what waits
behind them, which is looked at where it lies.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from warren.amqp.properties import BasicProperties, decode_properties
from warren.broker.entry import Entry
from warren.broker.lane import Lane
from warren.broker.location import IN_LOG, IN_OVERFLOW, IN_PACK
from warren.broker.message import Message
from warren.broker.pack import PackBrowser
from warren.broker.selector import Selector
from warren.broker.store import NOTHING_TO_READ, LogBrowser

if TYPE_CHECKING:
    from warren.broker.consumer import Consumer
    from warren.broker.queue import Queue
    from warren.broker.rulebook import Rulebook

LOOKED_AT_MAX, LOOKED_AT_MIN = 2_000, 20  # in one turn, by all together and by each
LOOK_WORK = 20
NOTHING = -1
DECODED_CACHED_MAX, DECODED_BYTES_MAX = 2_000, 1_024


@lru_cache(DECODED_CACHED_MAX)
def _decoded(properties: bytes) -> BasicProperties:
    return decode_properties(properties)


def decoded(properties: bytes) -> BasicProperties:
    """To be read only: those who select look at the same messages one after the other, and share them."""
    if len(properties) > DECODED_BYTES_MAX:
        return decode_properties(properties)
    return _decoded(properties)


class View:
    """`takes`: what it finds leaves the queue. `tired`: there is more to look at, in the next turn."""

    def __init__(self, queue: Queue, selector: Selector | None, *, takes: bool) -> None:
        self.selector = selector
        self.takes = takes
        self.budget = queue.surroundings.turns.budget
        self.lanes = [LaneView(lane, self) for lane in reversed(queue.lanes)]
        self.left = 0
        self.tired = False

    def begin_turn(self, most: int) -> None:
        """In which it looks at so many at most."""
        self.left = most
        self.tired = False

    def find(self) -> LaneView | None:
        """The next message that it wants is `found` there; None if there is none, at least for now."""
        for lane in self.lanes:
            lane.find()
            if lane.found is not None:
                return lane
        return None

    def wants(self, entry: Entry) -> bool:
        self.left -= 1
        self.budget.left -= LOOK_WORK
        return self.matches(entry.message)

    def matches(self, message: Message) -> bool:
        return self.selector is None or self.selector.matches(decoded(message.properties))

    def is_tired(self) -> bool:
        if self.left <= 0:
            self.tired = True
        return self.tired

    def came_back(self, entry: Entry) -> None:
        """An entry is ready again, at its old place: one that takes wants to look at it."""
        for lane in self.lanes:
            if lane.lane.level == entry.queue.level_of(entry.message):
                lane.seen_all_of = NOTHING
                if self.takes:
                    lane.go_back(entry.position)

    def was_purged(self) -> None:
        """What it has looked at last is in no list any more."""
        for lane in self.lanes:
            lane.entry = lane.stray = lane.found = None

    def end(self) -> None:
        """Let go of all that it had in its hands."""
        self.lanes.clear()


class LaneView:
    """`entry` was looked at last, if it was ready then, and `stray` is the last one that was met. `found` is
    what is wanted next: one that `is_listed` among the entries of the lane, or, with its `location`, waiting
    behind. When nothing was left to look at, the last position was `seen_all_of`.
    """

    def __init__(self, lane: Lane, view: View) -> None:
        self.lane = lane
        self.view = view
        self.position = 0
        self.seen_all_of = NOTHING
        self.entry: Entry | None = None
        self.stray: Entry | None = None
        self.found: Entry | None = None
        self.is_listed = False
        self.location = 0
        self.pack_browser: PackBrowser | None = None
        self.log_browser: LogBrowser | None = None
        self.overflow_browser: LogBrowser | None = None
        self.browsed: tuple[object, object, object] = (None, None, None)

    def find(self) -> None:
        """Look on, until something is wanted. What was found before and not taken is looked at again."""
        self.found = None
        while self.seen_all_of != self.lane.position and not self.view.is_tired():
            entry = self.next_ready()
            self.is_listed = entry is not None
            if entry is None:
                entry = self.next_behind()
            if entry is None:
                self.seen_all_of = self.lane.position
                return
            if self.view.wants(entry):
                self.found = entry
                return
            self.step(entry)

    def step(self, entry: Entry) -> None:
        """This one has been dealt with."""
        self.position = entry.position
        self.entry = entry if self.lane.is_ready(entry) else None

    def go_back(self, position: int) -> None:
        if position <= self.position:
            self.position = position - 1
            self.entry = None

    def next_ready(self) -> Entry | None:
        ready = self.lane.ready
        entry = self.entry
        if entry is not None and (entry.behind is not None or ready.tail is entry):
            return entry.behind
        return ready.first_beyond(self.position, None)

    def next_behind(self) -> Entry | None:
        if not self.lane.has_behind():
            return None
        self.open_browsers()
        stored = packed = overflowed = NOTHING_TO_READ
        if self.log_browser is not None:
            stored = self.log_browser.next_position(self.position)
        if self.pack_browser is not None:
            packed = self.pack_browser.next_position(self.position)
        if self.overflow_browser is not None:
            overflowed = self.overflow_browser.next_position(self.position)
        position = min(stored, packed, overflowed)
        stray = self.next_stray()
        if stray is not None and stray.position < position:
            self.is_listed = True
            return stray
        if position == NOTHING_TO_READ:
            return None
        if position == packed:
            return self.made(self.pack_browser, position, IN_PACK)
        if position == stored:
            return self.made(self.log_browser, position, IN_LOG)
        return self.made(self.overflow_browser, position, IN_OVERFLOW)

    def next_stray(self) -> Entry | None:
        """Found from the one before, so that to walk over very many costs no more than their number."""
        strays, last = self.lane.strays, self.stray
        if last is not None and not self.lane.is_stray(last):
            last = None
        self.stray = strays.first_beyond(self.position, last)
        return self.stray

    def made(self, browser: PackBrowser | LogBrowser | None, position: int, where: int) -> Entry:
        assert browser is not None, "it has just given the position"
        message = browser.read()
        self.location = browser.location | where
        return self.lane.made(message, position, self.location)

    def open_browsers(self) -> None:
        """Those of the pack and logs that the lane has now; a purge gives it others."""
        lane = self.lane
        have = (lane.packed, lane.log, lane.overflow)
        if self.browsed != have:
            self.browsed = have
            self.pack_browser = PackBrowser(lane.packed)
            self.log_browser = None if lane.log is None else lane.log.browse()
            self.overflow_browser = None if lane.overflow is None else lane.overflow.browse()

    def take(self) -> Entry | None:
        """What was found leaves the lane; None if it could not be had."""
        entry = self.found
        assert entry is not None, "something was found"
        self.found = None
        if self.is_listed:
            self.position = entry.position
            self.entry = entry.before if self.lane.is_ready(entry) else None
            self.lane.remove(entry)
            return entry
        self.step(entry)
        return self.lane.take_out(entry.position, self.location, entry.message.time_ms)

    def look(self) -> Entry:
        """What was found, to be shown: it stays where it is."""
        entry = self.found
        assert entry is not None, "something was found"
        self.found = None
        self.step(entry)
        shown = Entry(entry.message, self.lane.queue, 0)
        shown.delivery_count = entry.delivery_count
        return shown


def takes(consumer: Consumer) -> bool:
    """Whether messages leave the queue by it: all but those who browse."""
    view = consumer.view
    return not isinstance(view, View) or view.takes


def would_take(consumer: Consumer, message: Message) -> bool:
    """Whether it would take this one if it were there."""
    view = consumer.view
    return not isinstance(view, View) or (view.takes and view.matches(message))


def view_of(consumer: Consumer) -> View:
    view = consumer.view
    assert isinstance(view, View), "it is one of those that choose"
    return view


def serve_views(queue: Queue, book: Rulebook) -> None:
    """Those who choose get one each in turn, of equal priority, and the higher ones first."""
    begin_views(queue, book)
    for priority in sorted({consumer.priority for consumer in queue.choosy}, reverse=True):
        equals = [consumer for consumer in queue.choosy if consumer.priority == priority]
        while equals:
            equals = [consumer for consumer in equals if _serve(queue, book, consumer)]
    if any(view_of(consumer).tired for consumer in queue.choosy):
        book.go_on_soon()


def begin_views(queue: Queue, book: Rulebook) -> None:
    """What all of them may look at in this turn is shared out; of very many only some get a share of it, and
    the others in the next turns.
    """
    count, budget = len(queue.choosy), queue.surroundings.turns.budget
    looks = max(min(LOOKED_AT_MAX, budget.left // LOOK_WORK), LOOKED_AT_MIN)
    served = min(count, looks // LOOKED_AT_MIN)
    first, book.views_served = book.views_served % count, (book.views_served + served) % count
    for index, consumer in enumerate(queue.choosy):
        has_share = (index - first) % count < served
        view_of(consumer).begin_turn(looks // served if has_share else 0)


def _serve(queue: Queue, book: Rulebook, consumer: Consumer) -> bool:
    """Whether it may get another one."""
    view = view_of(consumer)
    if not book.may_have(consumer):
        return False
    found = view.find()
    if found is None or found.found is None or not consumer.can_take(found.found.size):
        return False
    if not view.takes:
        shown = found.look()
        if not book.is_over(shown.message, book.clock.time_ms):
            consumer.deliver(shown)
        return True
    is_unfit = book.is_unfit(found.found)
    if is_unfit and book.room <= 0:
        return False
    entry = found.take()
    if entry is not None:
        book.send_away(entry) if is_unfit else queue.deliver(entry, consumer)
    return True
