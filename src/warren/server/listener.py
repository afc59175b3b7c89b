"""Listening sockets, and how many clients are accepted from each of them in a turn of the event loop."""

from __future__ import annotations

import asyncio
import errno
import socket

ACCEPTED_A_TURN = 32
DESCRIPTORS_FOR_EACH = 32  # one client a turn for so many descriptors that the process may have
BACKLOG = 4096


def accepted_a_turn(descriptors_max: int) -> int:
    """How many clients to accept a turn: fewer if the process may have few descriptors open, since clients
    are only counted once they are connected.
    """
    return max(1, min(ACCEPTED_A_TURN, descriptors_max // DESCRIPTORS_FOR_EACH))


async def bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of the host."""
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _name, address in dict.fromkeys(found):
            made = _socket(family, kind, protocol)
            if made is not None:
                sockets.append(_bind_one(made, address))
    except BaseException:
        for each in sockets:
            each.close()
        raise
    if not sockets:
        raise OSError(errno.EAFNOSUPPORT, f"this machine has no kind of address that '{host}' has")
    return sockets


def _socket(family: int, kind: int, protocol: int) -> socket.socket | None:
    """None if the machine knows no such addresses. `localhost` has one of IPv6 even then."""
    try:
        return socket.socket(family, kind, protocol)
    except OSError as error:
        if error.errno != errno.EAFNOSUPPORT:
            raise
        return None


def _bind_one(made: socket.socket, address: tuple[object, ...]) -> socket.socket:
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made
