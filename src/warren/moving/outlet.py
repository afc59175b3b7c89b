"""Publishes messages of the source into queues of one vhost here, with confirms.

A message keeps its properties and headers byte for byte, its routing key, and its body. One that came through
the default exchange goes through the default exchange again. All others come through an exchange of ours,
`warren.import.<queue>`, since publishing to their own would send them to other queues as well; it is made
when it is needed, and deleted when the queue is done. `expiration` counts anew from the arrival, since no
broker tells how much was left. Headers such as `x-death` are kept, so that cycles of dead letters are still
seen.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple, Self

from warren.amqp.errors import AmqpError
from warren.amqp.methods import (
    BasicPublish,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueBindOk,
)
from warren.amqp.properties import BasicProperties, decode_properties
from warren.broker.message import Message
from warren.client.connection import ClientConnection
from warren.client.dialogue import ask
from warren.client.errors import ClientError
from warren.client.uri import Uri
from warren.moving.tap import PRODUCT
from warren.pipeline.publisher import (
    REFUSED,
    ConfirmingPublisher,
    OutgoingMessage,
    PublishError,
    Unpublished,
)

EXCHANGES = "warren.import."
"""How the names of our exchanges begin."""

NAME_BYTES_MAX = 255
SEVERAL_KEYS = ("CC", "BCC")
METHODS_CACHED_MAX = 1024


class Published(NamedTuple):
    safe: int
    """How many messages, from the first on, are safe here."""
    rerouted: int
    """Of those, the ones that now name our exchange as theirs."""
    refusal: str
    """Why the next message is not safe; empty if all are."""


class Outlet:
    """Two connections that are made when they are needed, and made again after `drop`."""

    def __init__(self, to: Uri) -> None:
        self._to = to
        self._control: ClientConnection | None = None  # declares what is needed
        self._publisher: ConfirmingPublisher | None = None
        self._ways: set[str] = set()  # queues whose exchange we have made
        self._open_ways: set[str] = (
            set()
        )  # of those, the ones since the last `drop`: a broker may forget them
        self._refused: list[Unpublished] = []  # messages of the current batch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            with contextlib.suppress(PublishError, ClientError):  # all is confirmed: this only says goodbye
                if self._publisher is not None:
                    self._publisher.finish()
                if self._control is not None:
                    self._control.__exit__(None)
        self.drop()

    def publish(self, messages: Sequence[Message], queue: str) -> Published:
        outgoing = [outgoing_message(message, queue) for message in messages]
        exchange = exchange_for(queue)
        if any(message.exchange == exchange for message in outgoing):
            self._open_way(queue)
        publisher = self.publisher()
        self._refused.clear()
        for message in outgoing:
            publisher.publish(message)
        publisher.settle_all()
        refused = {id(failure.message) for failure in self._refused}
        safe = next((i for i, message in enumerate(outgoing) if id(message) in refused), len(outgoing))
        rerouted = sum(message.exchange == exchange for message in outgoing[:safe])
        return Published(safe, rerouted, refusal_of(self._refused[0]) if self._refused else "")

    def publisher(self) -> ConfirmingPublisher:
        """The connection that publishes."""
        if self._publisher is None:
            self._publisher = ConfirmingPublisher(self._to, on_failure=self._refused.append, product=PRODUCT)
        return self._publisher

    def close_way(self, queue: str, *, always: bool = False) -> None:
        """Delete the exchange of the queue, if it was needed; `always` if an earlier run may have left it."""
        if always or queue in self._ways:
            delete = ExchangeDelete(exchange=exchange_for(queue))
            self._controlling().talk(ask(delete, ExchangeDeleteOk))
            self._ways.discard(queue)
            self._open_ways.discard(queue)

    def drop(self) -> None:
        """Give up both connections, after an error of either."""
        if self._publisher is not None:
            self._publisher.close()
        if self._control is not None:
            self._control.close()
        self._publisher = self._control = None
        self._open_ways.clear()

    def _open_way(self, queue: str) -> None:
        """Make the exchange, and bind the queue to it, and nothing else: an exchange of that name that an
        earlier run left behind is deleted.
        """
        if queue in self._open_ways:
            return
        exchange, control = exchange_for(queue), self._controlling()
        control.talk(ask(ExchangeDelete(exchange=exchange), ExchangeDeleteOk))
        declare = ExchangeDeclare(exchange=exchange, type="fanout", arguments={})
        control.talk(ask(declare, ExchangeDeclareOk))
        control.talk(ask(QueueBind(queue=queue, exchange=exchange, arguments={}), QueueBindOk))
        self._ways.add(queue)
        self._open_ways.add(queue)

    def _controlling(self) -> ClientConnection:
        if self._control is None:
            self._control = ClientConnection(self._to, product=PRODUCT)
        return self._control


def exchange_for(queue: str) -> str:
    """The name of the exchange through which the messages of a queue come."""
    name = EXCHANGES + queue
    if len(name.encode("utf-8", "surrogateescape")) <= NAME_BYTES_MAX:
        return name
    return EXCHANGES + hashlib.sha256(queue.encode("utf-8", "surrogateescape")).hexdigest()


def refusal_of(failure: Unpublished) -> str:
    is_nacked = failure.reason == REFUSED
    return "the queue takes no more, as one with a max-length does" if is_nacked else failure.reason


def outgoing_message(message: Message, queue: str) -> OutgoingMessage:
    try:
        properties = decode_properties(message.properties)
    except AmqpError:  # neither broker checks them; they are handed on as they are
        properties = BasicProperties()
    came_directly = _came_directly(message, queue, properties)
    through = "" if came_directly else exchange_for(queue)
    return OutgoingMessage(
        publish_method(through, message.key),
        message.properties,
        message.body,
        through,
        message.key,
        properties.message_id or "",
    )


def _came_directly(message: Message, queue: str, properties: BasicProperties) -> bool:
    """Whether the message was published to the default exchange for this queue alone."""
    headers = properties.headers or {}
    is_direct = not message.exchange_name and message.key == queue
    return is_direct and not any(name in headers for name in SEVERAL_KEYS)


@lru_cache(METHODS_CACHED_MAX)
def publish_method(exchange: str, routing_key: str) -> bytes:
    return BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=True).encode()
