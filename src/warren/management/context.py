"""What every resource of the API works with: the broker, and ways to wait for threads and for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple, Unpack

from warren.management.errors import Unavailable
from warren.server.app import Broker

THREADS_MAX = 4
SAFE_SECONDS_MAX = 30.0

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class Context:
    """Its threads are not those of the broker: who reads files here must not keep others from logging in."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.node = broker.node
        self.store = broker.store
        self.threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="warren-http")

    async def in_thread(self, work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    async def all_is_safe(self) -> None:
        """What has been changed so far is on disk, for the client to hear of it."""
        safe: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.store.when_safe(lambda number: None if safe.done() else safe.set_result(number))
        self.node.end_turn()
        try:
            async with asyncio.timeout(SAFE_SECONDS_MAX):
                await safe
        except TimeoutError:
            raise Unavailable("the disk takes too long to write") from None

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
