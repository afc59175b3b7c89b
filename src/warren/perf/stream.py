"""Fills a stream, with confirms, and then reads it from its first offset, to measure how fast each goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from warren.amqp.methods import BasicPublish
from warren.client.errors import ClientError
from warren.client.uri import Uri
from warren.perf.consumer import LoadConsumer
from warren.perf.interrupt import Interrupt
from warren.perf.link import LoadLink, finish, part
from warren.perf.loop import TURN_SECONDS_MAX, Loop
from warren.perf.publisher import LoadPublisher, Pace
from warren.perf.results import StreamResult
from warren.perf.scanner import Histogram
from warren.perf.screen import LIVE_SECONDS, Show
from warren.perf.throughput import TURN_PUBLISH_BYTES
from warren.perf.topology import Layout, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """One run."""

    messages: int
    readers: int  # consumers that each read all messages
    body_bytes: int
    window: int  # how many messages may be unconfirmed
    ack_every: int  # how many deliveries to one ack
    prefetch: int


def run_stream(uri: Uri, plan: StreamPlan, show: Show) -> StreamResult:
    with (
        Loop() as loop,
        Topology(uri, Layout(durable=True, stream=True)) as topology,
        Interrupt() as interrupt,
    ):
        run = StreamRun(loop, uri, plan, topology.names[0], interrupt, show)
        fill_s = run.fill()
        read_s = run.read()
        part(loop, run.links, interrupt)
    return StreamResult(
        messages=plan.messages, readers=plan.readers, fill_seconds=fill_s, read_seconds=read_s
    )


class StreamRun:
    def __init__(
        self, loop: Loop, uri: Uri, plan: StreamPlan, queue: str, interrupt: Interrupt, show: Show
    ) -> None:
        self.links: list[LoadLink] = []
        self._loop = loop
        self._uri = uri
        self._plan = plan
        self._queue = queue
        self._interrupt = interrupt
        self._show = show

    def fill(self) -> float:
        plan = self._plan
        publish = BasicPublish(exchange="", routing_key=self._queue)
        pace = Pace(window=plan.window, rate=0, chunk_bytes=TURN_PUBLISH_BYTES, total=plan.messages)
        publisher = LoadPublisher(
            self._loop, self._uri, publish, pace, body_bytes=plan.body_bytes, persistent=True
        )
        self._open([publisher.link])

        def confirmed() -> int:
            publisher.pump(time.monotonic())
            if publisher.link.scanner.nacked:
                raise ClientError("the broker refused messages")
            return publisher.link.scanner.confirmed

        return self._until("written", confirmed, plan.messages)

    def read(self) -> float:
        plan, latencies = self._plan, Histogram()
        begun_s = time.monotonic()
        consumers = [
            LoadConsumer(
                self._loop,
                self._uri,
                self._queue,
                latencies,
                ack_every=plan.ack_every,
                prefetch=plan.prefetch,
                arguments={"x-stream-offset": "first"},
            )
            for _ in range(plan.readers)
        ]
        self._open([consumer.link for consumer in consumers])
        wanted = plan.messages * plan.readers
        self._until("read", lambda: sum(c.link.scanner.deliveries for c in consumers), wanted)
        return time.monotonic() - begun_s

    def _open(self, links: list[LoadLink]) -> None:
        self.links += links
        finish(self._loop, links)

    def _until(self, what: str, done: Callable[[], int], wanted: int) -> float:
        """Run until `done()` has reached `wanted`; return how many seconds that took."""
        begun_s = shown_s = time.monotonic()
        count = done()
        while count < wanted:
            if self._interrupt.requested:
                raise KeyboardInterrupt
            self._loop.turn(TURN_SECONDS_MAX)
            if self._loop.errors:
                raise self._loop.errors[0]
            count, now_s = done(), time.monotonic()
            if now_s - shown_s >= LIVE_SECONDS:
                shown_s = now_s
                self._show(f"{what} {count:,} of {wanted:,}   {count / (now_s - begun_s):11,.0f}/s")
        return time.monotonic() - begun_s
