"""Whether a node can be called where its record says that it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.server.cluster.test_peers import HOST, SECRET, A, B, Node
from warren.server.cluster import presence
from warren.server.cluster.peers import NodeCredentials
from warren.server.cluster.presence import can_be_called

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def asker() -> NodeCredentials:
    """Node A, which has just begun to start."""
    return Node(A).credentials


async def called_at(node: Node, store: str, asker: NodeCredentials) -> bool:
    """Whether the node of this store can be called where another one listens, perhaps."""
    at = await node.listen()
    try:
        return await can_be_called({"store": store, "peers": f"{at.host}:{at.port}"}, asker)
    finally:
        await node.peers.stop()


async def test_a_node_can_be_called_if_it_proves_who_it_is(asker: NodeCredentials) -> None:
    assert await called_at(Node(B), B, asker)
    assert not await called_at(Node(B), "c", asker), "another node listens there"
    assert not await called_at(Node(A), B, asker), "the asker itself does"
    assert not await called_at(Node(B, secret=SECRET[::-1]), B, asker), "it does not know the secret"
    assert not await called_at(Node(B, cluster="other"), B, asker)


async def test_where_nobody_listens_nobody_can_be_called(asker: NodeCredentials) -> None:
    node = Node(B)
    at = await node.listen()
    await node.peers.stop()
    assert not await can_be_called({"store": B, "peers": f"{at.host}:{at.port}"}, asker)
    assert not await can_be_called({"store": B, "peers": "nonsense"}, asker)
    assert not await can_be_called({"store": B}, asker)


async def hang_up(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """The connection is closed afterwards."""


async def speak_of_something_else(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example.com ESMTP\r\n" * 10)


async def stand_still(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()


@pytest.mark.parametrize(
    ("serve", "may_be"), [(hang_up, False), (speak_of_something_else, False), (stand_still, True)]
)
async def test_who_takes_the_call_and_says_nothing_may_be_the_node(
    asker: NodeCredentials, monkeypatch: pytest.MonkeyPatch, serve: Serve, may_be: bool
) -> None:
    has_ended = asyncio.Event()

    async def take_the_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        writer.close()
        has_ended.set()

    if may_be:
        monkeypatch.setattr(presence, "PROOF_SECONDS_MAX", 0.05)
    server = await asyncio.start_server(take_the_call, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    assert await can_be_called({"store": B, "peers": f"{HOST}:{port}"}, asker) is may_be
    await has_ended.wait()
    server.close()
    await server.wait_closed()
