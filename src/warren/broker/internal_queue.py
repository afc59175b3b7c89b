"""Queues that belong to an exchange: nobody consumes from them or publishes to them, but an operator sees
how much is in them, and can purge them.

    amq.delayed.<exchange>    messages of a delayed exchange that are not due yet
    amq.dedup.<exchange>      what an exchange that drops duplicates has seen
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from warren.amqp.properties import decode_properties
from warren.broker.deduplication import Seen
from warren.broker.due_heap import DueHeap
from warren.broker.entry import Entry
from warren.broker.events import MessageScheduled
from warren.broker.exchange.delayed import DELAY, due_ms, negative
from warren.broker.message import Message
from warren.broker.outcome import AFTER_NEXT, ON_ITS_WAY, STORED
from warren.broker.queue import Queue
from warren.broker.session import routing_headers
from warren.broker.store import MessageLog
from warren.broker.timetable import Appointment

if TYPE_CHECKING:
    from warren.broker.exchange.exchange import Exchange
    from warren.broker.vhost import Vhost

DELAYED, SEEN = "amq.delayed.", "amq.dedup."
RELEASE_WORK = 40


class DelayQueue(Queue):
    """Messages in the order in which they are due. Each waits where it is stored, not as an object.
    `releasing`: those that are due are being sent on.
    """

    internal = True

    def __init__(self, vhost: Vhost, exchange: Exchange, **named: Any) -> None:
        super().__init__(DELAYED + exchange.name, vhost.name, vhost.surroundings, **named)
        self.home = vhost
        self.exchange = exchange
        self.heap = DueHeap()
        self.appointment: Appointment | None = None
        self.releasing = False

    def publish(self, message: Message) -> int:
        due = due_ms(decode_properties(message.properties).headers, message.time_ms)
        lane = self.lane
        waiting = Message(
            message.exchange,
            message.routing_key,
            message.properties,
            message.body,
            message.persistent,
            due,
            message.died,
            True,
        )
        lane.position += 1
        on_disk = lane.log is not None and message.persistent
        if lane.log is not None and message.persistent:
            location = lane.log.append(waiting, lane.position, False)
        else:
            location = lane.put_behind(waiting)
        self.heap.push(due, lane.position, location)
        self._come_back()
        if self.surroundings.events.died:
            event = MessageScheduled(self.vhost, self.exchange.name, message, due)
            self.surroundings.events.emit(event)
        return ON_ITS_WAY if on_disk else STORED

    def _come_back(self) -> None:
        """When the first one is due."""
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
                entry = self.lane.take_out(self.heap.position, self.heap.location, self.clock.time_ms)
                if entry is not None:
                    self._release(entry)
                yield RELEASE_WORK
        finally:
            self.releasing = False
            self._come_back()  # whatever happened to one, the others have their time

    def _release(self, entry: Entry) -> None:
        """On to where it was to go; it leaves for good when it is safe there."""
        message = entry.message
        more_keys, raw = routing_headers.take(message.properties)
        properties = decode_properties(raw)
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
        results = [
            queue.publish(released)
            for queue in self.home.walk(self.exchange, [message.key, *more_keys], properties)
        ]
        if ON_ITS_WAY in results or AFTER_NEXT in results:
            self.surroundings.dead_letters.handover.forget_when_safe(self, entry)
        else:
            self.forget(entry)

    def purge(self) -> int:
        self.heap.clear()
        return super().purge()

    def end(self) -> None:
        self.surroundings.timetable.drop(self.appointment)
        del self.exchange.router.waiting_room  # type: ignore[attr-defined]  # they know each other
        super().end()

    def restore(self, log: MessageLog, position: int, level: int = 0) -> None:
        self.lane.log, self.lane.position = log, position
        for due, waiting, location in log.due():
            self.heap.push(due, waiting, location)
        self._come_back()


class SeenQueue(Queue):
    """What an exchange has seen, as a queue that can be looked at and purged."""

    internal = True

    def __init__(self, vhost: Vhost, exchange: Exchange, seen: Seen, **named: Any) -> None:
        super().__init__(SEEN + exchange.name, vhost.name, vhost.surroundings, **named)
        self.seen = seen

    @property
    def message_count(self) -> int:
        return len(self.seen.order)

    def purge(self) -> int:
        return self.seen.clear()

    def end(self) -> None:
        self.seen.delete()
        super().end()

    def restore(self, log: MessageLog, position: int, level: int = 0) -> None:
        self.lane.log = log
        self.seen.restore(log, position, self.surroundings.when_safe)


def exchange_of(queue: str) -> str | None:
    """The exchange that a queue with this name would belong to."""
    for prefix in _KINDS:
        if queue.startswith(prefix):
            return queue.removeprefix(prefix)
    return None


def make_internal_queue(vhost: Vhost, name: str, **named: Any) -> Queue | None:
    """The queue of an exchange, if this is the name of one."""
    for prefix, make in _KINDS.items():
        exchange = vhost.exchanges.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if exchange is not None and name in exchange.internal_queues():
            return make(vhost, exchange, **named)
    return None


def _delay_queue(vhost: Vhost, exchange: Exchange, **named: Any) -> Queue:
    queue = DelayQueue(vhost, exchange, **named)
    exchange.router.waiting_room = queue  # type: ignore[attr-defined]  # it has one, or the name would not be its
    return queue


def _seen_queue(vhost: Vhost, exchange: Exchange, **named: Any) -> Queue:
    assert exchange.seen is not None, "or the name would not be its"
    return SeenQueue(vhost, exchange, exchange.seen, **named)


_KINDS: dict[str, Callable[..., Queue]] = {DELAYED: _delay_queue, SEEN: _seen_queue}
