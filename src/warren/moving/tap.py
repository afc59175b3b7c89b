"""Takes the messages out of a queue of the source, in order, until the queue is empty for certain.

RabbitMQ's count of ready messages does not say that: its answer may overtake deliveries, so that a queue is
said to be empty while its messages are on their way to us, and for a quorum queue that is slow to answer it
is 0. Only a basic.get that gets nothing proves it, at a time when we do not consume. So a tap gets a message,
and when that is settled it consumes the rest; when nothing comes any more it cancels, takes what was still on
its way, and gets again.

A queue that is deleted with its last consumer is never consumed: messages would go with it. A queue with a
single active consumer is not asked by basic.get, which would take messages from under that consumer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from warren.amqp.errors import NotFound
from warren.amqp.methods import QueueDeclare, QueueDeclareOk
from warren.client.connection import ClientConnection
from warren.client.dialogue import ask, log_out
from warren.client.errors import ClientError, ClosedByBrokerError
from warren.client.uri import Uri
from warren.moving.queues import QueueInfo
from warren.pipeline.consumer import ConsumingClient, Delivery

PRODUCT = "warren import"
HELD_BYTES_MAX = 16 << 20
STALLED_SECONDS = 10.0
"""A queue that has messages but delivers none for this long is left: another consumer has it for itself."""

SILENT_SECONDS = 0.05
"""When nothing has come for this long, the tap asks whether the queue is empty."""


def filled_among(source: Uri, names: Iterable[str]) -> list[str]:
    """Those of these queues of one vhost that have ready messages, or count some. Queues that are gone have
    none.
    """
    found = []
    connection = ClientConnection(source, product=PRODUCT)
    try:
        for name in names:
            declare = QueueDeclare(queue=name, passive=True, arguments={})
            try:
                if connection.talk(ask(declare, QueueDeclareOk)).message_count:
                    found.append(name)
            except ClosedByBrokerError as error:
                if error.code != NotFound.code:
                    raise
                connection.close()
                connection = ClientConnection(source, product=PRODUCT)
        connection.talk(log_out())
    finally:
        connection.close()
    return found


class Stalled(ClientError):
    """A queue has messages, and we get none."""


class Tap:
    """A connection to the source that takes messages from one queue, until it is closed."""

    def __init__(self, source: Uri, queue: QueueInfo, *, batch: int) -> None:
        self._queue = queue
        self._consuming = False
        self._has_more = False  # whether the last basic.get got a message: then the rest is consumed
        self._client = ConsumingClient(
            source,
            [queue.name],
            count_max=batch,
            bytes_max=HELD_BYTES_MAX,
            shared_limit=False,
            consuming=False,
            product=PRODUCT,
        )

    def close(self) -> None:
        self._client.close()

    def take(self) -> list[Delivery]:
        """The next messages, unacked, in order; none if the queue is empty."""
        until = time.monotonic() + STALLED_SECONDS
        while not self._client.held and not self._is_empty():
            if not self._client.held and time.monotonic() > until:
                raise Stalled("delivers nothing to us: another consumer may have it for itself")
        return self._client.first(len(self._client.held))

    def settle(self, count: int) -> None:
        """Ack the first `count` of the messages that were taken."""
        self._client.settle(count)

    def left(self) -> int:
        """Give back what was taken and not settled; return how many messages are ready then. RabbitMQ may
        answer before it has put back what we give: so it is asked before.
        """
        self._stop()
        count = self._client.ready() + len(self._client.held)
        self._client.give_back()
        return count

    def others(self) -> int:
        """How many consumers the queue has besides us."""
        return self._client.consumers() - self._consuming

    def _is_empty(self) -> bool:
        """Whether the queue is empty, for certain. If not, messages are held, or being delivered."""
        if self._queue.has_single_consumer:
            return self._is_empty_by_count()
        if self._queue.auto_delete:
            return not self._get_many()
        if self._has_more:
            self._start()
            self._has_more = False
        if self._consuming:
            self._client.gather(SILENT_SECONDS)
            if not self._client.held:
                self._stop()
            return False
        self._has_more = self._client.get()
        return not self._has_more

    def _is_empty_by_count(self) -> bool:
        if not self._consuming:
            self._start()
        self._client.gather(SILENT_SECONDS)
        if self._client.held or self._client.ready():
            return False
        self._stop()
        return not self._client.held

    def _get_many(self) -> bool:
        client = self._client
        while len(client.held) < client.count_max and client.held_bytes < client.bytes_max and client.get():
            continue
        return bool(client.held)

    def _start(self) -> None:
        self._client.consume()
        self._consuming = True

    def _stop(self) -> None:
        if self._consuming:
            self._client.cancel()
            self._consuming = False
