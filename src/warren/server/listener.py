"""Accepting connections, many in each turn of the event loop.

libuv, on which the event loop is built, accepts one connection for each listening socket and turn. If a
hundred clients come at once while turns are long, the last of them waits for a hundred turns. So each
listening socket is duplicated: all duplicates accept from the same backlog of clients.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

ACCEPTED_A_TURN = 32
DESCRIPTORS_FOR_EACH = 32  # one duplicate for so many descriptors that the process may have
BACKLOG = 4096


class Listener:
    """`servers` has the server of the original sockets first, then those of the duplicates."""

    def __init__(self, servers: list[asyncio.Server]) -> None:
        self.servers = servers

    @property
    def port(self) -> int:
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        for server in self.servers:
            server.close()

    async def wait_closed(self) -> None:
        for server in self.servers:
            await server.wait_closed()


def accepted_a_turn(descriptors_max: int) -> int:
    """How many connections to accept a turn: fewer if the process may have few descriptors open."""
    return max(1, min(ACCEPTED_A_TURN, descriptors_max // DESCRIPTORS_FOR_EACH))


async def listen(
    loop: asyncio.AbstractEventLoop,
    factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    accepted: int = ACCEPTED_A_TURN,
) -> Listener:
    """Listen on all addresses of the host. `accepted` is how many connections to accept a turn."""
    listener = Listener([await loop.create_server(factory, host, port, backlog=BACKLOG)])
    try:
        for bound in listener.servers[0].sockets:
            for _ in range(accepted - 1):
                again = socket.socket(fileno=os.dup(bound.fileno()))
                listener.servers.append(await loop.create_server(factory, sock=again, backlog=BACKLOG))
    except BaseException:
        listener.close()
        raise
    return listener
