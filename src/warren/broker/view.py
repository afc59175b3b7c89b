"""Views: a consumer with `x-selector` or `x-browse` walks through its queue on its own.

It looks at one message after the other, from head to tail, and goes on when more arrive. It takes the
messages that its selector matches; a consumer that browses takes none. In each lane the view knows the
position that it has looked at last. It looks at the ready entries first, and then at the messages behind
them, where they are stored, without making them ready.
"""

from __future__ import annotations

from functools import lru_cache

from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Table
from warren.broker.consumer import Consumer, View
from warren.broker.entry import Entry
from warren.broker.lane import Lane
from warren.broker.location import IN_LOG, IN_OVERFLOW, IN_PACK
from warren.broker.message import Message
from warren.broker.pack import PackBrowser
from warren.broker.ruled_queue import Judge, RuledQueue
from warren.broker.selector import Selector, SelectorError, compile_selector
from warren.broker.store import NOTHING_TO_READ, LogBrowser

LOOKED_AT_MAX = 2_000  # messages, in one turn by all views of a queue
LOOKED_AT_MIN = 20  # by each view that has a share of the turn
LOOK_WORK = 20  # units of work for a message that is looked at
NOTHING = -1
DECODED_CACHED_MAX, DECODED_BYTES_MAX = 2_000, 1_024


@lru_cache(DECODED_CACHED_MAX)
def _decoded(properties: bytes) -> BasicProperties:
    return decode_properties(properties)


def decoded(properties: bytes) -> BasicProperties:
    """A message's properties, which must not be changed: several views look at the same message, and share
    them.
    """
    if len(properties) > DECODED_BYTES_MAX:
        return decode_properties(properties)
    return _decoded(properties)


class QueueView(View):
    """The way through a classic queue of a consumer that selects or browses."""

    def __init__(self, queue: RuledQueue, selector: Selector | None, *, takes: bool) -> None:
        self.selector = selector  # None for all messages
        self.takes = takes  # False for a consumer that browses
        self.budget = queue.surroundings.turns.budget
        self.lanes = [LaneView(lane, self) for lane in reversed(queue.lanes)]  # the highest priority first
        self.left = 0  # how many messages the view may still look at in this turn
        self.tired = False  # whether the view stopped because of that, and has to go on in the next turn

    def begin_turn(self, most: int) -> None:
        """A turn begins, in which the view may look at this many messages."""
        self.left = most
        self.tired = False

    def find(self) -> LaneView | None:
        """Look for the next message that the consumer wants: it is `found` in the lane that is returned. None
        if there is none, or if the view may look no further in this turn.
        """
        for lane in self.lanes:
            lane.find()
            if lane.found is not None:
                return lane
        return None

    def wants(self, entry: Entry) -> bool:
        """Look at a message: whether the consumer wants it."""
        self.left -= 1
        self.budget.left -= LOOK_WORK
        return self.matches(entry.message)

    def matches(self, message: Message) -> bool:
        return self.selector is None or self.selector.matches(decoded(message.properties))

    def is_tired(self) -> bool:
        if self.left <= 0:
            self.tired = True
        return self.tired

    def came_back(self, entry: Entry, level: int) -> None:
        """An entry is ready again. A view that takes messages looks at it again; a browser does not."""
        for lane in self.lanes:
            if lane.level == level:
                lane.came_back(entry.position, look_again=self.takes)

    def was_purged(self) -> None:
        for lane in self.lanes:
            lane.was_purged()

    def end(self) -> None:
        self.lanes.clear()


class LaneView:
    """How far a view has come in one lane, and the message that its consumer wants next."""

    def __init__(self, lane: Lane, view: QueueView) -> None:
        self.lane = lane
        self.level = lane.level
        self.view = view
        self.position = 0  # of the message that was looked at last
        self.until = NOTHING_TO_READ  # the last position to look at
        self.seen_all_of = NOTHING  # the lane's last position when nothing was left to look at
        self.entry: Entry | None = None  # the entry that was looked at last, if it was ready then
        self.stray: Entry | None = None  # the last stray that was found on the way
        self.found: Entry | None = None  # the message that is wanted next
        self.is_listed = False  # whether `found` is in a list of the lane, ready or a stray
        self.location = 0  # where `found` is stored, if it is in no list
        self.pack_browser: PackBrowser | None = None  # these three read what waits behind the ready entries
        self.log_browser: LogBrowser | None = None
        self.overflow_browser: LogBrowser | None = None
        self.browsed: tuple[object, object, object] = (None, None, None)  # the pack and logs that they read

    def begin(self, above: int) -> None:
        """Look only at the messages beyond this position that are there now."""
        self.position = above
        self.until = self.lane.last_position()

    def find(self) -> None:
        """Look on until a message is wanted. A message that was found before and not taken is looked at
        again.
        """
        self.found = None
        while self.seen_all_of != self.lane.last_position() and not self.view.is_tired():
            entry = self.next_entry()
            if entry is None or entry.position > self.until:
                self.seen_all_of = self.lane.last_position()
                return
            if self.view.wants(entry):
                self.found = entry
                return
            self.step(entry)

    def next_entry(self) -> Entry | None:
        """The next message to look at, ready or behind. A long way to it counts as looks at messages."""
        budget = self.view.budget
        before = budget.left
        entry = self.lane.next_ready(self.entry, self.position)
        self.is_listed = entry is not None
        if entry is None:
            entry = self.next_behind()
        self.view.left -= (before - budget.left) // LOOK_WORK
        return entry

    def step(self, entry: Entry) -> None:
        """The view is done with an entry: go on behind it."""
        self.position = entry.position
        self.entry = entry if self.lane.is_ready(entry) else None

    def came_back(self, position: int, *, look_again: bool) -> None:
        """An entry is ready again at this position."""
        self.seen_all_of = NOTHING
        if look_again and position <= self.position:
            self.position = position - 1
            self.entry = None

    def was_purged(self) -> None:
        """The queue was purged: the entries that this view knows are in no list any more."""
        self.entry = self.stray = self.found = None

    def next_behind(self) -> Entry | None:
        """The next message that waits behind the ready entries, as an entry: of all places where messages
        wait, the one with the lowest position.
        """
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
        stray = self.stray = self.lane.next_stray(self.stray, self.position)
        if stray is not None and stray.position < position:
            self.is_listed = True
            return stray
        if position == NOTHING_TO_READ or position > self.lane.released:
            return None
        if position == packed:
            return self.made(self.pack_browser, position, IN_PACK)
        if position == stored:
            return self.made(self.log_browser, position, IN_LOG)
        return self.made(self.overflow_browser, position, IN_OVERFLOW)

    def made(self, browser: PackBrowser | LogBrowser | None, position: int, where: int) -> Entry:
        assert browser is not None, "it has just given the position"
        message = browser.read()
        self.location = browser.location | where
        return self.lane.made(message, position, self.location)

    def open_browsers(self) -> None:
        """Browse the pack and logs that the lane has now; a purge gives the lane new ones."""
        sources = self.lane.sources_behind()
        if self.browsed != sources:
            self.browsed = sources
            self.pack_browser, self.log_browser, self.overflow_browser = self.lane.browse()

    def take(self) -> Entry | None:
        """Take the message that was found out of the lane; None if it cannot be read any more."""
        entry = self.found
        assert entry is not None, "something was found"
        self.found = None
        if self.is_listed:
            self.position = entry.position
            if self.lane.is_ready(entry):
                self.entry = entry.before
            else:
                self.entry, self.stray = None, entry.before
            self.lane.remove(entry)
            return entry
        self.step(entry)
        return self.lane.take_out(entry.position, self.location, entry.message.time_ms)

    def look(self) -> Entry:
        """A copy of the entry that was found, to be shown. The message stays in the lane."""
        entry = self.found
        assert entry is not None, "something was found"
        self.found = None
        self.step(entry)
        shown = Entry(entry.message, self.lane.queue, 0)
        shown.delivery_count = entry.delivery_count
        return shown


def choose_view(queue: RuledQueue, arguments: Table) -> QueueView | None:
    """The view that `x-browse` and `x-selector` ask for; None for a consumer that gets the next message."""
    browses, text = arguments.get("x-browse", False), arguments.get("x-selector")
    if not isinstance(browses, bool):
        raise PreconditionFailed(f"invalid arg 'x-browse': {browses!r} is not a boolean")
    if "x-selector" not in arguments:
        return QueueView(queue, None, takes=False) if browses else None
    if not isinstance(text, str):
        raise PreconditionFailed(f"invalid arg 'x-selector': {text!r} is not a string")
    if queue.rules.group_header is not None and not browses:
        raise PreconditionFailed("invalid arg 'x-selector': the queue has groups, which go as a whole")
    try:
        return QueueView(queue, compile_selector(text), takes=not browses)
    except SelectorError as error:
        raise PreconditionFailed(f"invalid arg 'x-selector': {error}") from None


def would_take(consumer: Consumer, message: Message) -> bool:
    """Whether the consumer would take this message if it were in the queue."""
    return consumer.view is None or (consumer.takes and view_of(consumer).matches(message))


def view_of(consumer: Consumer) -> QueueView:
    view = consumer.view
    assert isinstance(view, QueueView), "a classic queue makes no others"
    return view


class Views:
    """Serves the consumers of one queue that have views of their own."""

    def __init__(self, queue: RuledQueue, judge: Judge) -> None:
        self.queue = queue
        self.judge = judge
        self.first = 0  # the index of the consumer that gets a share of this turn first

    def serve(self) -> None:
        """Deliver to consumers with views: higher priorities first, equal ones in turn, a message each."""
        queue = self.queue
        self._share_out()
        for priority in sorted({consumer.priority for consumer in queue.choosy}, reverse=True):
            equals = [consumer for consumer in queue.choosy if consumer.priority == priority]
            while equals:
                equals = [consumer for consumer in equals if self._serve(consumer)]
        if any(view_of(consumer).tired for consumer in queue.choosy):
            self.judge.go_on_soon()

    def _share_out(self) -> None:
        """Say how many messages each view may look at in this turn. If there are very many views, only some
        get a share, and the others get theirs in the next turns.
        """
        queue = self.queue
        count, budget = len(queue.choosy), queue.surroundings.turns.budget
        looks = max(min(LOOKED_AT_MAX, budget.left // LOOK_WORK), LOOKED_AT_MIN)
        served = min(count, looks // LOOKED_AT_MIN)
        first, self.first = self.first % count, (self.first + served) % count
        for index, consumer in enumerate(queue.choosy):
            has_share = (index - first) % count < served
            view_of(consumer).begin_turn(looks // served if has_share else 0)

    def _serve(self, consumer: Consumer) -> bool:
        """Deliver one message; return whether to try again, since there may be another one."""
        judge, view = self.judge, view_of(consumer)
        if consumer not in self.queue.choosy or not (judge.is_active(consumer) or not view.takes):
            return False
        found = view.find()
        if found is None or found.found is None or not consumer.can_take(found.found.size):
            return False
        if not view.takes:
            shown = found.look()
            if not judge.is_expired(shown.message):
                consumer.deliver(shown)
            return True
        is_unfit = judge.is_unfit(found.found)
        if is_unfit and judge.room <= 0:
            return False
        entry = found.take()
        if entry is not None and is_unfit:
            judge.send_away(entry)
        elif entry is not None:
            self.queue.deliver(entry, consumer)
        return True
