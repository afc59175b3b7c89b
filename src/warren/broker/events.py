"""What happens in a broker, as typed events that anybody may subscribe to.

Events of single messages are made only while somebody wants them: `published`, `delivered`, `acked` and, for
what rules do with them, `died` say so to the path of a message at the price of one test. If a sample is all
that anybody wants of the first three, no others are made. Firehoses want the first two as well, and get all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from warren.broker.message import Message


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that happened."""


@dataclass(frozen=True, slots=True)
class ConnectionOpened(Event):
    connection: str
    user: str
    vhost: str


@dataclass(frozen=True, slots=True)
class ConnectionClosed(Event):
    connection: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionBlocked(Event):
    connection: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionUnblocked(Event):
    connection: str


@dataclass(frozen=True, slots=True)
class AuthenticationFailed(Event):
    connection: str
    user: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChannelOpened(Event):
    connection: str
    channel: int


@dataclass(frozen=True, slots=True)
class ChannelClosed(Event):
    connection: str
    channel: int
    reason: str


@dataclass(frozen=True, slots=True)
class Failure(Event):
    """An exception that is the broker's own mistake; the connection was closed with 541."""

    connection: str
    error: Exception


@dataclass(frozen=True, slots=True)
class VhostCreated(Event):
    vhost: str


@dataclass(frozen=True, slots=True)
class VhostDeleted(Event):
    vhost: str


@dataclass(frozen=True, slots=True)
class TracingChanged(Event):
    """The firehose of a vhost was switched."""

    vhost: str
    on: bool


@dataclass(frozen=True, slots=True)
class UserChanged(Event):
    user: str


@dataclass(frozen=True, slots=True)
class VhostLimitsChanged(Event):
    vhost: str


@dataclass(frozen=True, slots=True)
class UserLimitsChanged(Event):
    user: str


@dataclass(frozen=True, slots=True)
class PolicyChanged(Event):
    vhost: str
    policy: str
    operator: bool


@dataclass(frozen=True, slots=True)
class PolicyDeleted(Event):
    vhost: str
    policy: str
    operator: bool


@dataclass(frozen=True, slots=True)
class ExchangeCreated(Event):
    vhost: str
    exchange: str
    type: str


@dataclass(frozen=True, slots=True)
class ExchangeDeleted(Event):
    vhost: str
    exchange: str


@dataclass(frozen=True, slots=True)
class QueueCreated(Event):
    vhost: str
    queue: str


@dataclass(frozen=True, slots=True)
class QueueDeleted(Event):
    vhost: str
    queue: str


@dataclass(frozen=True, slots=True)
class QueuePurged(Event):
    vhost: str
    queue: str
    messages: int


@dataclass(frozen=True, slots=True)
class BindingCreated(Event):
    vhost: str
    source: str
    destination: str
    routing_key: str


@dataclass(frozen=True, slots=True)
class BindingDeleted(Event):
    vhost: str
    source: str
    destination: str
    routing_key: str


@dataclass(frozen=True, slots=True)
class ConsumerStarted(Event):
    vhost: str
    queue: str
    consumer_tag: str


@dataclass(frozen=True, slots=True)
class ConsumerCancelled(Event):
    vhost: str
    queue: str
    consumer_tag: str


@dataclass(frozen=True, slots=True)
class AlarmRaised(Event):
    """`counted` are bytes by kind, and the limit."""

    resource: str
    counted: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlarmCleared(Event):
    resource: str
    counted: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActiveConsumerChanged(Event):
    """Of a queue with a single active consumer: who gets its messages from now on, if anybody."""

    vhost: str
    queue: str
    consumer_tag: str | None


@dataclass(frozen=True, slots=True)
class ConsumerTimedOut(Event):
    """A delivery was not acknowledged in time; its channel was closed."""

    vhost: str
    queue: str
    connection: str
    channel: int


@dataclass(frozen=True, slots=True)
class QueueExpired(Event):
    """Nobody has used it for as long as its x-expires says; it is deleted."""

    vhost: str
    queue: str


@dataclass(frozen=True, slots=True)
class MessageDeadLettered(Event):
    """`exchange` is where it went, or None: then it is gone."""

    vhost: str
    queue: str
    message: Message
    reason: str
    exchange: str | None


@dataclass(frozen=True, slots=True)
class MessageRefused(Event):
    """The queue is full, and told the publisher so."""

    vhost: str
    queue: str
    message: Message


@dataclass(frozen=True, slots=True)
class MessageDeduplicated(Event):
    """The same was there before; it was dropped. `place` is the queue's, or exchange's, name."""

    vhost: str
    place: str
    message: Message


@dataclass(frozen=True, slots=True)
class MessageReturns(Event):
    """A message was requeued, and comes back after a delay."""

    vhost: str
    queue: str
    message: Message
    delay_ms: int


@dataclass(frozen=True, slots=True)
class MessageScheduled(Event):
    """A message waits in a delayed exchange, until it is due."""

    vhost: str
    exchange: str
    message: Message
    due_ms: int


@dataclass(frozen=True, slots=True)
class MessagePublished(Event):
    vhost: str
    message: Message
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessageDelivered(Event):
    vhost: str
    queue: str
    message: Message
    consumer_tag: str
    delivery_tag: int
    redelivered: bool


@dataclass(frozen=True, slots=True)
class MessageAcked(Event):
    vhost: str
    queue: str
    message: Message


BY_RULES = (MessageDeadLettered, MessageRefused, MessageDeduplicated, MessageReturns, MessageScheduled)
E = TypeVar("E", bound=Event)


class Countdown:
    """Lets one in so many pass."""

    def __init__(self) -> None:
        self.every = 1
        self.left = 0

    def set_every(self, every: int) -> None:
        if every != self.every:
            self.every, self.left = every, 0

    def is_next(self) -> bool:
        if self.left > 0:
            self.left -= 1
            return False
        self.left = self.every - 1
        return True


class Sampled:
    """A subscriber to one event in so many, of those that its countdown lets pass."""

    def __init__(self, callback: Callable[[Any], None], one_in: int, countdown: Countdown) -> None:
        self.callback = callback
        self.one_in = one_in
        self.countdown = countdown
        self.left = 0

    def __call__(self, event: Event) -> None:
        if self.left <= 0:
            self.left += self.one_in
            self.callback(event)
        self.left -= self.countdown.every


class Events:
    """Who wants to know of what. Who makes an event of those that have a countdown asks that first.
    `firehoses` is how many of them are on.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self.on_error = on_error
        self.subscribers: dict[type[Event], list[Callable[[Any], None]]] = {}
        self.publishing = Countdown()
        self.delivering = Countdown()
        self.acking = Countdown()
        self.firehoses = 0
        self.published = False
        self.delivered = False
        self.acked = False
        self.died = False

    def subscribe(self, kind: type[E], callback: Callable[[E], None], one_in: int = 1) -> Callable[[], None]:
        """Call back for every event of this kind (`Event` for all), or one in so many; what is returned ends
        that.
        """
        if one_in > 1:
            callback = Sampled(callback, one_in, self._countdowns().get(kind) or Countdown())
        self.subscribers.setdefault(kind, []).append(callback)
        self._mark()

        def unsubscribe() -> None:
            if callback in self.subscribers[kind]:
                self.subscribers[kind].remove(callback)
                self._mark()

        return unsubscribe

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody does. Who emits very many of a kind need not make them for nobody."""
        return bool(self.subscribers.get(kind) or self.subscribers.get(Event))

    def firehose_switched(self, *, on: bool) -> None:
        self.firehoses += 1 if on else -1
        self._mark()

    def emit(self, event: Event) -> None:
        """Tell all who want to know; a subscriber that fails does not fail the broker."""
        for kind in (type(event), Event):
            for callback in tuple(self.subscribers.get(kind, ())):
                try:
                    callback(event)
                except Exception as error:  # noqa: BLE001 - a subscriber may raise anything
                    self.on_error(error)

    def _countdowns(self) -> dict[type[Event], Countdown]:
        return {
            MessagePublished: self.publishing,
            MessageDelivered: self.delivering,
            MessageAcked: self.acking,
        }

    def _mark(self) -> None:
        for kind, countdown in self._countdowns().items():
            wanted = [*self.subscribers.get(kind, ()), *self.subscribers.get(Event, ())]
            rates = [one.one_in if isinstance(one, Sampled) else 1 for one in wanted]
            countdown.set_every(min(rates, default=1))
        everything = bool(self.subscribers.get(Event))
        every_one = everything or self.firehoses > 0
        self.published = every_one or bool(self.subscribers.get(MessagePublished))
        self.delivered = every_one or bool(self.subscribers.get(MessageDelivered))
        self.acked = everything or bool(self.subscribers.get(MessageAcked))
        self.died = everything or any(self.subscribers.get(kind) for kind in BY_RULES)
