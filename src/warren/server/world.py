"""The model's `World` on an event loop: time, timers, random bytes, threads, reports of our own errors."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import structlog

from warren.server.watchdog import Watchdog

T = TypeVar("T")
THREADS_MAX = 4


class LoopWorld:
    """What the model has called, soon, later or behind work in a thread, runs through the watchdog."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: structlog.stdlib.BoundLogger) -> None:
        self.loop = loop
        self.log = log
        self.watchdog = Watchdog(log)
        self.threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="warren")

    def now(self) -> float:
        return self.loop.time()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(self.watchdog.run, callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, self.watchdog.run, callback)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def in_thread(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Run `work` in a thread, then call back on the loop: `done` with its result, or `failed` with its
        exception, which is logged as well. Work that is cancelled because the broker stops has failed, too.
        """
        try:
            self.threads.submit(work).add_done_callback(partial(self._finish_on_loop, done, failed))
        except RuntimeError as error:  # the system has no thread for us, or the broker has stopped
            self.report(error)
            self.loop.call_soon(failed, error)

    def _finish_on_loop(
        self, done: Callable[[T], None], failed: Callable[[BaseException], None], future: Future[T]
    ) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.watchdog.run, partial(self._finish, done, failed, future))

    def _finish(
        self, done: Callable[[T], None], failed: Callable[[BaseException], None], future: Future[T]
    ) -> None:
        error = CancelledError() if future.cancelled() else future.exception()
        if error is None:
            done(future.result())
            return
        if not future.cancelled():
            self.report(error)
        failed(error)

    def report(self, error: BaseException) -> None:
        self.log.error("internal error", exc_info=error)

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
