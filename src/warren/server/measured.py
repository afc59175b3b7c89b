"""What a coroutine does between two waits is a turn of the event loop, or a part of one, and is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from warren.server.watchdog import Watchdog, describe

T = TypeVar("T")


class Measured(Generator[Any, Any, T]):
    """An awaitable in the place of another one, and a coroutine for whoever makes a task of it. `what` makes
    the fields for the log, and is only called if a step was slow.
    """

    def __init__(self, work: Awaitable[T], watchdog: Watchdog, what: Callable[[], dict[str, Any]]) -> None:
        self.steps = work.__await__()
        self.watchdog = watchdog
        self.what = what

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any) -> Any:
        started = self.watchdog.now()
        try:
            return self.steps.send(value)
        finally:
            self.watchdog.ended(started, self.what)

    def throw(self, *error: Any) -> Any:
        started = self.watchdog.now()
        try:
            return self.steps.throw(*error)
        finally:
            self.watchdog.ended(started, self.what)


def measure_tasks(loop: asyncio.AbstractEventLoop, watchdog: Watchdog) -> None:
    """For a loop that is all the broker's: have the tasks measured that are made from now on."""

    def make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        measured = Measured(work, watchdog, lambda: {"what": f"task {describe(work)}"})
        return asyncio.Task(measured, loop=loop, **options)

    loop.set_task_factory(make_task)
