"""Publishing with confirms: every message is known to be safe, or refused and why.

Up to `window` messages are in flight, and none follows when those have `IN_FLIGHT_BYTES_MAX`. What the broker
returns, because no queue is bound for it, or refuses is handed to `on_failure`, which may raise to end it
all. While the broker says that it is blocked nothing is sent, for as long as it takes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

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
from warren.client.dialogue import ask
from warren.client.errors import ClientError
from warren.client.frames import CHANNEL
from warren.client.inbox import Frame, FrameKind
from warren.client.uri import Uri
from warren.pipeline.errors import PipelineError

PRODUCT = "warren pipeline"
WINDOW_DEFAULT = 10_000
"""Where a sync takes 20 ms, that is half a million messages a second."""

IN_FLIGHT_BYTES_MAX = 16 << 20
CHUNK_BYTES = 64 * 1024
"""What is gathered before it is sent."""

CONFIRM_SECONDS_MAX = 300
"""How long nothing at all may come from a broker that owes confirms: disks are slow, but not so slow."""

BLOCKED_SECONDS = 1.0
PACE_SECONDS = 0.02
"""At a limited rate, what is due is sent this often."""

CONTENT_HEAD_BYTES = 12
REFUSED = "the broker refused it"


class OutgoingMessage(NamedTuple):
    """What to publish: the method's payload and the properties are encoded; the rest is to name it by."""

    method: bytes
    properties: bytes
    body: bytes
    exchange: str
    routing_key: str
    message_id: str


class Unpublished(NamedTuple):
    """A message that is in no queue, and why."""

    message: OutgoingMessage
    reason: str


class PublishError(PipelineError):
    """The connection failed; `confirmed` messages are safe, of the others nobody knows."""

    def __init__(self, reason: str, *, confirmed: int, sent: int) -> None:
        so_far = f"; {confirmed} of the {sent} messages sent by this task were confirmed" if sent else ""
        super().__init__(reason + so_far)
        self.confirmed = confirmed
        self.sent = sent


class ConfirmingPublisher:
    """One connection that publishes. Leaving it waits for what is in flight."""

    def __init__(
        self,
        uri: Uri,
        *,
        on_failure: Callable[[Unpublished], None],
        window: int = WINDOW_DEFAULT,
        rate: float = 0.0,
    ) -> None:
        self.sent = 0
        self.confirmed = 0
        self._on_failure = on_failure
        self._window = window
        self._rate = rate
        self._in_flight: dict[int, OutgoingMessage] = {}
        self._in_flight_bytes = 0
        self._settled = 0
        self._reasons: dict[int, str] = {}
        self._returned: BasicReturn | None = None
        self._output = Output([], None)
        try:
            self._connection = ClientConnection(uri, product=PRODUCT, on_frame=self._on_frame)
            self._connection.talk(ask(ConfirmSelect(), ConfirmSelectOk))
        except ClientError as error:
            raise PublishError(str(error), confirmed=0, sent=0) from error
        self._output.frame_max = self._connection.frame_max
        self._started_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    def close(self) -> None:
        """Drop the connection; `finish` first, unless there is no more to save."""
        self._connection.close()

    def publish(self, message: OutgoingMessage) -> None:
        """Hot: benchmarks/spark_write.py watches it."""
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

    def finish(self) -> None:
        """Send what is left, wait until everything is settled, and say farewell."""
        self._flush()
        while self._in_flight:
            self._await()
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
        """Send what was gathered, as soon as the broker wants any."""
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
        """What the connection fails of, with how far it came."""
        try:
            yield
        except ClientError as error:
            raise PublishError(str(error), confirmed=self.confirmed, sent=self.sent) from error

    def _on_frame(self, frame: Frame) -> None:
        """Acks, nacks, and returned messages, of whose content only that is read which tells whose it is."""
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
        """It is known by its id and where it was to go: ids that come from a table may be there twice. The
        broker returns a message before it confirms it, so it is in flight.
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
                continue  # confirmed alone before
            self._in_flight_bytes -= len(message.body)
            why = self._reasons.pop(tag, reason)
            if why is None:
                self.confirmed += 1
            else:
                self._on_failure(Unpublished(message, why))
