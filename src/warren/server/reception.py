"""Clients that were accepted, and have yet to send a proxy's header or to finish a TLS handshake.

They are bounded in time and in number: if there are too many, the one that has waited longest has to go. The
cryptography of a handshake runs on the event loop, so only a few handshakes begin in each turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine

WAITING_MAX = 1024
WELCOME_SECONDS_MAX = 10.0  # for a proxy's header and the first byte behind it, and again for the handshake
BEGUN_A_TURN = 4


class Reception:
    """All such clients of all listeners. `waiting` has them in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop, waiting_max: int = WAITING_MAX) -> None:
        self.loop = loop
        self.waiting_max = waiting_max
        self.waiting: dict[asyncio.Task[None], None] = {}
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

    async def close(self) -> None:
        """The broker stops: send all of them away."""
        tasks = list(self.waiting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
