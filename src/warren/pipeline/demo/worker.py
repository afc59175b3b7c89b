"""The shop's workers: each takes messages from a queue, at its pace, and accepts or rejects them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

from warren.amqp.errors import AmqpError
from warren.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicQos,
    BasicQosOk,
    BasicReject,
    decode_method,
)
from warren.client.connection import ClientConnection
from warren.client.dialogue import ask
from warren.client.errors import ClientError
from warren.client.frames import CHANNEL, method_frame
from warren.client.inbox import Frame, FrameKind
from warren.client.uri import Uri
from warren.pipeline.errors import PipelineError
from warren.pipeline.publisher import PRODUCT

PREFETCH = 100
TURN_SECONDS, SAVED_SECONDS_MAX = 0.02, 0.1
JOIN_SECONDS_MAX = 30


class Worker:
    """A context manager that consumes a queue in a thread of its own."""

    def __init__(self, uri: Uri, queue: str, *, accepts: Callable[[str, int], bool], rate: float) -> None:
        self.accepted = 0
        self.rejected = 0
        self._uri = uri
        self._queue = queue
        self._accepts = accepts  # decides by the routing key and the delivery tag
        self._rate = rate  # messages settled a second
        self._waiting: deque[BasicDeliver] = deque()  # delivered and not settled yet
        self._over = threading.Event()  # the thread is to end
        self._error: ClientError | None = None  # what ended the thread early
        self._thread = threading.Thread(target=self._run, name=f"worker of {queue}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self._over.set()
        self._thread.join(JOIN_SECONDS_MAX)
        if self._error is not None and kind is None:
            raise PipelineError(f"the worker of {self._queue}: {self._error}") from self._error

    def _run(self) -> None:
        try:
            with ClientConnection(self._uri, product=PRODUCT, on_frame=self._on_frame) as connection:
                connection.talk(ask(BasicQos(prefetch_count=PREFETCH), BasicQosOk))
                connection.talk(ask(BasicConsume(queue=self._queue, arguments={}), BasicConsumeOk))
                self._work(connection)
        except ClientError as error:
            self._error = error

    def _work(self, connection: ClientConnection) -> None:
        """Settle deliveries at the rate. Idle time is not made up for later, but for a tenth of a second."""
        allowance, before_s = 0.0, time.monotonic()
        while not self._over.is_set():
            connection.poll(TURN_SECONDS)
            now_s = time.monotonic()
            allowance = min(allowance + (now_s - before_s) * self._rate, self._rate * SAVED_SECONDS_MAX)
            before_s = now_s
            count = min(int(allowance), len(self._waiting))
            allowance -= count
            connection.send([self._settle(self._waiting.popleft()) for _ in range(count)])

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind != FrameKind.METHOD:
            return  # the content of messages does not matter
        try:
            method = decode_method(frame.payload)
        except AmqpError as error:
            raise ClientError(f"the broker sent a method nobody can read: {error.text}") from error
        if isinstance(method, BasicDeliver):
            self._waiting.append(method)

    def _settle(self, delivery: BasicDeliver) -> bytes:
        if self._accepts(delivery.routing_key, delivery.delivery_tag):
            self.accepted += 1
            return method_frame(CHANNEL, BasicAck(delivery_tag=delivery.delivery_tag))
        self.rejected += 1
        return method_frame(CHANNEL, BasicReject(delivery_tag=delivery.delivery_tag, requeue=False))
