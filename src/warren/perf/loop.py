"""The tool's event loop: one thread, one epoll.

It is not asyncio, because a load tool must decide itself who comes first: in every turn all that has arrived
is read, and only then may publishers send. So a publisher that never pauses cannot keep the consumers beside
it from reading, and a latency ends when the message arrives, not some turns later.
"""

from __future__ import annotations

import select
from typing import Protocol, Self

from warren.client.errors import ClientError

RECEIVE_BYTES = 256 * 1024
TURN_SECONDS_MAX = 0.05
"""How long a run waits for events before it looks at the clock and at its interrupt again."""

EPOLL_SECONDS_MIN = 0.001
SELECT_FILES_MAX = 1024
READABLE = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR


class Watched(Protocol):
    """A link, or anything else with a socket."""

    def fileno(self) -> int: ...
    def on_readable(self) -> None: ...
    def on_writable(self) -> None: ...
    def fail(self, error: ClientError) -> None: ...
    def close(self) -> None: ...


class Loop:
    """Watches sockets, and tells their owners when they are readable or writable."""

    def __init__(self) -> None:
        self.errors: list[ClientError] = []  # of all sockets that failed
        self.buffer = bytearray(RECEIVE_BYTES)  # all sockets receive into it
        self._epoll = select.epoll()
        self._watched: dict[int, Watched] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close all sockets that are still open, without logging out."""
        for watched in list(self._watched.values()):
            watched.close()
        self._epoll.close()

    def add(self, watched: Watched) -> None:
        self._watched[watched.fileno()] = watched
        self._epoll.register(watched.fileno(), select.EPOLLIN)

    def remove(self, watched: Watched) -> None:
        del self._watched[watched.fileno()]
        self._epoll.unregister(watched.fileno())

    def watch_writable(self, watched: Watched, *, wanted: bool) -> None:
        self._epoll.modify(watched.fileno(), select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def turn(self, timeout_s: float) -> None:
        """Wait for events, at most this long, and serve all of them, those to read first."""
        events = self._wait(timeout_s)
        for fd, flags in events:
            watched = self._watched.get(fd)
            if watched is not None and flags & READABLE:
                self._serve(watched, read=True)
        for fd, flags in events:
            watched = self._watched.get(fd)
            if watched is not None and flags & select.EPOLLOUT:
                self._serve(watched, read=False)

    def _wait(self, timeout_s: float) -> list[tuple[int, int]]:
        if 0 < timeout_s < EPOLL_SECONDS_MIN and self._epoll.fileno() < SELECT_FILES_MAX:
            # epoll counts whole milliseconds, too coarse for a steady rate; select takes microseconds.
            select.select([self._epoll], [], [], timeout_s)
            timeout_s = 0
        return self._epoll.poll(timeout_s)

    def _serve(self, watched: Watched, *, read: bool) -> None:
        try:
            if read:
                watched.on_readable()
            else:
                watched.on_writable()
        except ClientError as error:
            self.errors.append(error)
            watched.fail(error)
