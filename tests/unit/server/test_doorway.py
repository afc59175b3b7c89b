"""Clients are let in within a few turns of the event loop, and none is left behind when a doorway closes."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import pytest
import uvloop

from warren.server import listener
from warren.server.doorway import Doorway, Manners
from warren.server.listener import ACCEPTED_A_TURN, accepted_a_turn, bind
from warren.server.log import get_logger
from warren.server.proxy_header import ProxyHeader
from warren.server.reception import Reception

CLIENTS = 3 * ACCEPTED_A_TURN
TURNS = 10  # accepting takes more than one turn
LET_IN_TURNS_MAX = 6  # from a client's call until its connection is made
SECONDS_MAX = 60
HOST = "127.0.0.1"

Run: TypeAlias = Callable[[Coroutine[object, object, None]], None]
Addresses: TypeAlias = list[tuple[object, ...]]


class Guest(asyncio.Protocol):
    """Counts connections, and closes each when it is made."""

    def __init__(self) -> None:
        self.made, self.lost = 0, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made += 1
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1


async def open_doorway(guest: Guest, port: int = 0) -> Doorway:
    loop = asyncio.get_running_loop()
    manners = Manners(make_protocol=lambda _header: guest, tls=None, proxy_protocol=False)
    return Doorway(await bind(loop, HOST, port), manners, Reception(loop), get_logger())


async def close(doorway: Doorway) -> None:
    doorway.close()
    await doorway.reception.close()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


def test_many_who_come_at_once_are_let_in_within_a_few_turns(run: Run) -> None:
    async def let_in() -> None:
        guest = Guest()
        doorway = await open_doorway(guest)
        with ExitStack() as clients:
            for _ in range(CLIENTS):
                clients.enter_context(socket.create_connection((HOST, doorway.port)))
            await turns(TURNS)
            assert guest.made == CLIENTS
        await close(doorway)

    run(let_in())


@pytest.mark.parametrize("after", range(LET_IN_TURNS_MAX + 1))
def test_client_that_comes_as_the_doorway_closes_is_not_left_behind(run: Run, after: int) -> None:
    """The doorway closes so many turns after the client has called."""

    async def call_and_close() -> None:
        guest = Guest()
        doorway = await open_doorway(guest)
        with socket.create_connection((HOST, doorway.port)) as client:
            client.setblocking(False)
            await turns(after)
            await close(doorway)
            await until_closed(client)
        await turns(LET_IN_TURNS_MAX)
        assert guest.made == guest.lost
        assert doorway.ours == set()

    run(call_and_close())


async def until_closed(client: socket.socket) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        try:
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        except ConnectionResetError:
            return


def fail(_header: ProxyHeader | None) -> Guest:
    raise KeyError("ours")


def test_client_for_whom_no_protocol_can_be_made_is_closed(run: Run) -> None:
    async def call() -> None:
        loop = asyncio.get_running_loop()
        reported: asyncio.Future[object] = loop.create_future()
        loop.set_exception_handler(lambda _loop, context: reported.set_result(context["exception"]))
        doorway = await open_doorway(Guest())
        doorway.manners = Manners(make_protocol=fail, tls=None, proxy_protocol=False)
        with socket.create_connection((HOST, doorway.port)) as client:
            client.setblocking(False)
            await until_closed(client)
        assert isinstance(await reported, KeyError)
        await close(doorway)

    run(call())


def test_the_port_is_free_again_when_it_is_closed(run: Run) -> None:
    async def open_twice() -> None:
        first = await open_doorway(Guest())
        port = first.port
        await close(first)
        second = await open_doorway(Guest(), port)
        assert second.port == port
        await close(second)

    run(open_twice())


@pytest.mark.parametrize(("descriptors", "accepted"), [(16, 1), (256, 8), (1024, 32), (1_000_000, 32)])
def test_fewer_clients_are_let_in_at_once_where_descriptors_are_few(descriptors: int, accepted: int) -> None:
    assert accepted_a_turn(descriptors) == accepted


class SocketModule:
    """`socket` on a machine whose kernel knows no IPv6."""

    def __getattr__(self, name: str) -> object:
        return getattr(socket, name)

    def socket(self, family: int, kind: int, protocol: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return socket.socket(family, kind, protocol)


IPV6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
IPV4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOST, 0))


@pytest.fixture
async def found(monkeypatch: pytest.MonkeyPatch) -> Addresses:
    """The addresses that names have. There is no IPv6."""
    addresses: Addresses = []

    async def getaddrinfo(*_what: object, **_flags: int) -> Addresses:
        return addresses

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(listener, "socket", SocketModule())
    return addresses


async def test_address_of_a_kind_that_the_machine_lacks_is_passed_over(found: Addresses) -> None:
    found += [IPV6, IPV4]
    (bound,) = await bind(asyncio.get_running_loop(), "localhost", 0)
    assert bound.getsockname()[0] == HOST
    bound.close()


async def test_host_that_has_no_other_address_is_an_error(found: Addresses) -> None:
    found.append(IPV6)
    with pytest.raises(OSError, match="no kind of address that 'localhost' has"):
        await bind(asyncio.get_running_loop(), "localhost", 0)
