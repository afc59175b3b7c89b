"""Queues that belong to an exchange. Clients cannot consume from them or publish to them, but an operator
sees how much is in them, and can purge them.

    amq.delayed.<exchange>    messages of a delayed exchange that are not due yet
    amq.dedup.<exchange>      the values that an exchange which drops duplicates has seen
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from warren.amqp.properties import decode_properties
from warren.broker import routing_headers
from warren.broker.consumer import Consumer
from warren.broker.deduplication import Seen
from warren.broker.due_heap import DueHeap
from warren.broker.entry import Entry
from warren.broker.events import MessageScheduled
from warren.broker.exchange.delayed import DELAY, due_ms, negative
from warren.broker.exchange.exchange import Exchange
from warren.broker.lane import HELD_MS, Lane
from warren.broker.message import Message
from warren.broker.outcome import ON_ITS_WAY, STORED
from warren.broker.post import FULL_MS
from warren.broker.queue import Queue
from warren.broker.queue_elsewhere import QueueElsewhere
from warren.broker.store import MessageLog, Store, StreamLog
from warren.broker.timetable import Appointment
from warren.broker.vhost import Vhost

DELAYED, SEEN = "amq.delayed.", "amq.dedup."
RELEASE_WORK = 30  # units of work for a message that is due, without its route and its way into its queues


class InternalQueue(Queue):
    """A queue that no client consumes from."""

    internal = True

    @property
    def consumers(self) -> list[Consumer]:
        return []

    @property
    def is_worked_off(self) -> bool:
        return False

    def drain(self) -> None:
        """Nothing to do: there are no consumers."""


class DelayQueue(InternalQueue):
    """The messages of a delayed exchange, in the order in which they are due. A message that waits is no
    object: the heap knows where it is stored.
    """

    routes_again = True

    def __init__(self, vhost: Vhost, exchange: Exchange, **properties: Any) -> None:
        super().__init__(DELAYED + exchange.name, vhost.name, vhost.surroundings, **properties)
        self.home = vhost  # the vhost itself, for routing; `vhost` is its name
        self.exchange = exchange  # the delayed exchange
        self.lane = Lane(self, self.budget, self.surroundings.memory, self.surroundings.open_overflow, 0)
        self.heap = DueHeap()  # when each message is due, and where in the lane it lies
        self.appointment: Appointment | None = None  # for the first message that is due
        self.releasing = False  # whether messages that are due are being routed

    def publish(self, message: Message) -> int:
        due = due_ms(decode_properties(message.properties).headers, message.time_ms)
        waiting = message.waiting_until(due)
        position, location, on_disk = self.lane.put_aside(waiting)
        self.tally.published += 1
        self.heap.push(due, position, location)
        self._come_back()
        if self.events.died:
            self.events.emit(MessageScheduled(self.vhost, self.exchange.name, message, due))
        return ON_ITS_WAY if on_disk else STORED

    def _come_back(self) -> None:
        """Make an appointment for when the first message is due."""
        if self.heap.count and not self.releasing:
            due = self.heap.next_due()
            if self.appointment is None or self.appointment.due_ms > due:
                self.surroundings.timetable.drop(self.appointment)
                self.appointment = self.surroundings.timetable.at(due, self._is_due)

    def _is_due(self) -> None:
        self.appointment = None
        self.releasing = True
        self.surroundings.turns.spread(self._releasing())

    def _releasing(self) -> Iterator[int]:
        try:
            while self.heap.count and self.heap.next_due() <= self.clock.time_ms:
                self.heap.pop()
                position, location = self.heap.position, self.heap.location
                if position > self.lane.released:
                    self.heap.push(self.clock.time_ms + HELD_MS, position, location)
                    continue
                if self.surroundings.post_is_full():
                    self.heap.push(self.clock.time_ms + FULL_MS, position, location)
                    yield RELEASE_WORK
                    continue
                entry = self.lane.take_out(position, location, self.clock.time_ms)
                if entry is not None:
                    yield from self._release(entry)
                yield RELEASE_WORK
        finally:
            self.releasing = False
            self._come_back()  # even if one message failed, the others are released in time

    def _release(self, entry: Entry) -> Iterator[int]:
        """Route a message that is due. It leaves this queue for good when it is safe in its new queues."""
        message = entry.message
        properties = message.decode_properties()
        more_keys = routing_headers.take_keys(properties)
        headers = dict(properties.headers or {})
        delay = headers.get(DELAY)
        if isinstance(delay, int):
            headers[DELAY] = negative(delay)
            properties.headers = headers
        released = Message(
            message.exchange,
            message.routing_key,
            properties.encode(),
            message.body,
            message.persistent,
            self.clock.time_ms,
            message.died,
        )
        targets = self.home.walk(self.exchange, [message.key, *more_keys], properties)
        return self.surroundings.dead_letters.sending(self, entry, released, targets)

    def forget(self, entry: Entry) -> None:
        if not self.deleted:
            self.lane.done(entry)

    def length(self) -> int:
        return self.lane.length()

    def body_bytes(self) -> int:
        return self.lane.body_bytes()

    @property
    def next_offset(self) -> int:
        return self.lane.position

    def logs(self) -> list[tuple[str, MessageLog | StreamLog]]:
        return [] if self.lane.log is None else [("", self.lane.log)]

    def purge(self) -> tuple[int, Iterator[int]]:
        count = self.length()
        self.heap.clear()
        return count, self.lane.clear(deleted=self.deleted)

    def open(self, store: Store) -> None:
        if not self.durable or self.lane.log is not None:
            return
        opened = store.open_log(self.vhost, self.name)
        if opened is not None:
            self.safety = opened[0].safety
            for due, position, location in self.lane.take_over(*opened):
                self.heap.push(due, position, location)
            self._come_back()

    def detach(self) -> None:
        self.lane.detach()

    def end(self) -> None:
        self.surroundings.timetable.drop(self.appointment)
        self.lane.end()
        del self.exchange.router.waiting_room  # type: ignore[attr-defined]  # it refers back
        super().end()


class SeenQueue(InternalQueue):
    """The values that an exchange has seen, as a queue that can be looked at and purged."""

    def __init__(self, vhost: Vhost, exchange: Exchange, seen: Seen, **properties: Any) -> None:
        super().__init__(SEEN + exchange.name, vhost.name, vhost.surroundings, **properties)
        self.seen = seen

    def length(self) -> int:
        return self.seen.count

    def body_bytes(self) -> int:
        return 0

    @property
    def next_offset(self) -> int:
        return self.seen.position

    def logs(self) -> list[tuple[str, MessageLog | StreamLog]]:
        return [] if self.seen.log is None else [("", self.seen.log)]

    def purge(self) -> tuple[int, Iterator[int]]:
        return self.seen.count, self.seen.clear()

    def open(self, store: Store) -> None:
        if not self.durable or self.seen.log is not None:
            return
        opened = store.open_log(self.vhost, self.name)
        if opened is not None:
            self.seen.restore(*opened)

    def detach(self) -> None:
        self.seen.log = None

    def end(self) -> None:
        self.seen.delete()
        super().end()


def exchange_of(queue: str) -> str | None:
    """The name of the exchange that a queue with this name would belong to; None if it is no such name."""
    for prefix in _KINDS:
        if queue.startswith(prefix):
            return queue.removeprefix(prefix)
    return None


def make_internal_queue(vhost: Vhost, name: str, **named: Any) -> Queue | None:
    """Make the queue of this name for its exchange; None if no exchange has such a queue."""
    for prefix, make in _KINDS.items():
        exchange = _exchange_of(vhost, prefix, name)
        if exchange is not None:
            return make(vhost, exchange, **named)
    return None


def _exchange_of(vhost: Vhost, prefix: str, name: str) -> Exchange | None:
    exchange = vhost.exchanges.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
    return exchange if exchange is not None and name in exchange.internal_queues() else None


def take_in(vhost: Vhost, queue: QueueElsewhere) -> None:
    """If an exchange has a queue of this name, the one that lives on another node takes its place here."""
    for prefix in _KINDS:
        exchange = _exchange_of(vhost, prefix, queue.name)
        if exchange is not None:
            queue.internal = True
            if prefix == DELAYED:
                exchange.router.waiting_room = queue  # type: ignore[attr-defined]  # a `Delayed`


def _delay_queue(vhost: Vhost, exchange: Exchange, **named: Any) -> Queue:
    queue = DelayQueue(vhost, exchange, **named)
    exchange.router.waiting_room = queue  # type: ignore[attr-defined]  # a `Delayed`, by the queue's name
    return queue


def _seen_queue(vhost: Vhost, exchange: Exchange, **named: Any) -> Queue:
    assert exchange.seen is not None, "an exchange that deduplicates has it"
    return SeenQueue(vhost, exchange, exchange.seen, **named)


_KINDS: dict[str, Callable[..., Queue]] = {DELAYED: _delay_queue, SEEN: _seen_queue}
