"""Clients that were accepted, and are not connected yet: the event loop has still to take their socket, or
they have still to send a proxy's header or to finish a TLS handshake.

They are bounded in time and in number: if there are too many, the one that has waited longest has to go. The
cryptography of a handshake runs on the event loop, so only a few handshakes begin in each turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import cast

WAITING_MAX = 1024
WELCOME_SECONDS_MAX = 10.0  # for a proxy's header and the first byte behind it, and again for the handshake
BEGUN_A_TURN = 4


class Reception:
    """All such clients of some doorways. `waiting` has them in the order in which they came, and `entering`
    those whose sockets the event loop takes now, without TLS. That takes a turn or two, and they are not sent
    away: if it is cancelled, uvloop may tell a protocol that its connection is made, and not that it is lost.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, waiting_max: int = WAITING_MAX) -> None:
        self.loop = loop
        self.waiting_max = waiting_max
        self.waiting: dict[asyncio.Task[None], None] = {}
        self.entering: set[asyncio.Task[None]] = set()
        self.in_line: deque[asyncio.Future[None]] = deque()  # whose handshake has yet to begin

    def count(self) -> int:
        return len(self.waiting)

    def receive(self, welcome: Coroutine[object, object, None], then: Callable[[], None]) -> None:
        """Carry out `welcome`. Call `then` when it has ended, or was given up before it began."""
        if len(self.waiting) >= self.waiting_max:
            oldest = next(iter(self.waiting))
            del self.waiting[oldest]
            oldest.cancel()
        task = self.loop.create_task(welcome)
        self.waiting[task] = None
        task.add_done_callback(lambda done: self._ended(done, then))

    def _ended(self, task: asyncio.Task[None], then: Callable[[], None]) -> None:
        self.waiting.pop(task, None)
        self.entering.discard(task)
        then()
        if not task.cancelled():
            task.result()  # raises what nobody foresaw, so that the loop's handler of errors gets it

    async def take_turn(self) -> None:
        """Wait until it is this client's turn to begin its handshake."""
        turn = self.loop.create_future()
        if not self.in_line:
            self.loop.call_soon(self._next)
        self.in_line.append(turn)
        await turn

    def _next(self) -> None:
        begun = 0
        while self.in_line and begun < BEGUN_A_TURN:
            turn = self.in_line.popleft()
            if not turn.done():
                turn.set_result(None)
                begun += 1
        if self.in_line:
            self.loop.call_soon(self._next)

    def let_in(self) -> None:
        """The client whose welcome calls this is not sent away any more."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        del self.waiting[task]
        self.entering.add(task)

    async def close(self) -> None:
        """The broker stops: send away all who wait. Who enters is connected when this returns."""
        for task in self.waiting:
            task.cancel()
        await asyncio.gather(*self.waiting, *self.entering, return_exceptions=True)
