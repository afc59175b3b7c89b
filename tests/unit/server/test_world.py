"""Work in a thread: its caller is always told how it ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError

import pytest

from warren.server.log import get_logger
from warren.server.world import THREADS_MAX, LoopWorld

WAIT_SECONDS_MAX = 10


class Waiting:
    """How pieces of work ended."""

    def __init__(self) -> None:
        self.world = LoopWorld(asyncio.get_running_loop(), get_logger())
        self.ends: asyncio.Queue[object] = asyncio.Queue()

    def start(self, work: Callable[[], object]) -> None:
        self.world.in_thread(work, self.ends.put_nowait, self.ends.put_nowait)

    def end(self) -> Awaitable[object]:
        return asyncio.wait_for(self.ends.get(), WAIT_SECONDS_MAX)


async def test_what_work_returns_is_told() -> None:
    waiting = Waiting()
    waiting.start(lambda: 42)
    assert await waiting.end() == 42
    waiting.world.close()


@pytest.mark.parametrize("failure", [MemoryError("no room"), SystemExit(1)])
async def test_what_work_raises_is_told_and_logged(
    failure: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise failure

    waiting = Waiting()
    waiting.start(fail)
    assert await waiting.end() is failure
    (line,) = caplog.records
    assert line.message == "internal error"
    assert line.exc_info is not None
    assert line.exc_info[1] is failure
    waiting.world.close()


async def test_work_that_the_end_cancels_is_told() -> None:
    waiting = Waiting()
    go_on = threading.Event()
    for _ in range(THREADS_MAX):
        waiting.start(go_on.wait)
    waiting.start(lambda: 42)
    waiting.world.close()
    assert isinstance(await waiting.end(), CancelledError)
    go_on.set()
    assert [await waiting.end() for _ in range(THREADS_MAX)] == [True] * THREADS_MAX


async def test_work_that_no_thread_takes_is_told() -> None:
    waiting = Waiting()
    waiting.world.close()
    waiting.start(lambda: 42)
    assert isinstance(await waiting.end(), RuntimeError)
