"""Runs publishers and consumers side by side for some seconds, to measure throughput and latency."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from warren.amqp.methods import BasicPublish
from warren.client.uri import Uri
from warren.perf.consumer import LoadConsumer
from warren.perf.files import allow_connections
from warren.perf.interrupt import Interrupt
from warren.perf.link import LoadLink, finish, part
from warren.perf.loop import TURN_SECONDS_MAX, Loop
from warren.perf.publisher import LoadPublisher, Pace
from warren.perf.results import Counts, Latency, ThroughputResult
from warren.perf.scanner import Histogram
from warren.perf.screen import LIVE_SECONDS, Show
from warren.perf.topology import Layout, Topology

TURN_PUBLISH_BYTES = 64 * 1024
"""How much all publishers together may send in one turn: little beside what one consumer may read in it."""

CHUNK_BYTES_MIN = 4 * 1024
"""How much each publisher may send in one turn, however many there are: enough to be worth a system call."""

OPENING_MAX = 32
"""How many connections are opened at once: a broker's listening queue is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run."""

    publishers: int = 1
    consumers: int = 1
    body_bytes: int = 16
    persistent: bool = False
    window: int = 0  # how many messages a publisher may have unconfirmed; 0 for no confirms
    ack_every: int = 0  # how many deliveries to one ack; 0 for auto-ack
    prefetch: int = 0  # 0 for no limit
    rate: float = 0  # messages a second of all publishers together; 0 for no limit
    seconds: float = 10  # how long to measure
    warmup_s: float = 1  # how long to run before that
    layout: Layout = field(default_factory=Layout)  # the queues

    def pace(self) -> Pace:
        ends = max(1, self.publishers)
        chunk_bytes = max(CHUNK_BYTES_MIN, TURN_PUBLISH_BYTES // ends)
        return Pace(window=self.window, rate=self.rate / ends, chunk_bytes=chunk_bytes)


def run_throughput(uri: Uri, plan: Plan, show: Show) -> ThroughputResult:
    allow_connections(plan.publishers + plan.consumers)
    with Loop() as loop:
        load = Load(loop, uri, plan)
        with Topology(uri, plan.layout) as topology:
            load.open(topology.names)
            with Interrupt() as interrupt:
                result = load.measure(interrupt, show)
        with interrupt:
            show("waiting until the broker has dealt with all that was sent")
            part(loop, load.links, interrupt)
    return result


class Load:
    """The connections of a run, and how much they have done so far."""

    def __init__(self, loop: Loop, uri: Uri, plan: Plan) -> None:
        self.links: list[LoadLink] = []  # of all publishers and consumers
        self._loop = loop
        self._uri = uri
        self._plan = plan
        self._publishers: list[LoadPublisher] = []
        self._consumers: list[LoadConsumer] = []
        self._latencies = Histogram()  # of all consumers, since the warm-up

    def open(self, queues: list[str]) -> None:
        for link in self._ends(queues):
            self.links.append(link)
            if len(self.links) % OPENING_MAX == 0:
                finish(self._loop, self.links)
        finish(self._loop, self.links)

    def _ends(self, queues: list[str]) -> Iterator[LoadLink]:
        """Open all connections, consumers first: a message published before would seem to take long."""
        plan = self._plan
        for i in range(plan.consumers):
            queue = queues[i % len(queues)]
            consumer = LoadConsumer(
                self._loop,
                self._uri,
                queue,
                self._latencies,
                ack_every=plan.ack_every,
                prefetch=plan.prefetch,
            )
            self._consumers.append(consumer)
            yield consumer.link
        for i in range(plan.publishers):
            publish = BasicPublish(exchange=plan.layout.exchange, routing_key=queues[i % len(queues)])
            publisher = LoadPublisher(
                self._loop,
                self._uri,
                publish,
                plan.pace(),
                body_bytes=plan.body_bytes,
                persistent=plan.persistent,
            )
            self._publishers.append(publisher)
            yield publisher.link

    def counts(self) -> Counts:
        return Counts(
            published=sum(p.sent for p in self._publishers),
            confirmed=sum(p.link.scanner.confirmed for p in self._publishers),
            nacked=sum(p.link.scanner.nacked for p in self._publishers),
            consumed=sum(c.link.scanner.deliveries for c in self._consumers),
        )

    def measure(self, interrupt: Interrupt, show: Show) -> ThroughputResult:
        """Run the warm-up, which does not count, and then measure."""
        now_s = time.monotonic()
        for i, publisher in enumerate(self._publishers):
            # With a rate the publishers take turns instead of sending all at the same moment.
            publisher.started_s = now_s + (i / self._plan.rate if self._plan.rate else 0)
        self._run_until(now_s + self._plan.warmup_s, interrupt, show)
        self._latencies.clear()
        before, begun_s = self.counts(), time.monotonic()
        self._run_until(begun_s + self._plan.seconds, interrupt, show)
        elapsed_s = time.monotonic() - begun_s
        return ThroughputResult(
            seconds=elapsed_s,
            total=self.counts().since(before),
            latency=Latency.of(self._latencies),
            blocked=sum(p.link.held_count for p in self._publishers),
        )

    def _run_until(self, end_s: float, interrupt: Interrupt, show: Show) -> None:
        shown, shown_s = self.counts(), time.monotonic()
        while not interrupt.requested:
            now_s = time.monotonic()
            if now_s >= end_s:
                return
            if now_s - shown_s >= LIVE_SECONDS:
                counts = self.counts()
                show(self._live(counts.since(shown), now_s - shown_s))
                shown, shown_s = counts, now_s
            self._turn(now_s, end_s)

    def _turn(self, now_s: float, end_s: float) -> None:
        wait_s = min(TURN_SECONDS_MAX, end_s - now_s)
        for publisher in self._publishers:
            wait_s = min(wait_s, publisher.pump(now_s))
        self._loop.turn(wait_s)
        if self._loop.errors:
            raise self._loop.errors[0]

    def _live(self, done: Counts, elapsed_s: float) -> str:
        stages = {"published": done.published, "confirmed": done.confirmed, "consumed": done.consumed}
        text = "   ".join(f"{name} {count / elapsed_s:11,.0f}/s" for name, count in stages.items())
        return text + ("   blocked by the broker" if any(p.link.held for p in self._publishers) else "")
