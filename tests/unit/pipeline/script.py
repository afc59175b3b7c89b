"""A broker that a test plays step by step, while the client under test runs in a thread of its own."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

from tests.support.frames import FRAME_HEAD, METHOD, PROTOCOL_HEADER, method_frame
from warren.amqp.methods import (
    BasicPublish,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Method,
    decode_method,
)
from warren.client.uri import Uri

WAIT_SECONDS_MAX = 20
M = TypeVar("M", bound=Method)
T = TypeVar("T")


class ScriptedBroker:
    """Accepts one connection; `run` starts the client that makes it."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(WAIT_SECONDS_MAX)
        self._thread = ThreadPoolExecutor(1)
        self.uri = Uri("127.0.0.1", self._server.getsockname()[1], "guest", "guest", "/")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.close()
        if hasattr(self, "socket"):
            self.socket.close()
        self._thread.shutdown()

    def run(self, work: Callable[[], T]) -> Future[T]:
        return self._thread.submit(work)

    def log_in(self) -> None:
        self.socket, _ = self._server.accept()
        self.socket.settimeout(WAIT_SECONDS_MAX)
        assert self._read(len(PROTOCOL_HEADER)) == PROTOCOL_HEADER
        self.send(ConnectionStart(server_properties={}, mechanisms=b"PLAIN"), channel=0)
        self.expect(ConnectionStartOk)
        self.send(ConnectionTune(channel_max=1, frame_max=0, heartbeat=0), channel=0)
        self.expect(ConnectionTuneOk)
        self.expect(ConnectionOpen)
        self.send(ConnectionOpenOk(), channel=0)
        self.expect(ChannelOpen)
        self.send(ChannelOpenOk())
        self.expect(ConfirmSelect)
        self.send(ConfirmSelectOk())

    def send(self, method: Method, *, channel: int = 1) -> None:
        self.send_raw(method_frame(channel, method))

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def expect(self, kind: type[M]) -> M:
        """The next method, which must be of this kind; frames of content before it are skipped."""
        while True:
            frame_kind, _channel, size = FRAME_HEAD.unpack(self._read(FRAME_HEAD.size))
            payload = self._read(size + 1)[:-1]
            if frame_kind == METHOD:
                break
        method = decode_method(payload)
        assert isinstance(method, kind), method
        return method

    def expect_publishes(self, count: int) -> None:
        for _ in range(count):
            self.expect(BasicPublish)

    def has_more(self, *, within_s: float) -> bool:
        """Whether another basic.publish arrives; the rest of the last message's content does not count."""
        self.socket.settimeout(within_s)
        try:
            self.expect(BasicPublish)
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(WAIT_SECONDS_MAX)
        return True

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, "the client hung up"
            data += piece
        return data
