"""What all resources of the API share: the broker, and threads for slow work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple, Unpack

from warren.broker.commands import Command
from warren.management.order import QueueOrder
from warren.server.app import Broker
from warren.server.cluster.views import ClusterOperations
from warren.storage.files import NONE_LEFT

THREADS_MAX = 4

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class Context:
    """Has threads of its own: reading files for HTTP clients must not keep AMQP clients from logging in,
    which takes threads of the broker.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.node = broker.node
        self.store = broker.store
        self.queue_order = QueueOrder(self.node.vhosts)
        self.threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="warren-http")

    @property
    def cluster(self) -> ClusterOperations | None:
        """None for a broker that is alone."""
        return None if self.broker.cluster is None else self.broker.cluster.operations

    async def in_thread(self, work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    async def in_thread_with_files(self, work: Callable[[Unpack[Arguments]], T], *arguments: *Arguments) -> T:
        """The same for work that opens files. If no descriptor is left, idle files of queues are closed, and
        the work is tried once more.
        """
        try:
            return await self.in_thread(work, *arguments)
        except OSError as error:
            if error.errno not in NONE_LEFT:
                raise
            self.store.files.when_short()
            self.store.files.close_some()
        return await self.in_thread(work, *arguments)

    async def execute(self, *commands: Command) -> None:
        """Execute the commands, and wait until their changes are safe on disk."""
        for command in commands:
            await self.broker.change(command)
        saved: asyncio.Future[int] | None = None
        if self.store.is_saving():
            saved = asyncio.get_running_loop().create_future()
            self.store.safety.when_safe(lambda number: None if saved.done() else saved.set_result(number))
        self.node.end_turn()
        if saved is not None:
            await saved

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
