"""Links between nodes, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
import structlog
import trustme
import uvloop

from warren.cluster.config import RunId, StoreId
from warren.cluster.messages import Beacon, Hello, Message
from warren.cluster.wire import PREFIX, encode
from warren.server import doorway
from warren.server.cluster import peers as peers_module
from warren.server.cluster.peers import UNPROVED_MAX, Call, NodeCredentials, OutgoingLink, Peers

SECRET = b"known to all nodes of the cluster"
HOST, OTHER_HOST = "127.0.0.1", "127.0.0.2"
BROADCAST = "255.255.255.255"  # which no connection can have
NAME = "node-b"  # of a machine
SECONDS_MAX = 60
TURNS_UNTIL_CALLED = 6  # of the event loop, at most: a link that is called by then is made
A, B = StoreId("a"), StoreId("b")


@dataclass(frozen=True)
class At:
    host: str
    port: int


class Recorder:
    """The owner of a node's links: keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.more = asyncio.Event()
        self.failing: list[object] = []  # what it fails with once

    def _note(self, *what: object) -> None:
        if what[0] in self.failing:
            self.failing.remove(what[0])
            raise RuntimeError(f"told of {what[0]}")
        self.told.append(what)
        self.more.set()

    def link_up(self, store: StoreId, run: RunId) -> None:
        self._note("up", store, run)

    def link_down(self, store: StoreId) -> None:
        self._note("down", store)

    def peer_gone(self, store: StoreId) -> None:
        self._note("gone", store)

    def received(self, store: StoreId, messages: Sequence[Message]) -> None:
        for message in messages:
            self._note("received", store, message)

    async def until(self, *what: object) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while what not in self.told:
                self.more.clear()
                await self.more.wait()


class Lines:
    """Keeps the reasons that the log is told."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.more = asyncio.Event()

    def __call__(self, _logger: object, _method: str, event: structlog.types.EventDict) -> str:
        self.reasons.append(event.get("reason", ""))
        self.more.set()
        raise structlog.DropEvent

    async def until(self, part: str) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not any(part in reason for reason in self.reasons):
                self.more.clear()
                await self.more.wait()


class Node:
    def __init__(self, store: StoreId, run: str = "1", *, secret: bytes = SECRET, cluster: str = "c") -> None:
        hello = Hello(cluster, store, RunId(run), 1, 1)
        self.owner = Recorder()
        self.lines = Lines()
        log = structlog.wrap_logger(None, processors=[self.lines])
        self.credentials = NodeCredentials(
            hello=hello, secret=secret, random_bytes=lambda count: b"?" * count
        )
        self.peers = Peers(self.credentials, self.owner, lambda work: work(), log)
        self.port = 0

    async def listen(self) -> At:
        self.port = await self.peers.listen(HOST, self.port)
        return At(HOST, self.port)


@dataclass(frozen=True)
class ServerTls:
    context: ssl.SSLContext


MakeNode = Callable[..., Node]


@pytest.fixture
async def make() -> AsyncIterator[MakeNode]:
    nodes: list[Node] = []

    def make(*words: str, **more: str | bytes) -> Node:
        nodes.append(Node(*words, **more))  # type: ignore[arg-type]
        return nodes[-1]

    yield make
    for node in nodes:
        await node.peers.stop()


async def test_two_nodes_speak_to_each_other(make: MakeNode) -> None:
    a, b = make(A), make(B)
    at_a, at_b = await a.listen(), await b.listen()
    a.peers.set_peers({A: at_a, B: at_b})
    b.peers.set_peers({A: at_a, B: at_b})
    await a.owner.until("up", B, "1")
    await b.owner.until("up", A, "1")
    a.peers.send(B, Beacon(1.0, ((3, 4),)))
    b.peers.send(A, Beacon(2.0, ()))
    await b.owner.until("received", A, Beacon(1.0, ((3, 4),)))
    await a.owner.until("received", B, Beacon(2.0, ()))


async def test_messages_come_in_order_however_large_they_are(make: MakeNode) -> None:
    a, b = make(A), make(B)
    a.peers.set_peers({B: await b.listen()})
    await a.owner.until("up", B, "1")
    sent = [Beacon(float(number), ((number, number),) * (number % 7 * 5_000)) for number in range(50)]
    for message in sent:
        a.peers.send(B, message)
    await b.owner.until("received", A, sent[-1])
    assert [what[2] for what in b.owner.told] == sent


async def test_node_that_ends_is_gone_and_comes_back_in_another_run(make: MakeNode) -> None:
    a, b = make(A), make(B)
    a.peers.set_peers({B: await b.listen()})
    await a.owner.until("up", B, "1")
    await b.peers.stop()
    await a.owner.until("down", B)
    await a.owner.until("gone", B)
    again = make(B, "2")
    again.port = b.port
    await again.listen()
    await a.owner.until("up", B, "2")
    assert a.owner.told.index(("down", B)) < a.owner.told.index(("gone", B))


@pytest.fixture
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """`NAME` is a machine with two addresses."""
    found = socket.getaddrinfo

    def addresses(host: str, port: int, *more: int, **flags: int) -> Sequence[tuple[object, ...]]:
        if host != NAME:
            return found(host, port, *more, **flags)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in (OTHER_HOST, HOST)]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)


@pytest.mark.usefixtures("two_addresses")
async def test_node_is_called_at_each_of_its_addresses(make: MakeNode) -> None:
    a, b = make(A), make(B)
    at = await b.listen()
    a.peers.set_peers({B: At(NAME, at.port)})
    await a.owner.until("up", B, "1")
    await b.peers.stop()
    await a.owner.until("gone", B)


async def test_node_is_not_gone_if_one_of_its_addresses_says_nothing_of_it(
    make: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = make(A), make(B)
    at = await b.listen()
    await b.peers.stop()

    def addresses(_host: str, port: int, *_more: int, **_flags: int) -> list[tuple[object, ...]]:
        unreachable = (socket.AF_INET, socket.SOCK_STREAM, 6, "", (BROADCAST, port))
        return [unreachable, (socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOST, port))]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    a.peers.set_peers({B: At(NAME, at.port)})
    await a.lines.until("[Errno")
    assert a.owner.told == []


async def test_what_is_sent_without_a_link_is_lost(make: MakeNode) -> None:
    a, b = make(A), make(B)
    a.peers.send(B, Beacon(1.0, ()))
    a.peers.set_peers({B: await b.listen()})
    a.peers.send(B, Beacon(2.0, ()))
    await a.owner.until("up", B, "1")
    a.peers.send(B, Beacon(3.0, ()))
    await b.owner.until("received", A, Beacon(3.0, ()))
    assert b.owner.told == [("received", A, Beacon(3.0, ()))]


async def test_node_that_is_elsewhere_now_is_called_there(make: MakeNode) -> None:
    a, b, moved = make(A), make(B), make(B, "2")
    a.peers.set_peers({B: await b.listen()})
    await a.owner.until("up", B, "1")
    a.peers.set_peers({B: await moved.listen()})
    await a.owner.until("up", B, "2")
    a.peers.set_peers({})
    await a.owner.until("down", B)


async def test_closed_link_begins_anew(make: MakeNode) -> None:
    a, b = make(A), make(B)
    a.peers.set_peers({B: await b.listen()})
    await a.owner.until("up", B, "1")
    a.owner.told.clear()
    a.peers.close_link(B, "it breaks the rules")
    await a.owner.until("down", B)
    await a.owner.until("up", B, "1")


async def test_newer_link_of_a_node_takes_the_place_of_the_older(make: MakeNode) -> None:
    b, old, new = make(B), make(A), make(A, "2")
    at_b = await b.listen()
    old.peers.set_peers({B: at_b})
    await old.owner.until("up", B, "1")
    new.peers.set_peers({B: at_b})
    await new.owner.until("up", B, "1")
    await old.owner.until("down", B)
    old.peers.set_peers({})
    new.peers.send(B, Beacon(2.0, ()))
    await b.owner.until("received", A, Beacon(2.0, ()))


@pytest.mark.parametrize(
    ("other", "reason", "is_refused"),
    [
        ({"secret": b"guessed, and not right"}, "does not know the secret", False),
        ({"cluster": "d"}, "another cluster", True),
        ({"store": StoreId("c")}, "store c is there instead", False),
        ({"store": A}, "this store itself", True),
    ],
    ids=["secret", "cluster", "store", "itself"],
)
async def test_wrong_node_is_not_spoken_to(
    make: MakeNode, other: dict[str, str | bytes], reason: str, *, is_refused: bool
) -> None:
    a = make(A)
    words = dict(other)
    b = make(words.pop("store", B), **words)
    a.peers.set_peers({B: await b.listen()})
    await (b if is_refused else a).lines.until(reason)
    if is_refused:
        await a.lines.until("its log says why")
    a.peers.send(B, Beacon(1.0, ()))
    assert not [what for what in a.owner.told if what[0] == "up"]
    assert b.owner.told == []


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", PREFIX.pack(1 << 31, 0), b""], ids=["http", "long", "end"]
)
async def test_strangers_are_refused_and_harm_nobody(make: MakeNode, data: bytes) -> None:
    a, b = make(A), make(B)
    at_b = await b.listen()
    a.peers.set_peers({B: at_b})
    await a.owner.until("up", B, "1")
    reader, writer = await asyncio.open_connection(HOST, at_b.port)
    writer.write(data)
    if not data:
        writer.write_eof()
    async with asyncio.timeout(SECONDS_MAX):
        assert await reader.read() == b""
    writer.close()
    a.peers.send(B, Beacon(1.0, ()))
    await b.owner.until("received", A, Beacon(1.0, ()))


async def test_silent_callers_are_bounded_in_number(make: MakeNode) -> None:
    a, b = make(A), make(B)
    at_b = await b.listen()
    writers = []
    for _ in range(UNPROVED_MAX + 1):
        reader, writer = await asyncio.open_connection(HOST, at_b.port)
        writers.append(writer)
    async with asyncio.timeout(SECONDS_MAX):
        assert await reader.read() == b"", "the last one is one too many"
    for writer in writers:
        writer.close()
    a.peers.set_peers({B: at_b})
    await a.owner.until("up", B, "1")


async def test_silent_callers_are_bounded_in_time(make: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "HANDSHAKE_SECONDS_MAX", 0.01)
    b = make(B)
    at_b = await b.listen()
    reader, writer = await asyncio.open_connection(HOST, at_b.port)
    async with asyncio.timeout(SECONDS_MAX):
        assert await reader.read() == b""
    writer.close()
    await b.lines.until("takes too long")


@pytest.mark.parametrize("after", range(TURNS_UNTIL_CALLED + 1))
async def test_caller_that_comes_as_the_node_stops_is_sent_away(make: MakeNode, after: int) -> None:
    """The node stops so many turns of the event loop after the call."""
    b = make(B)
    at_b = await b.listen()
    with socket.create_connection((HOST, at_b.port)) as caller:
        caller.setblocking(False)
        for _ in range(after):
            await asyncio.sleep(0)
        await b.peers.stop()
        await until_closed(caller)
    assert b.peers.unproved == set()


async def until_closed(caller: socket.socket) -> None:
    """Less than `HANDSHAKE_SECONDS_MAX` is left to the other end."""
    async with asyncio.timeout(SECONDS_MAX):
        try:
            assert await asyncio.get_running_loop().sock_recv(caller, 1) == b""
        except ConnectionResetError:
            return


async def test_node_is_called_again_though_its_owner_fails(make: MakeNode) -> None:
    """When it is told that a link is down, and that nobody is there."""
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: reported.append(str(context["exception"])))
    a, b = make(A), make(B)
    a.owner.failing = ["down", "gone"]
    a.peers.set_peers({B: await b.listen()})
    await a.owner.until("up", B, "1")
    await b.peers.stop()
    await a.owner.until("gone", B)  # after it had failed once
    again = make(B, "2")
    again.port = b.port
    await again.listen()
    await a.owner.until("up", B, "2")
    assert reported == ["told of down", "told of gone"]


async def test_node_that_has_stopped_calls_nobody_any_more(make: MakeNode) -> None:
    a, b = make(A), make(B)
    at_b = await b.listen()
    await a.peers.stop()
    a.peers.set_peers({B: at_b})
    assert a.peers.calls == {}


async def test_machine_with_an_impossible_name_is_called_over_and_over(
    make: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address may become right: of what a name means, only the machine's resolver knows."""
    a, b = make(A), make(B)
    at_b = await b.listen()
    a.peers.set_peers({B: At("x" * 64, at_b.port)})  # longer than a part of a name may be
    await a.lines.until("label too long")
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", at(at_b))
    await a.owner.until("up", B, "1")


def at(address: At) -> Callable[..., Awaitable[list[tuple[object, ...]]]]:
    """In place of the event loop's `getaddrinfo`: every name is that of this machine."""

    async def getaddrinfo(*_what: object, **_flags: int) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address.host, address.port))]

    return getaddrinfo


@pytest.mark.parametrize("after", range(TURNS_UNTIL_CALLED + 1))
@pytest.mark.parametrize(
    "make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_call_that_is_given_up_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, make_loop: Callable[[], asyncio.AbstractEventLoop], after: int
) -> None:
    """So many turns of the event loop after its socket was connected."""
    made: list[OutgoingLink] = []

    class Noted(OutgoingLink):
        def __init__(self, call: Call) -> None:
            super().__init__(call)
            made.append(self)

    monkeypatch.setattr(peers_module, "OutgoingLink", Noted)

    async def call_and_give_up() -> None:
        loop = asyncio.get_running_loop()
        failed: list[object] = []
        loop.set_exception_handler(lambda _loop, context: failed.append(context))
        a = Node(A)
        with socket.create_server((HOST, 0)) as listening:
            connected = asyncio.Event()
            sock_connect = loop.sock_connect

            async def connect(*what: object) -> None:
                await sock_connect(*what)  # type: ignore[arg-type]
                connected.set()

            a.peers.loop = LoopThatTells(loop, connect)  # type: ignore[assignment]
            a.peers.set_peers({B: At(HOST, listening.getsockname()[1])})
            async with asyncio.timeout(SECONDS_MAX):
                await connected.wait()
            for _ in range(after):
                await asyncio.sleep(0)
            await a.peers.stop()
            for _ in range(TURNS_UNTIL_CALLED):
                await asyncio.sleep(0)
            caller, _ = listening.accept()
            with caller:
                caller.settimeout(SECONDS_MAX)
                read_to_the_end(caller)
        assert failed == []
        assert a.lines.reasons == []
        assert [link.timer for link in made if link.timer is not None and not link.timer.cancelled()] == []

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(call_and_give_up())


class LoopThatTells:
    """An event loop that connects sockets in another way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock_connect: Callable[..., Awaitable[None]]) -> None:
        self.loop = loop
        self.sock_connect = sock_connect

    def __getattr__(self, name: str) -> object:
        return getattr(self.loop, name)


def read_to_the_end(caller: socket.socket) -> None:
    with suppress(ConnectionResetError):
        while caller.recv(1000):
            pass


async def test_node_that_sends_nonsense_after_its_proof_is_cut_off(make: MakeNode) -> None:
    a, b = make(A), make(B)
    a.peers.set_peers({B: await b.listen()})
    await a.owner.until("up", B, "1")
    link = a.peers.calls[B].link
    assert link is not None
    frame = bytearray(encode(Beacon(1.0, ())))
    frame[-1] ^= 1
    link.write(bytes(frame))
    await a.owner.until("down", B)
    assert b.owner.told == []


def encrypt(*nodes: Node) -> None:
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert(HOST).configure_cert(server)
    authority.configure_trust(client)
    for node in nodes:
        tls = ServerTls(server)
        node.peers.credentials = replace(node.credentials, server_tls=tls, client_tls=client)


async def test_links_can_be_encrypted(make: MakeNode) -> None:
    a, b = make(A), make(B)
    encrypt(a, b)
    a.peers.set_peers({B: await b.listen()})
    await a.owner.until("up", B, "1")
    a.peers.send(B, Beacon(1.0, ()))
    await b.owner.until("received", A, Beacon(1.0, ()))


@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "within the handshake"])
async def test_callers_are_bounded_in_time_before_they_are_encrypted(
    make: MakeNode, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(doorway, "WELCOME_SECONDS_MAX", 0.05)
    b = make(B)
    encrypt(b)
    at_b = await b.listen()
    with socket.create_connection((HOST, at_b.port)) as caller:
        caller.sendall(begin)
        caller.setblocking(False)
        await until_closed(caller)


async def test_callers_are_bounded_in_number_before_they_are_encrypted(make: MakeNode) -> None:
    b = make(B)
    encrypt(b)
    at_b = await b.listen()
    callers = []
    for _ in range(UNPROVED_MAX + 1):
        callers.append(socket.create_connection((HOST, at_b.port)))
        callers[-1].setblocking(False)
    await until_closed(callers[0])
    for caller in callers:
        caller.close()


async def test_the_log_is_told_once_that_nothing_listens(make: MakeNode) -> None:
    a, b = make(A), make(B)
    at = await b.listen()
    await b.peers.stop()
    a.peers.set_peers({B: at})
    await a.owner.until("gone", B)
    a.owner.told.clear()
    await a.owner.until("gone", B)  # it was called again
    assert [reason.partition(":")[0] for reason in a.lines.reasons] == ["nothing listens there"]
