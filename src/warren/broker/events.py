"""What happens in a broker, as typed events that anybody may subscribe to.

Events of single messages are made only while somebody subscribes to them. The path of a message finds that
out by one test, of `published`, `delivered`, `acked`, or, for events of rules, `died`. If all subscribers of
one of the first three want a sample, only that is made (`Countdown`). A firehose that is on also sets
`published` and `delivered`; it gets every message, not a sample.
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
class AdministrativeAction(Event):
    """Somebody changed something over the HTTP API, or tried to."""

    user: str
    address: str
    action: str
    """The method and the path of the request. Its body may have secrets, and is not told."""
    status: int
    """Of the answer: 2xx if it was done."""


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
class VhostMetadataChanged(Event):
    """A vhost has another description, other tags or another default type of queues."""

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
class ParameterSet(Event):
    vhost: str
    component: str
    parameter: str


@dataclass(frozen=True, slots=True)
class ParameterCleared(Event):
    vhost: str
    component: str
    parameter: str


@dataclass(frozen=True, slots=True)
class ShovelStarted(Event):
    """A shovel is connected at both ends, and carries messages."""

    vhost: str
    shovel: str


@dataclass(frozen=True, slots=True)
class ShovelFailed(Event):
    """Something broke. The shovel is started again after a while, unless its definition says otherwise."""

    vhost: str
    shovel: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShovelStopped(Event):
    """A shovel has carried all that it was to carry, or somebody has ended or changed it."""

    vhost: str
    shovel: str
    reason: str


@dataclass(frozen=True, slots=True)
class GlobalParameterSet(Event):
    parameter: str


@dataclass(frozen=True, slots=True)
class GlobalParameterCleared(Event):
    parameter: str


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
class QueuePaused(Event):
    """An operator has paused a queue's delivery, or resumed it."""

    vhost: str
    queue: str
    paused: bool


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
    """A resource, such as memory, is short: publishers are blocked."""

    resource: str
    counted: dict[str, int] = field(default_factory=dict)
    """The bytes in use by kind, and the limit."""


@dataclass(frozen=True, slots=True)
class AlarmCleared(Event):
    resource: str
    counted: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActiveConsumerChanged(Event):
    """A queue with a single active consumer has another one from now on, or none."""

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
    """A queue was deleted because nobody used it for as long as its x-expires says."""

    vhost: str
    queue: str


@dataclass(frozen=True, slots=True)
class MessageDeadLettered(Event):
    """A message died in a queue. It went to `exchange`; None if the queue has no dead-letter exchange."""

    vhost: str
    queue: str
    message: Message
    reason: str
    exchange: str | None


@dataclass(frozen=True, slots=True)
class MessageRefused(Event):
    """A queue is full, and refused a message."""

    vhost: str
    queue: str
    message: Message


@dataclass(frozen=True, slots=True)
class MessageDeduplicated(Event):
    """A duplicate was dropped. `place` is the name of the queue or exchange that dropped it."""

    vhost: str
    place: str
    message: Message


@dataclass(frozen=True, slots=True)
class MessageReturns(Event):
    """A message was requeued, and will be ready again after a delay."""

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
    """Lets one of every `every` events pass."""

    def __init__(self) -> None:
        self.every = 1
        self.left = 0  # how many more to hold back before the next may pass

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
    """A subscriber that wants one event in `one_in`. Its countdown may hold back some of them already."""

    def __init__(self, callback: Callable[[Any], None], one_in: int, countdown: Countdown) -> None:
        self.callback = callback
        self.one_in = one_in
        self.countdown = countdown
        self.left = 0  # how many more events have to happen before the next call

    def __call__(self, event: Event) -> None:
        if self.left <= 0:
            self.left += self.one_in
            self.callback(event)
        self.left -= self.countdown.every


class Events:
    """The subscribers, and which events they want. Whoever makes an event that has a countdown asks that
    countdown first.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self.on_error = on_error  # called with the exception of a subscriber that fails
        self.subscribers: dict[type[Event], list[Callable[[Any], None]]] = {}
        self.publishing = Countdown()  # for MessagePublished
        self.delivering = Countdown()  # for MessageDelivered
        self.acking = Countdown()  # for MessageAcked
        self.firehoses = 0  # how many firehoses are on
        self.published = False  # whether anybody, a firehose included, wants to know of published messages
        self.delivered = False  # whether anybody, a firehose included, wants to know of deliveries
        self.acked = False  # whether anybody wants to know of acks
        self.died = False  # whether anybody wants to know what rules do with messages (`BY_RULES`)

    def subscribe(self, kind: type[E], callback: Callable[[E], None], one_in: int = 1) -> Callable[[], None]:
        """Call back for events of this kind (`Event` for all kinds), for each or for one in `one_in`.
        Return a function that ends the subscription.
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
        """Whether anybody subscribes to this kind. If not, there is no need to make such an event."""
        return bool(self.subscribers.get(kind) or self.subscribers.get(Event))

    def firehose_switched(self, *, on: bool) -> None:
        self.firehoses += 1 if on else -1
        self._mark()

    def emit(self, event: Event) -> None:
        """Call all subscribers; one that fails does not fail the broker."""
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
        """Set the flags and countdowns by who subscribes now."""
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
