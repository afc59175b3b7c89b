"""A stage for the rules of queues: a broker on a disk, time that passes when told, and clients that wait.

A queue keeps its messages in several ways, and a rule has to hold for each: as entries that are ready, packed
in memory, aside on disk, or in the queue's log; `Keeping` says which. At most three are
ready, but for `READY`.
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
    small: bool
    durable: bool
    modes: tuple[int, ...]  # of delivery, in turn
    memory_bytes: int


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
    """All that it sends is done, and safe on disk, when the call returns."""

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
        """Nothing was said, and the channel is open."""
        assert self.methods() == []
        assert 1 in self.connection.channels

    def send_only(self, method: m.Method) -> None:
        """Without waiting for the disk."""
        super().send(method)

    def hang_up(self) -> None:
        super().hang_up()
        self.stage.settle()

    # --- queues ---

    def queue(self, name: str, arguments: Table | None = None, *, durable: bool = True) -> Queue:
        """Durable if the stage is; a quorum queue always is."""
        is_quorum = (arguments or {}).get("x-queue-type") == "quorum"
        durable = is_quorum or (durable and self.stage.keeping.durable)
        return self.declare(name, arguments=arguments, durable=durable)

    def count(self, queue: str) -> int:
        """How many a client is told are ready."""
        declare = m.QueueDeclare(queue=queue, passive=True, arguments={})
        return self.call(declare, m.QueueDeclareOk).message_count

    def purge(self, queue: str, count: int) -> None:
        """So many must have been there."""
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
        """Each body as a message of its own, in a turn of its own."""
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
        """All of them in one turn."""
        for message in messages:
            self.publish_soon(message, key, exchange=exchange, mandatory=mandatory)
        self.flush()

    def publish_soon(
        self, message: PreparedMessage, key: str, *, exchange: str = "", mandatory: bool = False
    ) -> None:
        """With the next `flush`."""
        self.gathered += published(exchange, key, *message, mandatory=mandatory)
        self.published += 1
        self.unconfirmed.add(self.published)

    def flush(self) -> None:
        frames, self.gathered = bytes(self.gathered), bytearray()
        self.connection.feed(frames)
        self.stage.settle()

    def confirms(self) -> list[tuple[str, int]]:
        """What was said of each message, in this order; a message is spoken of once."""
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
        """Which were refused; all others were confirmed."""
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
        """One that must be there, and is out until it is settled."""
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
        """A consumer that must be taken; what it gets at once is for `deliveries`."""
        if prefetch is not None:
            self.send(m.BasicQos(prefetch_count=prefetch))
        consume = m.BasicConsume(
            queue=queue, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive, arguments=arguments or {}
        )
        self.send(consume)
        assert tag in self.channel.consumers, self.methods()

    def deliveries(self) -> list[Content[m.BasicDeliver]]:
        """Since the last look, at which nothing else may have been said than answers."""
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
        """What else is said meanwhile stays to be looked at."""
        self.send(m.BasicCancel(consumer_tag=tag))

    def reopen(self) -> None:
        """Close channel 1, by which all that is out on it returns, and open it again."""
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
        """Of years only the last hour passes, and the clock is set ahead by the rest: the broker looks at it
        every 10 seconds, which takes long in a century.
        """
        leap_ms = max(int(ms) - HOUR_MS, 0)
        self.world.ahead_ms += leap_ms
        self.world.advance((ms - leap_ms) / 1000)
        self.settle()

    def pass_time(self, seconds: float) -> None:
        """In the steps in which the server looks at its clients."""
        for _ in range(round(seconds / CHECK_SECONDS)):
            self.world.advance(CHECK_SECONDS)
            self.settle()
            check_clients(self.node, self.world)
            self.settle()

    def restart(self, *, down_ms: int = 0) -> Client:
        """A clean one, after which there is a new client. Of itself it takes more than a second."""
        self.machine.stop()
        self._come_back(down_ms)
        return self.client

    def kill(self, rng: Random, *, power: bool = False) -> Client:
        """In the middle of what the disk does; and what was not synced may be gone with the power."""
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
    """For a fixture: what the broker takes for its own mistake fails the test."""
    with ExitStack() as patches:
        if keeping.small:
            patches.enter_context(small_limits())
        stage = Stage(path, keeping)
        patches.callback(stage.close)
        yield stage
        stage.check()
