"""A publisher that sends as fast as its socket takes it, as confirms allow, or at a steady rate."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass

from warren.amqp.methods import BasicPublish, ConfirmSelect, ConfirmSelectOk
from warren.client.dialogue import Dialogue, ask, log_in
from warren.client.uri import Uri
from warren.perf.frames import publish_frames
from warren.perf.link import LoadLink
from warren.perf.loop import Loop
from warren.perf.scanner import stamp

UNLIMITED = sys.maxsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast one publisher may publish. 0 stands for no limit."""

    window: int  # how many messages may be unconfirmed
    rate: float  # messages a second
    chunk_bytes: int  # about how much may be sent in one turn of the loop
    total: int = 0  # messages in all


class LoadPublisher:
    """Sends one message over and over, from a chunk that holds many encoded copies of it."""

    def __init__(
        self, loop: Loop, uri: Uri, publish: BasicPublish, pace: Pace, *, body_bytes: int, persistent: bool
    ) -> None:
        self.link = LoadLink(loop, uri)
        self.sent = 0  # messages handed to the link
        self.started_s = 0.0  # when the pace begins to count
        self._pace = pace
        self.link.start(self._prepare(uri, publish, body_bytes, persistent))

    def _prepare(self, uri: Uri, publish: BasicPublish, body_bytes: int, persistent: bool) -> Dialogue[None]:
        frame_max = (yield from log_in(uri)).frame_max
        if self._pace.window:
            yield from ask(ConfirmSelect(), ConfirmSelectOk)
        message = publish_frames(publish, body_bytes=body_bytes, persistent=persistent, frame_max=frame_max)
        self._stride = len(message.data)  # how far two messages in the chunk are apart
        self._stamp_at = message.stamp_at  # where in a message the time of sending goes
        self._count_max = max(1, self._pace.chunk_bytes // self._stride)  # messages in the chunk
        self._chunk = bytearray(message.data * self._count_max)
        self._view = memoryview(self._chunk)

    def pump(self, now_s: float) -> float:
        """Send a chunk, or as much of it as the pace allows; return after how many seconds more may be sent,
        infinity if something has to arrive first.
        """
        if self.link.pending or self.link.held:
            return math.inf
        allowed = self._allowed(now_s)
        count = min(allowed, self._count_max)
        if count > 0:
            if self._stamp_at is not None:
                stamp(self._chunk, self._stamp_at, self._stride, count, time.monotonic_ns())
            self.sent += count
            self.link.send(self._view[: count * self._stride])
        return self._wait_s(now_s, more=allowed > count)

    def _allowed(self, now_s: float) -> int:
        allowed = UNLIMITED
        if self._pace.rate:
            allowed = int((now_s - self.started_s) * self._pace.rate) - self.sent
        if self._pace.total:
            allowed = min(allowed, self._pace.total - self.sent)
        return min(allowed, self._room())

    def _room(self) -> int:
        """How many messages the window of unconfirmed ones has room for."""
        scanner = self.link.scanner
        unconfirmed = self.sent - scanner.confirmed - scanner.nacked
        return self._pace.window - unconfirmed if self._pace.window else UNLIMITED

    def _wait_s(self, now_s: float, *, more: bool) -> float:
        if self.link.pending or self._room() <= 0 or 0 < self._pace.total <= self.sent:
            return math.inf
        if more or not self._pace.rate:
            return 0.0
        due_s = self.started_s + (self.sent + 1) / self._pace.rate
        return max(0.0, due_s - now_s)
