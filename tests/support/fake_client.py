"""Both ends of one connection, without a socket.

The broker handles what a `FakeClient` `send`s at once. What it `feed`s waits until the broker reads it, and
the event loop runs behind it. `frames()` and `methods()` return what the broker has sent since the last call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from tests.support.caller import Caller
from tests.support.frames import (
    ALL_CAPABILITIES,
    FRAME_MAX,
    PROTOCOL_HEADER,
    Content,
    Frame,
    decode_contents,
    decode_methods,
    method_frame,
    published,
    split_frames,
    start_ok,
    tune_ok,
)
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.reader import ReadBuffer
from warren.amqp.table import Table
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.vhost import Vhost
from warren.session.channel import Channel
from warren.session.connection import Connection
from warren.session.peer import Peer

if TYPE_CHECKING:
    from tests.support.fakes import FakeWorld

M = TypeVar("M", bound=m.Method)


class FakeLink:
    """A socket that takes everything, and keeps it for the test."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.writes = 0
        self.unsent = 0
        self.is_reading = True
        self.is_closed = False
        self.was_reset = False

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

    def reset(self) -> None:
        self.is_closed = self.was_reset = True

    def take(self) -> bytes:
        """The bytes that were sent since the last call."""
        sent = bytes(self.sent)
        self.sent.clear()
        return sent


def make_peer(host: str = "127.0.0.1", *, is_loopback: bool = True) -> Peer:
    """A client on this machine, or else on some other."""
    return Peer(host=host if is_loopback else "192.0.2.1", port=40_000, here_host="127.0.0.1", here_port=5672)


class FakeClient(Caller):
    def __init__(
        self,
        node: Node,
        *,
        name: str = "client",
        is_loopback: bool = True,
        buffer: ReadBuffer | None = None,
        peer: Peer | None = None,
    ) -> None:
        self.node = node
        self.link = FakeLink()
        self.unread: deque[bytes] = deque()
        known = peer or make_peer(is_loopback=is_loopback)
        self.connection = Connection(buffer or ReadBuffer(), node, self.link, known)
        self.connection.name = name

    @property
    def world(self) -> FakeWorld:
        return cast("FakeWorld", self.node.world)

    # --- the handshake ---

    def greet(self) -> None:
        self.connection.feed(PROTOCOL_HEADER)

    def authenticate(
        self,
        user: str = "guest",
        password: str | None = None,
        capabilities: tuple[str, ...] = ALL_CAPABILITIES,
    ) -> None:
        """Send user and password; the thread that checks the password has yet to run."""
        self.send(start_ok(user, user if password is None else password, capabilities), 0)

    def tune(self, heartbeat: int = 0, frame_max: int = FRAME_MAX) -> None:
        self.send(tune_ok(heartbeat, frame_max), 0)

    def open(
        self,
        user: str = "guest",
        vhost: str = "/",
        heartbeat: int = 0,
        frame_max: int = FRAME_MAX,
        capabilities: tuple[str, ...] = ALL_CAPABILITIES,
    ) -> FakeClient:
        """The whole handshake, and channel 1."""
        self.greet()
        self.authenticate(user, capabilities=capabilities)
        self.world.run_threads()
        self.tune(heartbeat, frame_max)
        self.send(m.ConnectionOpen(virtual_host=vhost), 0)
        self.send(m.ChannelOpen())
        assert self.frames()[-1].is_a(m.ChannelOpenOk)
        return self

    # --- talking ---

    def send(self, method: m.Method, channel: int = 1) -> None:
        self.connection.feed(method_frame(channel, method))

    def feed(self, data: bytes) -> None:
        """Deliver bytes as a network does: they wait until the broker reads."""
        self.unread.append(data)
        self.run()

    def run(self) -> None:
        self.world.run()
        while self.unread and self.link.is_reading and not self.link.is_closed:
            self.connection.feed(self.unread.popleft())
            self.world.run()

    def hang_up(self) -> None:
        self.connection.lost()
        self.world.run()

    def call(self, method: m.Method, answer: type[M], channel: int = 1) -> M:
        """Send, and return the answer, which must be the only method on the channel."""
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
        **flags: bool,
    ) -> None:
        self.connection.feed(published(exchange, routing_key, body, properties, channel=channel, **flags))

    def frames(self) -> list[Frame]:
        """All frames that were sent to this client since the last call."""
        return list(split_frames(self.link.take()))

    def methods(self, *channels: int) -> list[m.Method]:
        """The methods sent since the last call, on channel 1 or on the given ones."""
        return decode_methods(frame for frame in self.frames() if frame.channel in (channels or (1,)))

    def expect_close(self, code: int, channel: int = 1) -> m.ChannelClose | m.ConnectionClose:
        """Expect that the broker has closed the channel (0: the connection), and sent nothing else there."""
        (close,) = self.methods(channel)
        assert isinstance(close, m.ChannelClose if channel else m.ConnectionClose), close
        assert close.reply_code == code, close
        return close

    def contents(self, channel: int = 1) -> list[Content[m.Method]]:
        """The methods that carry a message, each with its message."""
        return decode_contents(frame for frame in self.frames() if frame.channel == channel)

    def bodies(self, channel: int = 1) -> list[bytes]:
        return [content.body for content in self.contents(channel)]

    # --- frequent calls ---

    def declare(self, queue: str, *, arguments: Table | None = None, **flags: bool) -> Queue:
        self.call(m.QueueDeclare(queue=queue, arguments=arguments or {}, **flags), m.QueueDeclareOk)
        return self.vhost.queues[queue]

    def consume(
        self, queue: str, tag: str = "c", *, no_ack: bool = False, arguments: Table | None = None
    ) -> None:
        """Start a consumer. Its consume-ok and first deliveries are left for the test to read."""
        self.send(m.BasicConsume(queue=queue, consumer_tag=tag, no_ack=no_ack, arguments=arguments or {}))

    @property
    def vhost(self) -> Vhost:
        return self.connection.vhost

    @property
    def channel(self) -> Channel:
        channel = self.connection.channels[1]
        assert isinstance(channel, Channel)
        return channel
