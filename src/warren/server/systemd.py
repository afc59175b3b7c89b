"""Tells systemd how the broker does: ready, alive, stopping. This is the protocol sd_notify:
datagrams to the socket that NOTIFY_SOCKET names. Without systemd, nothing is sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from warren.storage.problems import Logger

SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
PINGS = 3  # so many in the time after which systemd takes the broker for dead


class Systemd:
    def __init__(self, environment: Mapping[str, str], log: Logger) -> None:
        self.log = log
        self.address = environment.get(SOCKET, "")
        if self.address.startswith("@"):  # a name in the abstract namespace
            self.address = "\0" + self.address[1:]
        self.watchdog_seconds = _watchdog_seconds(environment)  # 0: systemd does not watch

    def ready(self, status: str) -> None:
        self._tell("READY=1", f"STATUS={status}", f"MAINPID={os.getpid()}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    @contextmanager
    def watched(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Tell systemd that the event loop is alive, again and again. A loop that hangs says nothing, and
        systemd starts the broker again.
        """
        if not self.watchdog_seconds:
            yield
            return
        pings = asyncio.ensure_future(self._ping(), loop=loop)
        try:
            yield
        finally:
            pings.cancel()

    async def _ping(self) -> None:
        while True:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / PINGS)

    def _tell(self, *lines: str) -> None:
        if not self.address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            try:
                sender.sendto("\n".join(lines).encode(), self.address)
            except OSError as error:
                self.log.warning("systemd cannot be told", error=str(error))


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    if environment.get(WATCHDOG_PID, str(os.getpid())) != str(os.getpid()):
        return 0.0  # it is for another process
    text = environment.get(WATCHDOG_USEC, "")
    return int(text) / 1_000_000 if text.isdecimal() else 0.0
