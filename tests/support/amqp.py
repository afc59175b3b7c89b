"""A synchronous AMQP client for tests that must send and see exact frames.

It does nothing on its own: no heartbeats, no answers, no threads. Every wait is bounded. A failure's text has
the frame that came in place of the expected one. Frames of other channels than the one that is read are kept
for their readers, so each channel's frames stay in order.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict, deque
from dataclasses import replace
from typing import Self, TypeVar

from tests.support.channel import AmqpChannel
from tests.support.errors import EndedError, SilenceError, UnexpectedError
from tests.support.frames import (
    ALL_CAPABILITIES,
    BODY,
    CLASS_BASIC,
    CONTENT_HEAD,
    FRAME_END,
    FRAME_HEAD,
    FRAME_MIN_SIZE,
    GUEST,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    Content,
    Frame,
    encode_frame,
    published,
    start_ok,
)
from tests.support.process import Address
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Table

WAIT_SECONDS_MAX = 10.0

M = TypeVar("M", bound=m.Method)


class AmqpClient:
    """One connection. The steps of the handshake can be taken one by one; `connect` takes them all."""

    def __init__(self, address: Address, *, wait_seconds_max: float = WAIT_SECONDS_MAX) -> None:
        self.wait_seconds_max = wait_seconds_max
        self.socket = socket.create_connection((address.host, address.port), wait_seconds_max)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame_max = FRAME_MIN_SIZE
        self.server_properties: Table = {}
        self._received = bytearray()
        self._waiting: defaultdict[int, deque[Frame]] = defaultdict(deque)

    @classmethod
    def connect(
        cls,
        address: Address,
        *,
        user: str = GUEST,
        password: str = GUEST,
        vhost: str = "/",
        capabilities: tuple[str, ...] = ALL_CAPABILITIES,
        frame_max: int | None = None,
        heartbeat: int = 0,
    ) -> Self:
        client = cls(address)
        try:
            client.start()
            client.authenticate(user=user, password=password, capabilities=capabilities)
            client.tune(frame_max=frame_max, heartbeat=heartbeat)
            client.open(vhost)
        except BaseException:
            client.abort()
            raise
        return client

    # --- handshake ---

    def start(self) -> m.ConnectionStart:
        self.send_raw(PROTOCOL_HEADER)
        start = self.expect(0, m.ConnectionStart)
        self.server_properties = start.server_properties
        return start

    def authenticate(
        self,
        *,
        user: str = GUEST,
        password: str = GUEST,
        mechanism: str = "PLAIN",
        response: bytes | None = None,
        capabilities: tuple[str, ...] = ALL_CAPABILITIES,
    ) -> None:
        told = start_ok(user, password, capabilities)
        plain = told.response if response is None else response
        self.send_method(0, replace(told, mechanism=mechanism, response=plain))

    def tune(
        self, *, channel_max: int | None = None, frame_max: int | None = None, heartbeat: int = 0
    ) -> m.ConnectionTune:
        """Answers connection.tune with the given values, or with the broker's where none is given."""
        offered = self.expect(0, m.ConnectionTune)
        channels = offered.channel_max if channel_max is None else channel_max
        self.frame_max = offered.frame_max if frame_max is None else frame_max
        answer = m.ConnectionTuneOk(channel_max=channels, frame_max=self.frame_max, heartbeat=heartbeat)
        self.send_method(0, answer)
        return offered

    def open(self, vhost: str = "/") -> None:
        self.send_method(0, m.ConnectionOpen(virtual_host=vhost))
        self.expect(0, m.ConnectionOpenOk)

    def channel(self, number: int = 1) -> AmqpChannel:
        """Opens a channel."""
        channel = AmqpChannel(self, number)
        channel.call(m.ChannelOpen(), m.ChannelOpenOk)
        return channel

    # --- sending ---

    def send_raw(self, data: bytes) -> None:
        self.socket.settimeout(self.wait_seconds_max)
        self.socket.sendall(data)

    def send_frame(self, kind: int, channel: int, payload: bytes) -> None:
        self.send_raw(encode_frame(kind, channel, payload))

    def send_method(self, channel: int, method: m.Method) -> None:
        self.send_frame(METHOD, channel, method.encode())

    def publish(
        self,
        channel: int,
        exchange: str,
        routing_key: str,
        body: bytes = b"",
        properties: BasicProperties | None = None,
        **flags: bool,
    ) -> None:
        self.send_raw(
            published(
                exchange, routing_key, body, properties, channel=channel, frame_max=self.frame_max, **flags
            )
        )

    # --- receiving ---

    def read_bytes(self, size: int) -> bytes:
        """Exactly so many bytes from the socket."""
        deadline = time.monotonic() + self.wait_seconds_max
        while len(self._received) < size:
            self._receive(deadline)
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def read_any_frame(self) -> Frame:
        """The next frame on the wire, heartbeats too."""
        kind, channel, size = FRAME_HEAD.unpack(self.read_bytes(FRAME_HEAD.size))
        payload = self.read_bytes(size)
        end = self.read_bytes(1)
        if end != FRAME_END:
            raise UnexpectedError(f"the broker's frame ends with {end!r}")
        return Frame(kind, channel, payload)

    def read_frame(self, channel: int) -> Frame:
        """The next frame of this channel; heartbeats are passed over."""
        waiting = self._waiting[channel]
        while not waiting:
            frame = self.read_any_frame()
            if frame.kind == HEARTBEAT:
                continue
            if channel != 0 and frame.is_a(m.ConnectionClose):
                raise UnexpectedError(f"the connection was closed: {frame}")
            self._waiting[frame.channel].append(frame)
        return waiting.popleft()

    def expect(self, channel: int, kind: type[M]) -> M:
        frame = self.read_frame(channel)
        method = m.decode_method(frame.payload) if frame.kind == METHOD else None
        if not isinstance(method, kind):
            raise UnexpectedError(f"waited for {kind.__name__} on channel {channel}, but got {frame}")
        return method

    def expect_content(self, channel: int, kind: type[M]) -> Content[M]:
        method = self.expect(channel, kind)
        return Content(method, *self.read_message(channel))

    def expect_close(self, code: int) -> m.ConnectionClose:
        """Expect that the broker closes the connection, and the socket once close-ok is sent."""
        close = self.expect(0, m.ConnectionClose)
        if close.reply_code != code:
            raise UnexpectedError(f"waited for {code}, but got {close}")
        self.send_method(0, m.ConnectionCloseOk())
        self.expect_end()
        return close

    def expect_end(self) -> None:
        """Expect that the broker closes the socket, and sends nothing but heartbeats before."""
        try:
            while (frame := self.read_any_frame()).kind == HEARTBEAT:
                pass
        except EndedError:
            self.abort()
            return
        raise UnexpectedError(f"waited for the end of the connection, but got {frame}")

    def read_message(self, channel: int) -> tuple[BasicProperties, bytes]:
        head = self.read_frame(channel)
        if head.kind != HEADER:
            raise UnexpectedError(f"waited for a content header, but got {head}")
        class_id, weight, size = CONTENT_HEAD.unpack_from(head.payload)
        assert (class_id, weight) == (CLASS_BASIC, 0)
        body = b""
        while len(body) < size:
            chunk = self.read_frame(channel)
            if chunk.kind != BODY or not chunk.payload:
                raise UnexpectedError(f"waited for {size - len(body)} more bytes of body, but got {chunk}")
            body += chunk.payload
        assert len(body) == size
        return decode_properties(head.payload[CONTENT_HEAD.size :]), body

    def _receive(self, deadline: float) -> None:
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            data = self.socket.recv(1 << 18)
        except TimeoutError:
            raise SilenceError(f"nothing came within {self.wait_seconds_max} s") from None
        except ConnectionResetError:
            data = b""
        if not data:
            raise EndedError("the broker closed the socket")
        self._received += data

    # --- the end ---

    def close(self) -> None:
        """Closes as a good client does. Fails if the broker had closed something that nobody waited for."""
        if self.socket.fileno() < 0:
            return
        try:
            self.send_method(0, m.ConnectionClose(reply_code=200))
            unread = [frame for waiting in self._waiting.values() for frame in waiting]
            while not unread or not unread[-1].is_a(m.ConnectionCloseOk):
                unread.append(self.read_any_frame())
                if unread[-1].is_a(m.ConnectionClose):
                    break
            for frame in unread:
                if frame.is_a(m.ChannelClose) or frame.is_a(m.ConnectionClose):
                    raise UnexpectedError(f"nobody waited for {frame}")
        finally:
            self.abort()

    def abort(self) -> None:
        """Closes the socket without connection.close."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
