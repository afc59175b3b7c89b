"""The broker's end of a connection, played step by step by a test in the thread of the loop under test."""

from __future__ import annotations

import socket
from typing import Self, TypeVar

from tests.support.frames import (
    FRAME_HEAD,
    PROTOCOL_HEADER,
    method_frame,
)
from warren.amqp.methods import (
    ChannelOpen,
    ChannelOpenOk,
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
from warren.perf.loop import Loop

WAIT_SECONDS_MAX = 20
M = TypeVar("M", bound=Method)


class Peer:
    """Listens on a port of the kernel's choice; `accept` once somebody has dialled."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._server = socket.create_server(("127.0.0.1", 0))
        self.uri = Uri("127.0.0.1", self._server.getsockname()[1], "user", "secret", "/v")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.close()
        if hasattr(self, "socket"):
            self.socket.close()

    def accept(self) -> None:
        self.socket, _ = self._server.accept()
        self.socket.settimeout(WAIT_SECONDS_MAX)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, "the tool hung up"
            data += piece
        return data

    def expect(self, kind: type[M]) -> M:
        size = FRAME_HEAD.unpack(self.read(FRAME_HEAD.size))[2]
        value = decode_method(self.read(size + 1)[:-1])
        assert isinstance(value, kind)
        return value

    def send(self, data: bytes) -> None:
        """Send this, and let the loop under test read it."""
        self.socket.sendall(data)
        self._loop.turn(WAIT_SECONDS_MAX)

    def log_in(self, *, frame_max: int = 0) -> ConnectionTuneOk:
        self.accept()
        assert self.read(8) == PROTOCOL_HEADER
        self.send(method_frame(0, ConnectionStart(server_properties={}, mechanisms=b"PLAIN AMQPLAIN")))
        assert self.expect(ConnectionStartOk).response == b"\0user\0secret"
        self.send(method_frame(0, ConnectionTune(channel_max=9, frame_max=frame_max, heartbeat=60)))
        tuned = self.expect(ConnectionTuneOk)
        assert self.expect(ConnectionOpen).virtual_host == "/v"
        self.send(method_frame(0, ConnectionOpenOk()))
        self.expect(ChannelOpen)
        self.send(method_frame(1, ChannelOpenOk()))
        return tuned
