"""A stage for the tests of rules: a broker with a disk, a clock that the test moves on, and clients.

A queue keeps messages in several ways: ready, packed in memory, in an overflow on disk, or in its log. A rule
has to hold for each; `Keeping` says which one a test uses. Except for `READY`, at most three messages are
ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, check_clients
from tests.support.frames import Content, decode_contents, decode_methods, published
from tests.support.machine import Machine, small_limits
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, TRANSIENT, BasicProperties
from warren.amqp.reader import ReadBuffer
from warren.amqp.table import Table, Value
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.server.app import CHECK_SECONDS

MUCH_MEMORY = 1 << 20
HOUR_MS = 3_600_000
ANSWERS = m.BasicConsumeOk | m.BasicCancelOk | m.BasicQosOk
TO_DEAD: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


class Keeping(NamedTuple):
    name: str
    small: bool  # whether few messages are ready
    durable: bool  # whether queues are
    modes: tuple[int, ...]  # the delivery modes of messages, in turn
    memory_bytes: int  # for packed messages


READY = Keeping("ready", False, False, (TRANSIENT,), MUCH_MEMORY)
PACKED = Keeping("packed", True, False, (TRANSIENT,), MUCH_MEMORY)
ASIDE = Keeping("aside", True, False, (TRANSIENT,), 1)
LOG = Keeping("log", True, True, (PERSISTENT,), MUCH_MEMORY)
MIXED = Keeping("mixed", True, True, (TRANSIENT, PERSISTENT, PERSISTENT), 1)
KEEPINGS = (READY, PACKED, ASIDE, LOG, MIXED)


class PreparedMessage(NamedTuple):
    body: bytes
    properties: BasicProperties


class Client(FakeClient):
    """A client. When one of its methods returns, the broker has done it, and it is safe on disk."""

    def __init__(self, stage: Stage, *, confirming: bool = False, prefetch: int = 0) -> None:
        super().__init__(stage.node, buffer=stage.buffer)
        self.stage = stage
        self.unconfirmed: set[int] = set()
        self.published = 0
        self.gathered = bytearray()
        self.open()
        if confirming:
            self.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        if prefetch:
            self.call(m.BasicQos(prefetch_count=prefetch), m.BasicQosOk)

    def send(self, method: m.Method, channel: int = 1) -> None:
        super().send(method, channel)
        self.stage.settle()

    def expect_nothing(self) -> None:
        """The broker has sent nothing, and the channel is open."""
        assert self.methods() == []
        assert 1 in self.connection.channels

    def send_only(self, method: m.Method) -> None:
        """Send a method, and do not wait until it is safe on disk."""
        super().send(method)

    def hang_up(self) -> None:
        super().hang_up()
        self.stage.settle()

    # --- queues ---

    def queue(self, name: str, arguments: Table | None = None, *, durable: bool = True) -> Queue:
        """Declare a queue. It is durable if the stage's queues are; a quorum queue always is."""
        is_quorum = (arguments or {}).get("x-queue-type") == "quorum"
        durable = is_quorum or (durable and self.stage.keeping.durable)
        return self.declare(name, arguments=arguments, durable=durable)

    def count(self, queue: str) -> int:
        """How many messages are ready, as queue.declare-ok says."""
        declare = m.QueueDeclare(queue=queue, passive=True, arguments={})
        return self.call(declare, m.QueueDeclareOk).message_count

    def purge(self, queue: str, count: int) -> None:
        """Purge a queue, which must have this many messages."""
        assert self.call(m.QueuePurge(queue=queue), m.QueuePurgeOk).message_count == count

    def delete(self, queue: str) -> None:
        self.call(m.QueueDelete(queue=queue), m.QueueDeleteOk)

    # --- publishing ---

    def put(
        self,
        key: str,
        *bodies: bytes,
        exchange: str = "",
        headers: Table | None = None,
        expiration: int | None = None,
        priority: int | None = None,
        mandatory: bool = False,
    ) -> None:
        """Publish each body as a message, each in a turn of its own."""
        for body in bodies:
            message = self.message(body, headers=headers, expiration=expiration, priority=priority)
            self.put_together([message], key, exchange=exchange, mandatory=mandatory)

    def message(
        self,
        body: bytes,
        *,
        headers: Table | None = None,
        expiration: int | None = None,
        priority: int | None = None,
    ) -> PreparedMessage:
        properties = BasicProperties(
            headers=headers,
            delivery_mode=self.stage.next_mode(),
            priority=priority,
            expiration=None if expiration is None else str(expiration),
        )
        return PreparedMessage(body, properties)

    def put_together(
        self,
        messages: Iterable[PreparedMessage],
        key: str,
        *,
        exchange: str = "",
        mandatory: bool = False,
    ) -> None:
        """Publish messages in one turn."""
        for message in messages:
            self.publish_soon(message, key, exchange=exchange, mandatory=mandatory)
        self.flush()

    def publish_soon(
        self, message: PreparedMessage, key: str, *, exchange: str = "", mandatory: bool = False
    ) -> None:
        """Publish a message with the next `flush`."""
        self.gathered += published(exchange, key, *message, mandatory=mandatory)
        self.published += 1
        self.unconfirmed.add(self.published)

    def flush(self) -> None:
        frames, self.gathered = bytes(self.gathered), bytearray()
        self.connection.feed(frames)
        self.stage.settle()

    def confirms(self) -> list[tuple[str, int]]:
        """Acks and nacks, a pair for each message, in the order in which they came."""
        said = []
        for method in self.methods():
            assert isinstance(method, m.BasicAck | m.BasicNack), method
            covered = {method.delivery_tag}
            if method.multiple:
                covered = {tag for tag in self.unconfirmed if tag <= method.delivery_tag}
            for tag in sorted(covered):
                said.append((method.name.removeprefix("basic."), tag))
                self.unconfirmed.remove(tag)
        return said

    def nacked(self) -> list[int]:
        """The messages that were refused; all others must have been confirmed."""
        said = self.confirms()
        assert not self.unconfirmed
        return [tag for what, tag in said if what == "nack"]

    # --- taking ---

    def get(self, queue: str, *, no_ack: bool = True) -> Content[m.BasicGetOk] | None:
        self.send(m.BasicGet(queue=queue, no_ack=no_ack))
        frames = [frame for frame in self.frames() if frame.channel == 1]
        (method,) = decode_methods(frames)
        if isinstance(method, m.BasicGetEmpty):
            return None
        assert isinstance(method, m.BasicGetOk), method
        (content,) = decode_contents(frames)
        return Content(method, content.properties, content.body)

    def take(self, queue: str) -> Content[m.BasicGetOk]:
        """Get a message, which must be there, and do not settle it."""
        content = self.get(queue, no_ack=False)
        assert content is not None, f"{queue} is empty"
        return content

    def drain_all(self, queue: str) -> list[Content[m.BasicGetOk]]:
        contents = []
        while (content := self.get(queue)) is not None:
            contents.append(content)
        return contents

    def drain(self, queue: str) -> list[bytes]:
        return [content.body for content in self.drain_all(queue)]

    def start(
        self,
        queue: str,
        tag: str = "c",
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        prefetch: int | None = None,
        arguments: Table | None = None,
    ) -> None:
        """Start a consumer, which must succeed; `deliveries` returns what it gets at once."""
        if prefetch is not None:
            self.send(m.BasicQos(prefetch_count=prefetch))
        consume = m.BasicConsume(
            queue=queue, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive, arguments=arguments or {}
        )
        self.send(consume)
        assert tag in self.channel.consumers, self.methods()

    def deliveries(self) -> list[Content[m.BasicDeliver]]:
        """Deliveries since the last call. Besides them, the broker may only have sent answers."""
        frames = [frame for frame in self.frames() if frame.channel == 1]
        for method in decode_methods(frames):
            assert isinstance(method, m.BasicDeliver | ANSWERS), method
        return [
            Content(content.method, content.properties, content.body)
            for content in decode_contents(frames)
            if isinstance(content.method, m.BasicDeliver)
        ]

    def delivered(self) -> list[bytes]:
        return [content.body for content in self.deliveries()]

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        self.send(m.BasicAck(delivery_tag=delivery_tag, multiple=multiple))

    def reject(self, delivery_tag: int) -> None:
        self.send(m.BasicReject(delivery_tag=delivery_tag, requeue=False))

    def requeue(self, delivery_tag: int) -> None:
        self.send(m.BasicNack(delivery_tag=delivery_tag, requeue=True))

    def cancel(self, tag: str = "c") -> None:
        """Cancel a consumer; what the broker has sent can still be looked at."""
        self.send(m.BasicCancel(consumer_tag=tag))

    def reopen(self) -> None:
        """Close channel 1, so that its unacked messages return, and open it again."""
        self.frames()
        self.call(m.ChannelClose(reply_code=200), m.ChannelCloseOk)
        self.call(m.ChannelOpen(), m.ChannelOpenOk)


class Stage:
    def __init__(self, path: Path, keeping: Keeping) -> None:
        self.keeping = keeping
        self.modes = cycle(keeping.modes)
        self.machine = Machine(path, memory_bytes=keeping.memory_bytes)
        self.settle()
        self.client = self.connect()

    @property
    def node(self) -> Node:
        return self.machine.node

    @property
    def buffer(self) -> ReadBuffer:
        return self.machine.buffer

    @property
    def world(self) -> FakeWorld:
        return self.machine.world

    @property
    def queues(self) -> dict[str, Queue]:
        return self.machine.queues

    def next_mode(self) -> int:
        return next(self.modes)

    def connect(self, *, confirming: bool = False, prefetch: int = 0) -> Client:
        return Client(self, confirming=confirming, prefetch=prefetch)

    def settle(self) -> None:
        self.machine.run()

    def pass_ms(self, ms: float) -> None:
        """Let time pass. Of a long time only the last hour passes, and the clock is set ahead by the rest:
        the broker looks at it every 10 seconds, which would take long for a century.
        """
        leap_ms = max(int(ms) - HOUR_MS, 0)
        self.world.ahead_ms += leap_ms
        self.world.advance((ms - leap_ms) / 1000)
        self.settle()

    def pass_time(self, seconds: float) -> None:
        """Let time pass in small steps, and check the clients after each, as the server does."""
        for _ in range(round(seconds / CHECK_SECONDS)):
            self.world.advance(CHECK_SECONDS)
            self.settle()
            check_clients(self.node, self.world)
            self.settle()

    def restart(self, *, down_ms: int = 0) -> Client:
        """Stop the broker cleanly and start it again; the new client. That alone takes more than a second."""
        self.machine.stop()
        self._come_back(down_ms)
        return self.client

    def kill(self, rng: Random, *, power: bool = False) -> Client:
        """Kill the broker while the disk writes; with `power`, what was not synced may be lost."""
        (self.machine.cut_power if power else self.machine.kill)(rng)
        self._come_back(0)
        return self.client

    def _come_back(self, down_ms: int) -> None:
        self.check()
        self.world.time += down_ms / 1000
        self.machine.start()
        self.settle()
        self.client = self.connect()

    def check(self) -> None:
        assert not self.world.errors, self.world.errors

    def close(self) -> None:
        self.machine.close()


def deaths(content: Content[Any]) -> list[Table]:
    """The x-death header, newest first."""
    found = (content.properties.headers or {}).get("x-death", [])
    assert isinstance(found, list)
    assert all(isinstance(death, dict) for death in found)
    return [death for death in found if isinstance(death, dict)]


def why(content: Content[Any]) -> list[tuple[Value, Value, Value]]:
    """Of each death the queue, the reason and how often, newest first."""
    return [(death["queue"], death["reason"], death["count"]) for death in deaths(content)]


def header(content: Content[Any], name: str) -> Value:
    return (content.properties.headers or {}).get(name)


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def staged(path: Path, keeping: Keeping) -> Iterator[Stage]:
    """A stage for a fixture. An error that the broker reports as its own mistake fails the test."""
    with ExitStack() as patches:
        if keeping.small:
            patches.enter_context(small_limits())
        stage = Stage(path, keeping)
        patches.callback(stage.close)
        yield stage
        stage.check()
