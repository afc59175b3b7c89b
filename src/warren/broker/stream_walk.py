"""The walk through a stream, from an offset to what was its end when the walk began."""

from __future__ import annotations

from warren.amqp.budget import Budget
from warren.broker.entry import Entry
from warren.broker.message import Message
from warren.broker.queue import Queue
from warren.broker.selector import Selector
from warren.broker.store import StreamLog
from warren.broker.stream_offset import OFFSET
from warren.broker.walk import Walk

NOTHING_YET = -1  # what `StreamReader.ready` returns at the end
LOOK_WORK = 40  # units of work for a message that is read


class StreamWalk(Walk):
    def __init__(
        self, stream: Queue, log: StreamLog, selector: Selector | None, above: int, budget: Budget
    ) -> None:
        self.stream = stream
        self.selector = selector  # None for all messages
        self.budget = budget
        self.until = log.safe_position()  # the last position to look at
        self.reader = log.reader(max(above + 1, log.first_position()), None)
        self.left = 0  # how many messages the walk may still look at in this turn
        self.found: Entry | None = None  # a message that is wanted, until it is passed by

    def begin_turn(self, looks: int) -> None:
        self.left = looks

    def find(self) -> Entry | None:
        while self.found is None and self.left > 0 and not self.is_over:
            size = self.reader.ready()
            if size < NOTHING_YET:
                return None
            if size == NOTHING_YET or self.reader.next_position() > self.until:
                self.is_over = True
                return None
            self.left -= 1
            self.budget.left -= LOOK_WORK
            self.found = self._read()
        return self.found

    def _read(self) -> Entry | None:
        """The next message, if it is wanted, without the header in which readers get the offset."""
        message = self.reader.take()
        position = self.reader.next_position() - 1
        if position > self.until:  # all between was dropped, since it was too old
            self.is_over = True
            return None
        properties = message.decode_properties()
        headers = {name: value for name, value in (properties.headers or {}).items() if name != OFFSET}
        properties.headers = headers or None
        if self.selector is not None and not self.selector.matches(properties):
            return None
        stored = Message(
            message.exchange,
            message.routing_key,
            properties.encode(),
            message.body,
            message.persistent,
            message.time_ms,
            message.died,
        )
        return Entry(stored, self.stream, position)

    def pass_by(self) -> None:
        self.found = None
