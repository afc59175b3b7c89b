"""A broker on an event loop in a thread of this process, so that a test can look into it from outside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tests.support.http_api import make_broker
from tests.support.process import Address

T = TypeVar("T")
WAIT_SECONDS_MAX = 20.0


class Serving:
    """Starts on entering, and is stopped on leaving."""

    def __init__(self, data_dir: Path, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.broker = make_broker(data_dir)
        self.make_loop = make_loop
        self.started = threading.Event()
        self.thread = threading.Thread(target=self._run, name="broker")

    def __enter__(self) -> Self:
        self.thread.start()
        assert self.started.wait(WAIT_SECONDS_MAX), "the broker did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(WAIT_SECONDS_MAX)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self.make_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop, self.ended = asyncio.get_running_loop(), asyncio.Event()
        async with self.broker:
            self.started.set()
            await self.ended.wait()

    @property
    def address(self) -> Address:
        return Address(self.broker.host, self.broker.port)

    def call(self, function: Callable[[], T], *, after_seconds: float = 0.0) -> T:
        """Call this on the broker's loop, and wait for the result."""

        async def work() -> T:
            await asyncio.sleep(after_seconds)
            return function()

        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(WAIT_SECONDS_MAX)
