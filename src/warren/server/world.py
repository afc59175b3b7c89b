"""Time, chance, threads and a place for errors: the world as the model sees it, on an event loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import structlog

T = TypeVar("T")
THREADS_MAX = 4


class LoopWorld:
    def __init__(self, loop: asyncio.AbstractEventLoop, log: structlog.stdlib.BoundLogger) -> None:
        self.loop = loop
        self.log = log
        self.threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="warren")

    def now(self) -> float:
        return self.loop.time()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, callback)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def in_thread(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Call `done` on the loop with what `work` returned; if it raised, that goes to the log."""

        def finish(future: Future[T]) -> None:
            error = future.exception()
            if isinstance(error, Exception):
                self.report(error)
            elif error is None:
                done(future.result())

        def finish_on_loop(future: Future[T]) -> None:
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(finish, future)

        self.threads.submit(work).add_done_callback(finish_on_loop)

    def report(self, error: Exception) -> None:
        self.log.error("internal error", exc_info=error)

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
