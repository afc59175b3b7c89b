"""Letters: messages that a node itself publishes to queues that other nodes lead. This is the sender's part.

All letters of a node for one queue are a line. They are numbered from 1 on, and go to whoever leads the queue
in this order, so many at a time. The leader says up to which number they are done with: safe in the queue, or
refused by it. Until then the sender keeps them, and whoever wrote them keeps what they were made of.

If the link ends, another node leads, nothing is heard for long, or the other node does not lead the queue (or
not yet), the line is sent again from the first letter that is not done with. The receiver knows the lines
that it gets (`letter_inbox.py`), and leaves out what it has. So no letter is lost or overtakes another one,
and one comes twice only when the queue's leader has changed.

The owner calls a method for all that happens, with the time, and sends what `take_sends` gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from warren.broker.message import Message
from warren.cluster.config import StoreId
from warren.cluster.messages import Letter, Letters, LettersDone

IN_FLIGHT_MAX = 4_000  # letters on their way to one node
IN_FLIGHT_BYTES_MAX = 8 * 1024 * 1024  # of their bodies and properties, and one letter
FRAME_LETTERS_MAX = 200
FRAME_BYTES_MAX = 1024 * 1024  # and one letter
WAITING_MAX = 100_000  # letters of a node; with more, those that can wait in their queues do
WAITING_BYTES_MAX = 128 * 1024 * 1024
AGAIN_SECONDS_MIN, AGAIN_SECONDS_MAX = 0.05, 2.0  # until a line is sent again that its receiver did not take
SILENCE_SECONDS_MAX = 10.0  # then it is sent again

Waiter: TypeAlias = tuple[int, Callable[[int], None], Callable[[], None] | None]
"""Who waits for a letter, by its number, and whom to call if the line is closed before."""


class Way(NamedTuple):
    """Who leads a queue."""

    store: StoreId
    epoch: int


class Line:
    """The letters for one queue: a `warren.broker.post.Postbox`."""

    __slots__ = (
        "again_at", "again_seconds", "behind", "heard_at", "highest", "id", "name", "queue", "sender", "sent",
        "settled", "unsettled", "vhost", "waiters", "way",
    )  # fmt: skip

    def __init__(self, sender: LetterSender, line_id: int, queue: int, vhost: str, name: str) -> None:
        self.sender = sender
        self.id = line_id  # by chance, so that no line ever has the number of another
        self.queue = queue  # its number in the cluster
        self.vhost = vhost
        self.name = name
        self.unsettled: deque[Message] = deque()  # the letters behind the number `settled`
        self.settled = 0  # all letters up to this number are done with
        self.sent = 0  # all letters up to this number are on their way, or done with
        self.highest = 0  # the number of the last letter that was ever sent
        self.way: Way | None = None  # where they went
        self.heard_at = 0.0  # when there was the last progress
        self.again_at = 0.0  # nothing is sent before
        self.again_seconds = AGAIN_SECONDS_MIN  # to wait the next time
        self.waiters: deque[Waiter] = deque()  # in order
        self.behind = False  # clients do not publish here, so nobody has to be held back

    def __repr__(self) -> str:
        return f"<Line to {self.name!r} in {self.vhost!r}: {len(self.unsettled)} from {self.settled + 1} on>"

    @property
    def gathering(self) -> int:
        """The number of the last letter."""
        return self.settled + len(self.unsettled)

    def put(self, message: Message) -> None:
        self.unsettled.append(message)
        self.sender.has_come(self, message)

    def when_safe(self, callback: Callable[[int], None], ended: Callable[[], None] | None = None) -> None:
        """When all letters that were put until now are done with, call back with the number of the last."""
        if self.unsettled:
            self.waiters.append((self.gathering, callback, ended))
        else:
            number = self.settled
            self.sender.later(lambda: callback(number))

    def when_ready(self, callback: Callable[[], None]) -> None:
        raise AssertionError("it is never behind")

    def settle(self, up_to: int) -> list[Message]:
        """Letters up to this number are done with: return them."""
        done = [self.unsettled.popleft() for _ in range(up_to - self.settled)]
        self.settled = up_to
        self.sent = max(self.sent, up_to)
        return done

    def tell(self) -> None:
        """Call those who waited for what is done with."""
        while self.waiters and self.waiters[0][0] <= self.settled:
            number, callback, _ = self.waiters.popleft()
            callback(number)

    def close(self) -> None:
        self.sender.forget(self)
        waiters, self.waiters = self.waiters, deque()
        for _, _, ended in waiters:
            if ended is not None:
                self.sender.later(ended)


class InFlight:
    """What is on its way to one node."""

    __slots__ = ("bytes", "letters", "stopped")

    def __init__(self) -> None:
        self.letters = 0
        self.bytes = 0
        self.stopped: dict[Line, None] = {}  # lines that have more, for which there is no room

    @property
    def has_room(self) -> bool:
        return self.letters < IN_FLIGHT_MAX and self.bytes < IN_FLIGHT_BYTES_MAX


class LetterSender:
    def __init__(
        self,
        find: Callable[[Line], Way | None],
        new_line: Callable[[], int],
        later: Callable[[Callable[[], None]], None],
        has_work: Callable[[], None],
    ) -> None:
        self.find = find  # who leads a line's queue now; None if nobody does
        self.new_line = new_line  # makes the id of a line, by chance
        self.later = later  # calls back in a turn to come
        self.has_work = has_work  # says that `flush` should be called in this turn, or soon
        self.lines: dict[int, Line] = {}  # by id
        self.waiting: dict[Line, None] = {}  # lines with letters that are not done with
        self.fresh: dict[Line, None] = {}  # those of them that got letters since the last flush
        self.links: set[StoreId] = set()  # nodes that can be spoken to
        self.in_flight: dict[StoreId, InFlight] = {}
        self.letters = 0  # that are not done with
        self.bytes = 0  # of them
        self.sends: list[tuple[StoreId, Letters]] = []

    @property
    def is_full(self) -> bool:
        return self.letters >= WAITING_MAX or self.bytes >= WAITING_BYTES_MAX

    def open(self, queue: int, vhost: str, name: str) -> Line:
        """A line for the queue of this number."""
        line = Line(self, self.new_line(), queue, vhost, name)
        self.lines[line.id] = line
        return line

    def has_come(self, line: Line, message: Message) -> None:
        self.letters += 1
        self.bytes += size_of(message)
        self.waiting[line] = None
        if not self.fresh:
            self.has_work()
        self.fresh[line] = None

    def forget(self, line: Line) -> None:
        self._stop(line)
        self._count_out(line.settle(line.gathering))
        del self.lines[line.id]
        self.waiting.pop(line, None)
        self.fresh.pop(line, None)

    def take_sends(self) -> list[tuple[StoreId, Letters]]:
        """What has to be sent now, in order."""
        sends, self.sends = self.sends, []
        return sends

    # --- what happens ---

    def flush(self, now: float) -> None:
        """Send what has come."""
        fresh, self.fresh = self.fresh, {}
        for line in fresh:
            self._go_on(line, now)

    def tick(self, now: float) -> None:
        """Time has passed: look for leaders, and send again what nobody answers."""
        for line in list(self.waiting):
            if line.sent > line.settled and now - line.heard_at >= SILENCE_SECONDS_MAX:
                self._stop(line)
            self._go_on(line, now)

    def link_up(self, store: StoreId, now: float) -> None:
        """A node can be spoken to, over a new link: what went over an older one may be lost."""
        self.link_down(store)
        self.links.add(store)
        for line in list(self.waiting):
            self._go_on(line, now)

    def link_down(self, store: StoreId) -> None:
        self.links.discard(store)
        for line in self.waiting:
            if line.way is not None and line.way.store == store:
                self._stop(line)

    def done(self, store: StoreId, answer: LettersDone, now: float) -> None:
        """A node says what it has done with a line. Whoever says that letters are safe is right, also if
        another node leads by now.
        """
        line = self.lines.get(answer.line)
        if line is None or answer.up_to > line.highest:
            return
        if answer.up_to > line.settled:
            line.heard_at = now
            line.again_seconds = AGAIN_SECONDS_MIN
            self._leave(line, answer.up_to)
            self._count_out(line.settle(answer.up_to))
            if not line.unsettled:
                del self.waiting[line]
            line.tell()
        if not answer.is_here and line.way is not None and line.way.store == store:
            self._stop(line)
            line.again_at = now + line.again_seconds
            line.again_seconds = min(2 * line.again_seconds, AGAIN_SECONDS_MAX)
        self._use_room(store, now)

    # --- a line ---

    def _go_on(self, line: Line, now: float) -> None:
        """Send what may be sent of a line."""
        way = self.find(line)
        if way != line.way:
            self._stop(line)
            line.way = way
            line.again_at, line.again_seconds = now, AGAIN_SECONDS_MIN
        if way is None or way.store not in self.links or now < line.again_at:
            return
        flight = self.in_flight.setdefault(way.store, InFlight())
        if line.sent == line.settled:
            line.heard_at = now
        while line.sent < line.gathering and flight.has_room:
            self._send_some(line, way.store, flight)
        if line.sent < line.gathering:
            flight.stopped[line] = None

    def _send_some(self, line: Line, store: StoreId, flight: InFlight) -> None:
        first, letters, size = line.sent + 1, [], 0
        for index in range(line.sent - line.settled, len(line.unsettled)):
            message = line.unsettled[index]
            letters.append(
                Letter(
                    message.exchange,
                    message.routing_key,
                    message.properties,
                    message.body,
                    message.persistent,
                    message.died,
                )
            )
            size += size_of(message)
            if len(letters) == FRAME_LETTERS_MAX or size >= FRAME_BYTES_MAX:
                break
        flight.letters += len(letters)
        flight.bytes += size
        line.sent += len(letters)
        line.highest = max(line.highest, line.sent)
        self.sends.append(
            (store, Letters(line.id, line.queue, line.vhost, line.name, line.settled, first, tuple(letters)))
        )

    def _stop(self, line: Line) -> None:
        """Nothing of a line is on its way any more."""
        self._leave(line, line.sent)
        line.sent = line.settled
        if line.way is not None and line.way.store in self.in_flight:
            self.in_flight[line.way.store].stopped.pop(line, None)

    def _leave(self, line: Line, up_to: int) -> None:
        """What was sent up to this number is not on its way any more."""
        flight = None if line.way is None else self.in_flight.get(line.way.store)
        if flight is not None:
            for index in range(min(up_to, line.sent) - line.settled):
                flight.letters -= 1
                flight.bytes -= size_of(line.unsettled[index])

    def _count_out(self, done: list[Message]) -> None:
        self.letters -= len(done)
        self.bytes -= sum(map(size_of, done))

    def _use_room(self, store: StoreId, now: float) -> None:
        """There may be room for lines that were stopped: each sends what it can, in turn."""
        flight = self.in_flight.get(store)
        if flight is None:
            return
        for line in list(flight.stopped):
            if not flight.has_room:
                return
            del flight.stopped[line]
            self._go_on(line, now)


def size_of(message: Message) -> int:
    return len(message.body) + len(message.properties)
