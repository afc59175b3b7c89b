"""The world around the model, made by hand: time that moves when told, and clients without a socket.

A `FakeClient` is both ends of one connection. What it sends is handled at once; what the broker answered is
in `frames()` or, method by method, in `methods()`, each time since the last look.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

from tests.support.amqp import (
    ALL_CAPABILITIES,
    BODY,
    FRAME_HEAD,
    HEADER,
    METHOD,
    PROTOCOL_HEADER,
    Content,
    Frame,
    encode_frame,
    encode_header,
)
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.reader import ReadBuffer
from warren.amqp.table import Table
from warren.broker import commands
from warren.broker.access import Permissions
from warren.broker.exchange.consistent_hash import ConsistentHash
from warren.broker.exchange.direct import Direct
from warren.broker.exchange.exchange import Router
from warren.broker.exchange.fanout import Fanout
from warren.broker.exchange.headers import Headers
from warren.broker.exchange.topic import Topic
from warren.broker.node import Limits, Node
from warren.broker.passwords import PasswordHash
from warren.broker.queue import Queue
from warren.broker.session.channel import Channel
from warren.broker.session.connection import Connection
from warren.broker.vhost import Vhost

T = TypeVar("T")
M = TypeVar("M", bound=m.Method)

EXCHANGE_TYPES: dict[str, type[Router]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": Headers,
    "x-consistent-hash": ConsistentHash,
}
EVERYTHING = Permissions(".*", ".*", ".*")
SALT = b"salt"
CONTENT_HEAD_BYTES = 12
LATE_SECONDS = 1e-6


class FakeWorld:
    """Nothing happens by itself: `turn`, `advance` and `run_threads` make it happen."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.soon: deque[Callable[[], None]] = deque()
        self.later: list[tuple[float, int, Callable[[], None]]] = []
        self.threads: deque[Callable[[], None]] = deque()
        self.errors: list[Exception] = []
        self.numbers = count(1)
        self.broken: Exception | None = None  # what asking for random bytes raises: a fault of our own

    def now(self) -> float:
        return self.time

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self.later, (self.time + seconds, next(self.numbers), callback))

    def random_bytes(self, count: int) -> bytes:
        """Never the same twice, and the same in every run."""
        if self.broken is not None:
            raise self.broken
        return next(self.numbers).to_bytes(count)

    def in_thread(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        self.threads.append(lambda: done(work()))

    def report(self, error: Exception) -> None:
        self.errors.append(error)

    def turn(self) -> None:
        """One turn of the event loop: what was due when it began."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def run_threads(self) -> None:
        while self.threads:
            self.threads.popleft()()

    def advance(self, seconds: float) -> None:
        """Let time pass, and call back what becomes due: a moment late, as event loops do."""
        end = self.time + seconds + LATE_SECONDS
        while self.later and self.later[0][0] + LATE_SECONDS <= end:
            due, _, callback = heapq.heappop(self.later)
            self.time = due + LATE_SECONDS
            callback()
        self.time = end


class FakeLink:
    """A socket that takes everything and notes it."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.writes = 0
        self.unsent = 0
        self.is_reading = True
        self.is_closed = False

    def send(self, chunks: Sequence[bytes | memoryview]) -> None:
        assert not self.is_closed
        self.sent += b"".join(chunks)
        self.writes += 1

    def pause_reading(self) -> None:
        assert self.is_reading, "a transport is paused once"
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading, "only a paused transport is resumed"
        self.is_reading = True

    def unsent_bytes(self) -> int:
        return self.unsent

    def close(self) -> None:
        self.is_closed = True


def quick_hash(password: str) -> PasswordHash:
    """A hash that is verified in no time."""
    digest = hashlib.sha256(SALT + password.encode()).digest()
    return PasswordHash("rabbit_password_hashing_sha256", base64.b64encode(SALT + digest).decode())


def make_node(world: FakeWorld, limits: Limits | None = None) -> Node:
    """A node with the vhost `/` and the user guest, who may do everything there."""
    node = Node(world, limits or Limits(), EXCHANGE_TYPES, "test")
    node.execute(commands.AddVhost(name="/"))
    add_user(node, "guest")
    return node


def add_user(node: Node, name: str, permissions: Permissions = EVERYTHING) -> None:
    """The password is the name."""
    node.execute(commands.PutUser(name=name, password=quick_hash(name)))
    node.execute(commands.SetPermissions(user=name, vhost="/", permissions=permissions))


class FakeClient:
    def __init__(self, node: Node, *, name: str = "client", is_loopback: bool = True) -> None:
        self.node = node
        self.link = FakeLink()
        self.connection = Connection(ReadBuffer(), node, self.link, name, is_loopback=is_loopback)

    # --- the handshake ---

    def greet(self) -> None:
        self.connection.feed(PROTOCOL_HEADER)

    def authenticate(
        self,
        user: str = "guest",
        password: str | None = None,
        capabilities: tuple[str, ...] = ALL_CAPABILITIES,
    ) -> None:
        """Say who it is; a thread has yet to look at the password."""
        response = f"\0{user}\0{user if password is None else password}".encode()
        told: Table = {"capabilities": dict.fromkeys(capabilities, True)}
        self.send(m.ConnectionStartOk(client_properties=told, response=response), 0)

    def tune(self, heartbeat: int = 0, frame_max: int = 131_072) -> None:
        self.send(m.ConnectionTuneOk(channel_max=2047, frame_max=frame_max, heartbeat=heartbeat), 0)

    def open(
        self,
        user: str = "guest",
        vhost: str = "/",
        heartbeat: int = 0,
        frame_max: int = 131_072,
        capabilities: tuple[str, ...] = ALL_CAPABILITIES,
    ) -> FakeClient:
        """The whole handshake, and channel 1."""
        self.greet()
        self.authenticate(user, capabilities=capabilities)
        world = self.node.world
        assert isinstance(world, FakeWorld)
        world.run_threads()
        self.tune(heartbeat, frame_max)
        self.send(m.ConnectionOpen(virtual_host=vhost), 0)
        self.send(m.ChannelOpen())
        assert self.frames()[-1].is_a(m.ChannelOpenOk)
        return self

    # --- talking ---

    def send(self, method: m.Method, channel: int = 1) -> None:
        self.connection.feed(encode_frame(METHOD, channel, method.encode()))

    def call(self, method: m.Method, answer: type[M], channel: int = 1) -> M:
        """Send, and take the answer, which must be the only thing said on the channel."""
        self.send(method, channel)
        (got,) = self.methods(channel)
        assert isinstance(got, answer), f"waited for {answer.__name__}, but got {got}"
        return got

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes = b"",
        properties: BasicProperties | None = None,
        *,
        channel: int = 1,
        mandatory: bool = False,
    ) -> None:
        self.connection.feed(published(exchange, routing_key, body, properties, channel, mandatory=mandatory))

    def frames(self) -> list[Frame]:
        """All that was sent to this client since the last look."""
        data, frames = bytes(self.link.sent), []
        self.link.sent.clear()
        at = 0
        while at < len(data):
            kind, channel, size = FRAME_HEAD.unpack_from(data, at)
            at += FRAME_HEAD.size + size + 1
            assert data[at - 1] == 0xCE
            frames.append(Frame(kind, channel, data[at - 1 - size : at - 1]))
        return frames

    def methods(self, channel: int = 1) -> list[m.Method]:
        return [
            m.decode_method(frame.payload)
            for frame in self.frames()
            if frame.kind == METHOD and frame.channel == channel
        ]

    def contents(self, channel: int = 1) -> list[Content[m.Method]]:
        """The methods that carry a message, each with its message."""
        found: list[Content[m.Method]] = []
        method: m.Method | None = None
        for frame in self.frames():
            if frame.channel != channel:
                continue
            if frame.kind == METHOD:
                method = m.decode_method(frame.payload)
            elif frame.kind == HEADER and method is not None:
                found.append(Content(method, decode_properties(frame.payload[CONTENT_HEAD_BYTES:]), b""))
            elif frame.kind == BODY:
                last = found[-1]
                found[-1] = Content(last.method, last.properties, last.body + frame.payload)
        return found

    def bodies(self, channel: int = 1) -> list[bytes]:
        return [content.body for content in self.contents(channel)]

    # --- what is done most ---

    def declare(self, queue: str, *, arguments: Table | None = None, **flags: bool) -> Queue:
        self.call(m.QueueDeclare(queue=queue, arguments=arguments or {}, **flags), m.QueueDeclareOk)
        return self.vhost.queues[queue]

    def declare_exchange(
        self, exchange: str, kind: str = "direct", *, arguments: Table | None = None, **flags: bool
    ) -> None:
        declare = m.ExchangeDeclare(exchange=exchange, type=kind, arguments=arguments or {}, **flags)
        self.call(declare, m.ExchangeDeclareOk)

    def bind(self, queue: str, exchange: str, key: str = "", arguments: Table | None = None) -> None:
        bind = m.QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments or {})
        self.call(bind, m.QueueBindOk)

    def consume(
        self, queue: str, tag: str = "c", *, no_ack: bool = False, arguments: Table | None = None
    ) -> None:
        """Start a consumer; what is delivered at once is still to be looked at."""
        self.send(m.BasicConsume(queue=queue, consumer_tag=tag, no_ack=no_ack, arguments=arguments or {}))

    @property
    def vhost(self) -> Vhost:
        return self.connection.vhost

    @property
    def channel(self) -> Channel:
        channel = self.connection.channels[1]
        assert isinstance(channel, Channel)
        return channel


def published(
    exchange: str,
    routing_key: str,
    body: bytes = b"",
    properties: BasicProperties | None = None,
    channel: int = 1,
    *,
    mandatory: bool = False,
) -> bytes:
    """The frames of a publish with a body of one frame at most."""
    method = m.BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    frames = encode_frame(METHOD, channel, method.encode())
    frames += encode_frame(HEADER, channel, encode_header(len(body), properties))
    return frames + (encode_frame(BODY, channel, body) if body else b"")
