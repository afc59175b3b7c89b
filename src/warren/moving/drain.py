"""Moves the messages of queues from one broker to another, in order.

A batch is consumed there, published here, and acked there when all of it is confirmed here. So a message is
in one of the two brokers at any time, and if the move is killed, at most one batch is in both. Nothing is
written down: another run goes on with what is still there.

A message keeps its properties and headers byte for byte, its routing key, and its body. One that came through
the default exchange goes through the default exchange again. All others come through an exchange of ours,
`warren.import.<queue>`, since publishing to their own would send them to other queues as well; it is deleted
when the queue is done. `expiration` counts anew from the arrival, since no broker tells how much was left.
Headers such as `x-death` are kept, so that cycles of dead letters are still seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Self

from warren.amqp.errors import AmqpError
from warren.amqp.methods import (
    BasicPublish,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)
from warren.amqp.properties import BasicProperties, decode_properties
from warren.client.connection import ClientConnection
from warren.client.dialogue import ask
from warren.client.errors import ClientError
from warren.client.uri import Uri
from warren.pipeline.consumer import ConsumingClient, Delivery
from warren.pipeline.publisher import ConfirmingPublisher, OutgoingMessage, PublishError, Unpublished

PRODUCT = "warren import"
BATCH = 1000
BATCH_BYTES_MAX = 16 << 20
STALLED_SECONDS = 10.0
"""A queue that has messages but delivers none for this long is left: another consumer has it for itself."""

LAST_LOOK_SECONDS = 0.05
NAME_BYTES_MAX = 255
SEVERAL_KEYS = ("CC", "BCC")
METHODS_CACHED_MAX = 1024


@dataclass
class Moved:
    """How far the move of a queue came."""

    moved: int = 0
    left: int = 0
    """Ready messages that are still there."""
    rerouted: int = 0
    """Of the moved ones, those that now name our exchange as theirs."""
    problem: str = ""
    """Why messages are left; empty if all is well."""

    def add(self, again: Moved) -> None:
        """Add what another move of the same queue has come to."""
        self.moved += again.moved
        self.rerouted += again.rerouted
        self.left, self.problem = again.left, again.problem


class Drain:
    """Moves queues of one vhost, one by one. `progress` is told how many messages each batch had."""

    def __init__(self, source: Uri, to: Uri, progress: Callable[[int], None], *, batch: int = BATCH) -> None:
        self._source = source  # where the messages are
        self._to = to  # where they go
        self._progress = progress
        self._batch = batch  # how many messages are in flight at most
        self._refused: list[Unpublished] = []  # messages of the current batch
        self._publisher: ConfirmingPublisher | None = None  # for all queues, until an error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and self._publisher is not None:
            with contextlib.suppress(PublishError):  # every message is confirmed: this only says goodbye
                self._publisher.finish()
        self._drop_publisher()

    def move(self, queue: str) -> Moved:
        """Move all messages of the queue. Errors of either broker end the move of this queue only."""
        result = Moved()
        try:
            self._move(queue, result)
        except (ClientError, PublishError) as error:
            result.problem = str(error)
            self._drop_publisher()
        try:
            result.left = ready_in(self._source, queue)
        except ClientError as error:
            result.problem = result.problem or str(error)
        return result

    def _move(self, queue: str, result: Moved) -> None:
        waiting = ready_in(self._source, queue)
        if not waiting:
            return
        exchange = exchange_for(queue)
        with ClientConnection(self._to, product=PRODUCT) as connection:
            open_way(connection, exchange, queue)
        try:
            self._consume(queue, exchange, result)
        finally:
            with ClientConnection(self._to, product=PRODUCT) as connection:
                connection.talk(ask(ExchangeDelete(exchange=exchange), ExchangeDeleteOk))

    def _consume(self, queue: str, exchange: str, result: Moved) -> None:
        client = ConsumingClient(
            self._source,
            [queue],
            count_max=self._batch,
            bytes_max=BATCH_BYTES_MAX,
            shared_limit=False,
            product=PRODUCT,
        )
        try:
            self._pump(client, queue, exchange, result)
        finally:
            client.close()

    def _pump(self, client: ConsumingClient, queue: str, exchange: str, result: Moved) -> None:
        until = time.monotonic() + STALLED_SECONDS
        while True:
            client.gather(LAST_LOOK_SECONDS)
            held = client.first(len(client.held))
            if held:
                done = self._publish(held, queue, exchange, result)
                client.settle(done)
                result.moved += done
                self._progress(done)
                if done < len(held):
                    result.problem = f"refused here: {self._refused[0].reason}"
                    return
                until = time.monotonic() + STALLED_SECONDS
            elif client.ready() == 0 and not client.held:
                return
            elif time.monotonic() > until:
                result.problem = "delivers nothing to us: another consumer may have it for itself"
                return

    def _publish(self, held: Sequence[Delivery], queue: str, exchange: str, result: Moved) -> int:
        """Publish these messages; return how many of them, from the first on, are safe here."""
        if self._publisher is None:
            self._publisher = ConfirmingPublisher(self._to, on_failure=self._note_refusal, product=PRODUCT)
        self._refused.clear()
        outgoing = [outgoing_message(delivery, queue, exchange) for delivery in held]
        for message in outgoing:
            self._publisher.publish(message)
        self._publisher.settle_all()
        refused = {id(failure.message) for failure in self._refused}
        safe = next((i for i, message in enumerate(outgoing) if id(message) in refused), len(outgoing))
        result.rerouted += sum(message.exchange == exchange for message in outgoing[:safe])
        return safe

    def _note_refusal(self, failure: Unpublished) -> None:
        self._refused.append(failure)

    def _drop_publisher(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None


def exchange_for(queue: str) -> str:
    """The name of the exchange through which the messages of a queue come."""
    name = f"warren.import.{queue}"
    if len(name.encode("utf-8", "surrogateescape")) <= NAME_BYTES_MAX:
        return name
    return "warren.import." + hashlib.sha256(queue.encode("utf-8", "surrogateescape")).hexdigest()


def open_way(connection: ClientConnection, exchange: str, queue: str) -> None:
    """Make the exchange, and bind the queue to it, and nothing else: an exchange of that name that an
    earlier run left behind is deleted.
    """
    connection.talk(ask(QueueDeclare(queue=queue, passive=True, arguments={}), QueueDeclareOk))
    connection.talk(ask(ExchangeDelete(exchange=exchange), ExchangeDeleteOk))
    declare = ExchangeDeclare(exchange=exchange, type="fanout", arguments={})
    connection.talk(ask(declare, ExchangeDeclareOk))
    connection.talk(ask(QueueBind(queue=queue, exchange=exchange, arguments={}), QueueBindOk))


def ready_in(uri: Uri, queue: str) -> int:
    with ClientConnection(uri, product=PRODUCT) as connection:
        declare = QueueDeclare(queue=queue, passive=True, arguments={})
        return connection.talk(ask(declare, QueueDeclareOk)).message_count


def outgoing_message(delivery: Delivery, queue: str, exchange: str) -> OutgoingMessage:
    message = delivery.message
    try:
        properties = decode_properties(message.properties)
    except AmqpError:  # neither broker checks them; they are handed on as they are
        properties = BasicProperties()
    through = "" if _came_directly(message.exchange_name, message.key, queue, properties) else exchange
    return OutgoingMessage(
        publish_method(through, message.key),
        message.properties,
        message.body,
        through,
        message.key,
        properties.message_id or "",
    )


def _came_directly(exchange: str, key: str, queue: str, properties: BasicProperties) -> bool:
    """Whether the message was published to the default exchange for this queue alone."""
    headers = properties.headers or {}
    return not exchange and key == queue and not any(name in headers for name in SEVERAL_KEYS)


@lru_cache(METHODS_CACHED_MAX)
def publish_method(exchange: str, routing_key: str) -> bytes:
    return BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=True).encode()
