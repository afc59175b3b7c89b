"""Tasks of a node's part in its cluster: none is lost, and what one of them fails with is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    def __init__(self, report: Callable[[Exception], None]) -> None:
        self.report = report  # called with an exception that nobody else handles
        self.running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.running.add(task)
        task.add_done_callback(self._ended)
        return task

    def repeat(
        self, work: Callable[[], Coroutine[Any, Any, None]], *, pause_seconds: float = 0.0
    ) -> asyncio.Task[None]:
        """Do some work over and over, also if it fails, with a pause in between."""
        return self.spawn(self._repeat(work, pause_seconds))

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, None]], pause_seconds: float) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - what fails once may work the next time
                self.report(error)
            await asyncio.sleep(pause_seconds)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.report(error)

    async def stop(self) -> None:
        """Cancel all of them, and wait until they have ended."""
        for task in list(self.running):
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
