"""What happens in a broker, as typed events that anybody may subscribe to.

Events of single messages are made only while somebody wants them: `published`, `delivered` and `acked`
say so to the path of a message at the price of one test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
class UserChanged(Event):
    user: str


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
    resource: str


@dataclass(frozen=True, slots=True)
class AlarmCleared(Event):
    resource: str


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


E = TypeVar("E", bound=Event)


class Events:
    """Who wants to know of what."""

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self.on_error = on_error
        self.subscribers: dict[type[Event], list[Callable[[Any], None]]] = {}
        self.published = False
        self.delivered = False
        self.acked = False

    def subscribe(self, kind: type[E], callback: Callable[[E], None]) -> Callable[[], None]:
        """Call back for every event of this kind (`Event` for all); what is returned ends that."""
        self.subscribers.setdefault(kind, []).append(callback)
        self._mark()

        def unsubscribe() -> None:
            if callback in self.subscribers[kind]:
                self.subscribers[kind].remove(callback)
                self._mark()

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Tell all who want to know; a subscriber that fails does not fail the broker."""
        for kind in (type(event), Event):
            for callback in tuple(self.subscribers.get(kind, ())):
                try:
                    callback(event)
                except Exception as error:  # noqa: BLE001 - a subscriber may raise anything
                    self.on_error(error)

    def _mark(self) -> None:
        everything = bool(self.subscribers.get(Event))
        self.published = everything or bool(self.subscribers.get(MessagePublished))
        self.delivered = everything or bool(self.subscribers.get(MessageDelivered))
        self.acked = everything or bool(self.subscribers.get(MessageAcked))
