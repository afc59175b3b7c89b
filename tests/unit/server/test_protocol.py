"""The socket's side of a connection, with a transport made by hand."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import cast

import pytest

from tests.support.fakes import FakeWorld, make_node
from tests.support.frames import PROTOCOL_HEADER
from tests.support.machine import Notes
from warren.amqp.reader import ReadBuffer
from warren.server.descriptors import Descriptors
from warren.server.farewell import DISCARDED_BYTES_MAX, LINGER_SECONDS_MAX, Farewell, Farewells
from warren.server.log import get_logger
from warren.server.protocol import RESET_ON_CLOSE, AmqpProtocol
from warren.server.watchdog import Watchdog
from warren.session.connection import Connection


class FakeTransport:
    def __init__(self, peer: tuple[str, int] | None = ("127.0.0.1", 40_000)) -> None:
        self.peer = peer
        self.written: list[bytes] = []
        self.unsent = 0
        self.is_paused = self.is_aborted = self.was_closed = self.has_ended = False
        self.ends_its_side = True  # as sockets do, and TLS does not
        self.descriptor = 3  # -1: the socket is closed
        self.is_reset = False  # by the client
        self.options: dict[int, bytes] = {}
        self.protocol: asyncio.BaseProtocol | None = None

    def get_extra_info(self, name: str) -> object:
        if name == "socket":
            return self
        return self.peer if name == "peername" else ("127.0.0.1", 5672)

    def setsockopt(self, _level: int, option: int, value: bytes) -> None:
        if self.descriptor < 0:
            raise OSError(errno.EBADF, "closed")
        self.options[option] = value

    def fileno(self) -> int:
        return self.descriptor

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def can_write_eof(self) -> bool:
        return self.ends_its_side

    def write_eof(self) -> None:
        if self.is_reset:
            raise OSError(errno.ENOTCONN, "not connected")
        self.has_ended = True

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.limits = (high, low)

    def is_closing(self) -> bool:
        return self.was_closed

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def writelines(self, chunks: list[bytes]) -> None:
        self.written.append(b"".join(chunks))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        self.was_closed = True

    def abort(self) -> None:
        self.is_aborted = True
        if self.protocol is not None:
            self.protocol.connection_lost(None)


def connected(world: FakeWorld, transport: FakeTransport, descriptors_max: int = 1_000) -> AmqpProtocol:
    protocol = AmqpProtocol(
        make_node(world),
        ReadBuffer(),
        0,
        descriptors=Descriptors(descriptors_max, 10, Notes(), world.now),
        farewells=Farewells(world.now),
        watchdog=Watchdog(get_logger()),
        after_read=lambda: None,
    )
    protocol.connection_made(cast("asyncio.Transport", transport))
    return protocol


def connection_of(protocol: AmqpProtocol) -> Connection:
    assert protocol.connection is not None
    return protocol.connection


def receive(protocol: AmqpProtocol | Farewell, data: bytes) -> None:
    protocol.get_buffer(-1)[: len(data)] = data
    protocol.buffer_updated(len(data))


@pytest.mark.parametrize(
    ("peer", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("192.0.2.1", False),
        ("2001:db8::1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_peer_on_this_machine_is_recognised(peer: str, is_loopback: bool) -> None:
    connection = connection_of(connected(FakeWorld(), FakeTransport((peer, 1))))
    assert connection.peer.is_loopback is is_loopback
    assert connection.name == f"{peer}:1 -> 127.0.0.1:5672"


def test_bytes_go_both_ways() -> None:
    transport = FakeTransport()
    protocol = connected(FakeWorld(), transport)
    receive(protocol, PROTOCOL_HEADER[:3])
    assert not transport.written
    receive(protocol, PROTOCOL_HEADER[3:])
    assert transport.written[0][7:11] == b"\x00\x0a\x00\x0a"


def test_nothing_is_written_to_a_transport_that_closes() -> None:
    transport = FakeTransport()
    protocol = connected(FakeWorld(), transport)
    transport.was_closed = True
    receive(protocol, PROTOCOL_HEADER)
    assert not transport.written


def test_lost_socket_is_a_lost_connection() -> None:
    protocol = connected(FakeWorld(), FakeTransport())
    node = protocol.node
    protocol.connection_lost(None)
    assert not node.clients


def take_leave(world: FakeWorld, transport: FakeTransport) -> AmqpProtocol:
    """A connection that was dropped while it was not read."""
    protocol = connected(world, transport)
    protocol.pause_reading()
    connection_of(protocol).drop("test")
    return protocol


def test_dropped_connection_ends_its_own_side_and_takes_what_still_comes() -> None:
    transport = FakeTransport()
    protocol = take_leave(FakeWorld(), transport)
    assert transport.has_ended
    assert not transport.is_paused
    assert protocol.connection is None
    farewell = cast("Farewell", transport.protocol)
    receive(farewell, b"what nobody will read")
    assert not transport.written
    assert not transport.is_aborted
    farewell.connection_lost(None)
    assert not protocol.farewells.leaving


def test_client_that_resets_the_socket_behind_its_last_word_is_left_at_once() -> None:
    transport = FakeTransport()
    transport.is_reset = True
    protocol = take_leave(FakeWorld(), transport)
    assert transport.is_aborted
    assert protocol.connection is None


def test_socket_that_is_closed_can_be_reset() -> None:
    transport = FakeTransport()
    protocol = connected(FakeWorld(), transport)
    transport.descriptor = -1
    protocol.reset()
    assert transport.is_aborted
    assert not transport.options


def test_client_that_never_closes_is_left_after_a_while() -> None:
    world, transport = FakeWorld(), FakeTransport()
    protocol = take_leave(world, transport)
    world.advance(LINGER_SECONDS_MAX - 1)
    protocol.farewells.check()
    assert not transport.is_aborted
    world.advance(2)
    protocol.farewells.check()
    assert transport.is_aborted
    assert not protocol.farewells.leaving


def test_client_that_goes_on_talking_is_left_after_so_many_bytes() -> None:
    transport = FakeTransport()
    take_leave(FakeWorld(), transport)
    farewell = cast("Farewell", transport.protocol)
    farewell.buffer_updated(DISCARDED_BYTES_MAX)
    assert not transport.is_aborted
    farewell.buffer_updated(1)
    assert transport.is_aborted


def test_transport_that_cannot_end_its_side_alone_is_closed() -> None:
    """With TLS the transport itself throws away what the client still sends."""
    transport = FakeTransport()
    transport.ends_its_side = False
    take_leave(FakeWorld(), transport)
    assert transport.was_closed
    assert not transport.has_ended


def test_broker_that_ends_waits_for_no_farewell() -> None:
    transport = FakeTransport()
    protocol = take_leave(FakeWorld(), transport)
    protocol.farewells.end()
    assert transport.is_aborted
    assert not protocol.farewells.leaving


def test_connection_that_is_given_up_is_reset() -> None:
    transport = FakeTransport()
    protocol = connected(FakeWorld(), transport)
    connection_of(protocol).give_up("test")
    assert transport.options[socket.SO_LINGER] == RESET_ON_CLOSE
    assert transport.is_aborted


def test_peer_that_is_gone_before_it_is_accepted_does_no_harm() -> None:
    protocol = connected(FakeWorld(), FakeTransport(None))
    protocol.connection_lost(None)
    assert not protocol.node.clients
