"""What a measured queue gives its clients: how long confirms take, and for how long none come."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

from benchmarks.cluster_nodes import Cluster, ClusterNode
from benchmarks.compare import CompareError

from warren.amqp.methods import (
    BasicPublish,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)
from warren.amqp.table import Table
from warren.client.connection import ClientConnection
from warren.client.dialogue import ask
from warren.client.errors import ClientError, ClosedByBrokerError
from warren.client.inbox import Frame
from warren.client.uri import Uri, parse_uri
from warren.perf.frames import publish_frames
from warren.perf.link import finish, part
from warren.perf.loop import TURN_SECONDS_MAX, Loop
from warren.perf.publisher import LoadPublisher, Pace
from warren.perf.scanner import Histogram

PRODUCT = "cluster benchmark"
QUORUM: Table = {"x-queue-type": "quorum"}
ACK = (60).to_bytes(2, "big") + (80).to_bytes(2, "big")  # how the method basic.ack begins
RATE = 1000
BODY_BYTES = 256
WARM_UP_SECONDS = 1.0
TRY_AGAIN_SECONDS = 0.01
DECLARE_SECONDS_MAX = 30
BEFORE_SECONDS = 0.5  # of service, before something happens to the leader
AFTER_SECONDS = 1.5  # of service after it, with no gap as long as STEADY_SECONDS
STEADY_SECONDS = 0.5
GAP_SECONDS_MAX = 60


def declare(uri: str, queue: str) -> None:
    """Have a quorum queue at the node that leads it. Shortly after a start that may take some asking."""
    deadline = time.monotonic() + DECLARE_SECONDS_MAX
    while not leads(uri, queue, passive=False):
        if time.monotonic() > deadline:
            raise CompareError(f"the node at {uri} does not lead a queue that was declared there")
        time.sleep(TRY_AGAIN_SECONDS)


def leads(uri: str, queue: str, *, passive: bool = True) -> bool:
    """Whether a node takes a declare of the queue."""
    method = QueueDeclare(queue=queue, durable=True, passive=passive, arguments={} if passive else QUORUM)
    try:
        with ClientConnection(parse_uri(uri), product=PRODUCT) as connection:
            connection.talk(ask(method, QueueDeclareOk))
    except ClientError:
        return False
    return True


# --- how long confirms take ---


def time_confirms(uri: str, seconds: float) -> tuple[float, float]:
    """The 50th and the 99th percentile of milliseconds from a publish to its confirm, at a steady rate."""
    queue = "confirms"
    declare(uri, queue)
    times = Histogram()
    with Loop() as loop:
        pace = Pace(window=RATE, rate=RATE, chunk_bytes=BODY_BYTES)
        publish = BasicPublish(exchange="", routing_key=queue)
        publisher = LoadPublisher(loop, parse_uri(uri), publish, pace, body_bytes=BODY_BYTES, persistent=True)
        finish(loop, [publisher.link])
        publisher.started_s = time.monotonic()
        _watch(loop, publisher, Histogram(), WARM_UP_SECONDS)
        _watch(loop, publisher, times, seconds)
        part(loop, [publisher.link])
    return times.percentile(0.50) / 1e6, times.percentile(0.99) / 1e6


def _watch(loop: Loop, publisher: LoadPublisher, times: Histogram, seconds: float) -> None:
    sent: deque[int] = deque()  # when each message was that is not confirmed yet
    scanner = publisher.link.scanner
    confirmed, before = scanner.confirmed, publisher.sent
    for _ in range(before - confirmed):
        sent.append(time.monotonic_ns())
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        wait = publisher.pump(now)
        for _ in range(publisher.sent - before):
            sent.append(time.monotonic_ns())
        before = publisher.sent
        loop.turn(min(wait, TURN_SECONDS_MAX))
        if loop.errors:
            raise CompareError(f"confirms: {loop.errors[0]}")
        now_ns = time.monotonic_ns()
        for _ in range(scanner.confirmed - confirmed):
            times.record(now_ns - sent.popleft())
        confirmed = scanner.confirmed


# --- for how long none come ---


@dataclass(frozen=True)
class Failure:
    """What happens to the leader, and how it is there again afterwards."""

    happens: Callable[[ClusterNode], None]
    is_over: Callable[[ClusterNode], None]


def _signal(number: signal.Signals, node: ClusterNode) -> None:
    node.signal(number)


FAILURES = {
    "kill": Failure(partial(_signal, signal.SIGKILL), ClusterNode.start_again),
    "pause": Failure(partial(_signal, signal.SIGSTOP), partial(_signal, signal.SIGCONT)),
    "cut": Failure(lambda node: node.host.cut(), lambda node: node.host.mend()),
    "stop": Failure(partial(_signal, signal.SIGTERM), ClusterNode.start_again),
}


class Service:
    """Clients at all nodes that publish to one queue, each one message after the other."""

    def __init__(self, cluster: Cluster, queue: str) -> None:
        self.queue = queue
        self.confirms: list[float] = []  # when they came
        self.is_over = threading.Event()
        self.clients = [threading.Thread(target=self._publish, args=(node.uri,)) for node in cluster.nodes]

    def _publish(self, uri: str) -> None:
        to = parse_uri(f"{uri}?connection_timeout=1000")
        while not self.is_over.is_set():
            with contextlib.suppress(ClientError):
                self._publish_at(to)
            self.is_over.wait(TRY_AGAIN_SECONDS)

    def _publish_at(self, uri: Uri) -> None:
        """Until the connection breaks. While the node does not take the queue's messages, ask again."""
        waiting = 0

        def note(frame: Frame) -> None:
            nonlocal waiting
            waiting -= 1
            if frame.payload.startswith(ACK):
                self.confirms.append(time.monotonic())

        connection = ClientConnection(uri, product=PRODUCT, on_frame=note)
        publish = BasicPublish(exchange="", routing_key=self.queue)
        message = publish_frames(
            publish, body_bytes=BODY_BYTES, persistent=True, frame_max=connection.frame_max
        )
        with contextlib.closing(connection):
            while not self.is_over.is_set():
                try:
                    connection.talk(ask(ConfirmSelect(), ConfirmSelectOk))
                    waiting = 0
                    while not self.is_over.is_set():
                        connection.send([message.data])
                        waiting += 1
                        while waiting and not self.is_over.is_set():
                            connection.poll(TURN_SECONDS_MAX)
                except ClosedByBrokerError:  # the channel, or if it was the connection, what follows fails
                    self.is_over.wait(TRY_AGAIN_SECONDS)
                    connection.talk(ask(ChannelOpen(), ChannelOpenOk))

    def __enter__(self) -> Self:
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.is_over.set()
        for client in self.clients:
            client.join()

    def wait_until_steady(self, seconds: float, since: float) -> None:
        """Wait until confirms have come for so long without a long gap, but for one at the beginning."""
        deadline = time.monotonic() + GAP_SECONDS_MAX
        while time.monotonic() < deadline:
            time.sleep(TURN_SECONDS_MAX)
            times = [moment for moment in self.confirms if moment > since]
            steady_from = time.monotonic() - seconds
            late = [steady_from, *(moment for moment in times if moment > steady_from), time.monotonic()]
            gaps = [after - before for before, after in itertools.pairwise(late)]
            if times and times[0] <= steady_from and max(gaps) < STEADY_SECONDS:
                return
        raise CompareError(f"no steady service within {GAP_SECONDS_MAX} s")

    def longest_gap(self, since: float) -> float:
        """Between two confirms, of which the later one came after this moment."""
        times = sorted(self.confirms)
        return max(after - before for before, after in itertools.pairwise(times) if after > since)


def longest_gap(cluster: Cluster, name: str) -> float:
    """In seconds, when this happens to the leader of a queue."""
    queue, failure = f"service-{name}", FAILURES[name]
    leader = _leader_of_new(cluster, queue)
    with Service(cluster, queue) as service:
        began = time.monotonic()
        service.wait_until_steady(BEFORE_SECONDS, began)
        happened = time.monotonic()
        failure.happens(leader)
        try:
            service.wait_until_steady(AFTER_SECONDS, happened)
            gap = service.longest_gap(happened)
        finally:
            failure.is_over(leader)
    cluster.wait_until_whole()
    return gap


def _leader_of_new(cluster: Cluster, queue: str) -> ClusterNode:
    """Declare a queue at the first node, and find its leader: that node, if it leads anything."""
    deadline = time.monotonic() + DECLARE_SECONDS_MAX
    leads(cluster.nodes[0].uri, queue, passive=False)
    while time.monotonic() < deadline:
        for node in cluster.nodes:
            if leads(node.uri, queue):
                return node
        time.sleep(TRY_AGAIN_SECONDS)
        leads(cluster.nodes[0].uri, queue, passive=False)
    raise CompareError(f"nobody leads queue {queue}")
