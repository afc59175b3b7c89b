"""Clients that come all at once are let in within a few turns of the event loop."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest
import uvloop

from warren.server.listener import ACCEPTED_A_TURN, accepted_a_turn, listen

CLIENTS = 3 * ACCEPTED_A_TURN
TURNS = 10  # accepting takes more than one turn, since libuv polls its sockets once in a turn


class Door(asyncio.Protocol):
    came = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Door.came += 1
        transport.close()


async def let_in() -> int:
    """How many clients were accepted after some turns."""
    Door.came = 0
    listener = await listen(asyncio.get_running_loop(), Door, "127.0.0.1", 0)
    with ExitStack() as clients:
        for _ in range(CLIENTS):
            clients.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        came = Door.came
    listener.close()
    await listener.wait_closed()
    return came


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_many_who_come_at_once_are_let_in_within_a_few_turns(run: type) -> None:
    assert run(let_in()) == CLIENTS


def test_the_port_is_free_again_when_it_is_closed() -> None:
    async def listen_twice() -> None:
        loop = asyncio.get_running_loop()
        first = await listen(loop, Door, "127.0.0.1", 0)
        first.close()
        await first.wait_closed()
        second = await listen(loop, Door, "127.0.0.1", first_port)
        second.close()
        await second.wait_closed()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        first_port = taken.getsockname()[1]
    uvloop.run(listen_twice())


@pytest.mark.parametrize(("descriptors", "accepted"), [(16, 1), (256, 8), (1024, 32), (1_000_000, 32)])
def test_fewer_clients_are_let_in_at_once_where_descriptors_are_few(descriptors: int, accepted: int) -> None:
    assert accepted_a_turn(descriptors) == accepted
