"""Clients of a cluster whose nodes come and go: what they sent, what was confirmed, and what came back."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.host_cluster import NAMES, HostCluster, eventually
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.errors import UnexpectedError
from tests.support.process import Address
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties

SILENCE_SECONDS = 3.0  # of a node, until a publisher tries another one
RETRY_SECONDS = 0.1
PAUSE_SECONDS = 0.01  # between confirms: the load of many publishers would be that on one machine
QUIET_SECONDS = 0.1  # after which a consumer asks whether there is more
PREFETCH = 1_000
PERSISTENT = BasicProperties(delivery_mode=2)


@dataclass(frozen=True)
class Got:
    """A message that was delivered."""

    number: int
    redelivered: bool


def connect(address: Address, silence_seconds: float = SILENCE_SECONDS) -> AmqpClient:
    """A connection that gives up after some silence."""
    client = AmqpClient(address, wait_seconds_max=silence_seconds)
    try:
        client.start()
        client.authenticate()
        client.tune()
        client.open()
    except BaseException:
        client.abort()
        raise
    return client


class Publisher(threading.Thread):
    """Publishes 0, 1, 2 … at whatever node leads the queue, with up to `window` of them unconfirmed. When a
    connection breaks, what was not confirmed goes again, in order, before anything newer.
    """

    def __init__(
        self, cluster: HostCluster, queue: str, *, window: int = 50, last: int | None = None
    ) -> None:
        super().__init__()
        self.cluster = cluster
        self.queue = queue
        self.window = window
        self.last = last  # the number to end with; None: until it is stopped
        self.sent = 0  # the numbers below this were, once at least
        self.confirmed = 0  # the numbers below this are
        self.repeated = 0  # how many went again
        self.nodes: list[str] = []  # where it was confirmed something, without repeats
        self.is_over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.is_over.set()
        self.join()

    @property
    def is_done(self) -> bool:
        return self.is_over.is_set() or (self.last is not None and self.confirmed > self.last)

    def run(self) -> None:
        while not self.is_done:
            for name in NAMES:
                with contextlib.suppress(UnexpectedError, OSError):
                    self._publish_at(name)
            self.is_over.wait(RETRY_SECONDS)

    def _publish_at(self, name: str) -> None:
        client = connect(self.cluster.brokers[name].address)
        try:
            channel = client.channel()
            channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            self._publish(channel, name)
        finally:
            client.abort()

    def _publish(self, channel: AmqpChannel, name: str) -> None:
        out: deque[tuple[int, int]] = deque()  # delivery tags, and numbers
        number, tag = self.confirmed, 0
        while not self.is_done:
            while len(out) < self.window and (self.last is None or number <= self.last):
                channel.publish("", self.queue, b"%d" % number, PERSISTENT)
                tag += 1
                out.append((tag, number))
                self.repeated += number < self.sent
                number += 1
                self.sent = max(self.sent, number)
            self.is_over.wait(PAUSE_SECONDS)
            confirmed = channel.expect(m.BasicAck)
            while out and out[0][0] <= confirmed.delivery_tag:
                if not confirmed.multiple and out[0][0] != confirmed.delivery_tag:
                    raise UnexpectedError(f"{confirmed} is not the next one")
                self.confirmed = out.popleft()[1] + 1
            if not self.nodes or self.nodes[-1] != name:
                self.nodes.append(name)

    def wait_for(self, count: int) -> None:
        """Until so many more are confirmed."""
        enough = self.confirmed + count
        eventually(lambda: self.confirmed >= enough)

    def wait_for_end(self) -> None:
        eventually(lambda: not self.is_alive())

    def check(self, found: list[Got], *, taken: int = 0) -> None:
        """What must hold of all that came: nothing that was confirmed is missing, but for the first ones,
        which were `taken` before; nothing came that was not sent; all came in order, but for repeats; nothing
        came more often than it was sent.
        """
        numbers = [got.number for got in found]
        lost = set(range(taken, self.confirmed)) - set(numbers)
        assert not lost, f"{len(lost)} of {self.confirmed} are lost, such as {min(lost)}"
        assert set(numbers) <= set(range(self.sent))
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first), "out of order"
        assert len(numbers) - len(first) <= self.repeated


def drained(cluster: HostCluster, queue: str) -> list[Got]:
    """Take all messages of a queue, at the node that leads it. Nothing may happen to that node meanwhile."""
    found: list[Got] = []

    def is_drained() -> bool:
        try:
            with cluster.channel(cluster.wait_for_leader(queue)) as channel:
                found.extend(_take_all(channel, queue))
        except pika.exceptions.AMQPError:
            return False  # the queue has moved on; what was taken is acked, or comes again
        return True

    eventually(is_drained)
    return found


def _take_all(channel: BlockingChannel, queue: str) -> Iterator[Got]:
    channel.basic_qos(prefetch_count=PREFETCH)
    for method, _, body in channel.consume(queue, inactivity_timeout=QUIET_SECONDS):
        if method is not None:
            assert body is not None
            channel.basic_ack(method.delivery_tag)
            yield Got(int(body), method.redelivered)
        elif channel.queue_declare(queue, passive=True).method.message_count == 0:
            return
