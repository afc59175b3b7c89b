"""Publishing with confirms: of every message it is known in the end whether it is safe, or why it failed.

At most `window` messages are in flight, and at most `IN_FLIGHT_BYTES_MAX` of bodies, plus one message. A
message that the broker returns, because no queue is bound for it, or nacks is handed to `on_failure`, which
may raise to end the whole write. While the broker has blocked the connection nothing is sent, however long
that takes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Self, TypeVar

from warren.amqp.methods import (
    BasicAck,
    BasicNack,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
)
from warren.amqp.properties import decode_properties
from warren.amqp.writer import Output
from warren.client.connection import ClientConnection
from warren.client.dial import read_method
from warren.client.dialogue import Dialogue, ask
from warren.client.errors import ClientError
from warren.client.frames import CHANNEL
from warren.client.inbox import Frame, FrameKind
from warren.client.uri import Uri
from warren.pipeline.errors import PipelineError

PRODUCT = "warren pipeline"
WINDOW_DEFAULT = 10_000
"""Messages in flight: on a disk whose sync takes 20 ms, that allows half a million messages a second."""

IN_FLIGHT_BYTES_MAX = 16 << 20
CHUNK_BYTES = 64 * 1024
"""Encoded frames are gathered up to this size, and then sent at once."""

CONFIRM_SECONDS_MAX = 300
"""A broker that owes confirms and sends nothing for this long is taken for dead."""

BLOCKED_SECONDS = 1.0
PACE_SECONDS = 0.02
"""At a limited rate, the messages that are due are sent in bursts, this far apart."""

CONTENT_HEAD_BYTES = 12
REFUSED = "the broker refused it"
T = TypeVar("T")


class OutgoingMessage(NamedTuple):
    """A message to publish. The last three fields are known to `method` and `properties` already: they tell
    which message failed.
    """

    method: bytes  # the payload of basic.publish
    properties: bytes  # as in the content header
    body: bytes
    exchange: str
    routing_key: str
    message_id: str


class Unpublished(NamedTuple):
    """A message that is in no queue, and why."""

    message: OutgoingMessage
    reason: str


class PublishError(PipelineError):
    """The connection failed. `confirmed` messages are safe; whether the other `sent` ones are is unknown."""

    def __init__(self, reason: str, *, confirmed: int, sent: int) -> None:
        so_far = f"; {confirmed} of the {sent} messages sent by this task were confirmed" if sent else ""
        super().__init__(reason + so_far)
        self.confirmed = confirmed
        self.sent = sent


class ConfirmingPublisher:
    """One connection that publishes. As a context manager, it waits at the end for all confirms."""

    def __init__(
        self,
        uri: Uri,
        *,
        on_failure: Callable[[Unpublished], None],
        window: int = WINDOW_DEFAULT,
        rate: float = 0.0,
        product: str = PRODUCT,
    ) -> None:
        self.sent = 0  # also the delivery tag of the last message
        self.confirmed = 0
        self._on_failure = on_failure
        self._window = window  # messages in flight at most
        self._rate = rate  # messages a second at most; 0: no limit
        self._in_flight: dict[int, OutgoingMessage] = {}  # by delivery tag
        self._in_flight_bytes = 0  # of their bodies
        self._settled = 0  # every tag up to here is settled
        self._reasons: dict[int, str] = {}  # by tag: why a message was returned, until its confirm comes
        self._returned: BasicReturn | None = None  # whose content header is still to come
        self._output = Output([], None)  # frames that are not sent yet
        try:
            self._connection = ClientConnection(uri, product=product, on_frame=self._on_frame)
            self._connection.talk(ask(ConfirmSelect(), ConfirmSelectOk))
        except ClientError as error:
            raise PublishError(str(error), confirmed=0, sent=0) from error
        self._output.frame_max = self._connection.frame_max
        self._started_s = time.monotonic()

    def __repr__(self) -> str:
        in_flight = len(self._in_flight)
        return f"<ConfirmingPublisher sent={self.sent} confirmed={self.confirmed} in_flight={in_flight}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    def close(self) -> None:
        """Drop the connection, and with it what is in flight: call `finish` first to save that."""
        self._connection.close()

    def talk(self, dialogue: Dialogue[T]) -> T:
        """Have a dialogue on the connection that publishes."""
        with self._told():
            return self._connection.talk(dialogue)

    def publish(self, message: OutgoingMessage) -> None:
        """`benchmarks/spark_write.py` watches this."""
        if self._rate:
            self._keep_pace()
        if len(self._in_flight) >= self._window or self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX:
            self._make_room()
        self.sent += 1
        self._in_flight[self.sent] = message
        self._in_flight_bytes += len(message.body)
        output = self._output
        output.method(CHANNEL, message.method)
        output.content(CHANNEL, message.properties, message.body)
        if output.pending_bytes >= CHUNK_BYTES:
            self._flush()

    def settle_all(self) -> None:
        """Send what is left, and wait until every message is settled."""
        self._flush()
        while self._in_flight:
            self._await()

    def finish(self) -> None:
        """Settle all, and close with a handshake."""
        self.settle_all()
        with self._told():
            self._connection.__exit__(None)

    def _make_room(self) -> None:
        self._flush()
        while len(self._in_flight) >= self._window or self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX:
            self._await()

    def _keep_pace(self) -> None:
        """Wait until the next message is due; messages go in small bursts rather than one by one."""
        ahead_s = self._started_s + self.sent / self._rate - time.monotonic()
        if ahead_s < PACE_SECONDS:
            return
        self._flush()
        while (left_s := self._started_s + self.sent / self._rate - time.monotonic()) > 0:
            with self._told():
                self._connection.poll(left_s)

    def _flush(self) -> None:
        """Send the gathered frames, once the broker no longer blocks the connection."""
        with self._told():
            while self._connection.blocked:
                self._connection.poll(BLOCKED_SECONDS)
            self._connection.send(self._output.take(), timeout_s=CONFIRM_SECONDS_MAX)

    def _await(self) -> None:
        with self._told():
            if self._connection.blocked:
                self._connection.poll(BLOCKED_SECONDS)
            else:
                self._connection.receive(CONFIRM_SECONDS_MAX)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Raise an error of the connection as a PublishError, which says how far the write came."""
        try:
            yield
        except ClientError as error:
            raise PublishError(str(error), confirmed=self.confirmed, sent=self.sent) from error

    def _on_frame(self, frame: Frame) -> None:
        """Handle acks, nacks and returned messages. Of a returned message, the header identifies it, and the
        body is ignored.
        """
        if frame.kind == FrameKind.METHOD:
            self._on_method(frame.payload)
        elif frame.kind == FrameKind.HEADER and self._returned is not None:
            self._on_returned(self._returned, frame.payload)
            self._returned = None

    def _on_method(self, payload: bytes) -> None:
        method = read_method(payload)
        match method:
            case BasicAck():
                self._settle(method.delivery_tag, multiple=method.multiple, reason=None)
            case BasicNack():
                self._settle(method.delivery_tag, multiple=method.multiple, reason=REFUSED)
            case BasicReturn():
                self._returned = method
            case _:
                raise ClientError(f"the broker sent {method.name} when nothing like it was due")

    def _on_returned(self, returned: BasicReturn, header: bytes) -> None:
        """Note why the message failed. It is still in flight: the broker returns it before it confirms it.

        The id alone does not identify it, since ids that come from a table may occur twice.
        """
        message_id = decode_properties(header[CONTENT_HEAD_BYTES:]).message_id
        wanted = message_id, returned.exchange, returned.routing_key
        for tag, message in self._in_flight.items():
            known = message.message_id, message.exchange, message.routing_key
            if known == wanted and tag not in self._reasons:
                self._reasons[tag] = f"{returned.reply_code} {returned.reply_text}"
                return
        raise ClientError(f"the broker returned message '{message_id}', which is not in flight")

    def _settle(self, delivery_tag: int, *, multiple: bool, reason: str | None) -> None:
        if multiple:
            tags = range(self._settled + 1, delivery_tag + 1)
            self._settled = max(self._settled, delivery_tag)
        else:
            tags = range(delivery_tag, delivery_tag + 1)
        for tag in tags:
            message = self._in_flight.pop(tag, None)
            if message is None:
                continue  # settled earlier, by a confirm of its own
            self._in_flight_bytes -= len(message.body)
            why = self._reasons.pop(tag, reason)
            if why is None:
                self.confirmed += 1
            else:
                self._on_failure(Unpublished(message, why))
