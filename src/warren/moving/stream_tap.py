"""Reads a stream of the source, from an offset to its end. Reading takes nothing away.

RabbitMQ reads a stream on behalf of a consumer's channel, when the channel gets acks. So once something has
come, and all of it is acked, the answer to any question says that we have caught up. To have something come,
a tap that goes on begins one message early.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from warren.amqp.errors import AmqpError
from warren.amqp.properties import decode_properties
from warren.broker.message import Message
from warren.client.errors import ClientError
from warren.client.uri import Uri
from warren.moving.tap import HELD_BYTES_MAX, PRODUCT, SILENT_SECONDS, STALLED_SECONDS
from warren.pipeline.consumer import PREFETCH_MAX, ConsumingClient, Delivery

OFFSET = "x-stream-offset"
EMPTY_SECONDS = 2.0
"""A stream that has delivered nothing for this long, and counts no messages, is empty."""


class StreamMessage(NamedTuple):
    offset: int
    message: Message
    """As it was published: without the header that tells the offset."""


class StreamEnd(NamedTuple):
    """Where a stream of the source ends."""

    cluster: str
    """The name of the source's cluster: offsets mean nothing elsewhere."""
    last: int | None
    """The offset of the last message; None if there is none."""


def stream_message(delivery: Delivery) -> StreamMessage:
    message = delivery.message
    try:
        properties = decode_properties(message.properties)
    except AmqpError as error:
        raise ClientError(f"the broker sent properties nobody can read: {error.text}") from error
    headers = properties.headers or {}
    offset = headers.pop(OFFSET, None)
    if not isinstance(offset, int):
        raise ClientError("the broker sent a message of a stream without its offset")
    properties.headers = headers or None
    plain = Message(message.exchange, message.routing_key, properties.encode(), message.body, True)
    return StreamMessage(offset, plain)


def reading_client(uri: Uri, stream: str, offset: int | str, *, batch: int) -> ConsumingClient:
    return ConsumingClient(
        uri,
        [stream],
        count_max=batch,
        bytes_max=HELD_BYTES_MAX,
        arguments={OFFSET: offset},
        shared_limit=False,
        product=PRODUCT,
    )


def find_end(source: Uri, stream: str) -> StreamEnd:
    """Read the last messages: no broker tells the offset otherwise."""
    client = reading_client(source, stream, "last", batch=PREFETCH_MAX)
    try:
        cluster = str(client.server_properties.get("cluster_name", ""))
        until = time.monotonic() + STALLED_SECONDS
        while not client.held:
            client.gather(EMPTY_SECONDS)
            if not client.held and not client.ready():
                return StreamEnd(cluster, None)
            if time.monotonic() > until:
                raise ClientError("delivers nothing to us")
        client.catch_up()
        return StreamEnd(cluster, stream_message(client.held[-1]).offset)
    finally:
        client.close()


class StreamTap:
    """A connection to the source that reads a stream from the offset `start` on, until it is closed."""

    def __init__(self, source: Uri, stream: str, *, start: int, end: int, batch: int) -> None:
        self._start = start
        self._end = end  # the offset that was the last one when we began
        self._seen = -1  # the offset of the last message that has come
        offset = start - 1 if start else "first"
        self._client = reading_client(source, stream, offset, batch=batch)

    def close(self) -> None:
        self._client.close()

    def take(self) -> list[StreamMessage]:
        """The next messages, in order; none at the end of the stream."""
        until = time.monotonic() + STALLED_SECONDS
        while True:
            self._client.gather(SILENT_SECONDS)
            found = self._found()
            if found or self._has_caught_up():
                return found
            if time.monotonic() > until:
                raise ClientError("delivers nothing to us")

    def settle(self, count: int) -> None:
        """Let the source send as many more."""
        self._client.settle(count)

    def _found(self) -> list[StreamMessage]:
        """What is held, but for what was there before `start`."""
        messages = [stream_message(delivery) for delivery in self._client.held]
        if messages:
            self._seen = messages[-1].offset
        early = sum(message.offset < self._start for message in messages)
        self._client.settle(early)
        return messages[early:]

    def _has_caught_up(self) -> bool:
        if self._seen < self._end:
            return False
        self._client.catch_up()
        return not self._client.held
