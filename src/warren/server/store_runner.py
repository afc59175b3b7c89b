"""Runs the store on an event loop: reads it back when the broker starts, takes the results of the disk's
thread, and closes the store when all is written.

When a round of the group commit is over, its waiters have been called, and what they sent to clients, such as
confirms, is still in buffers. So the node ends its turn then, which flushes these.
"""

from __future__ import annotations

import asyncio
import contextlib

from warren.broker.commands import Command
from warren.broker.node import Node
from warren.server.metrics import Histogram, Metric, Metrics
from warren.server.resources import Resources
from warren.server.world import LoopWorld
from warren.storage.disk import Disk
from warren.storage.problems import Logger
from warren.storage.store import DiskStore, StorageSettings

CLOSE_SECONDS_MAX = 5.0
ROUND_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Bounds of the histogram of disk rounds."""


class StoreRunner:
    """Runs one store, and the disk's thread that writes and syncs for it."""

    def __init__(self, settings: StorageSettings, world: LoopWorld, log: Logger) -> None:
        self.loop = world.loop
        self.world = world
        self.disk = Disk()
        self.store = DiskStore(
            settings,
            world,
            self.disk,
            log,
            on_trouble=self._disk_fails,
            on_round=self._round_is_over,
            on_error=world.report,
        )
        self.rounds = Histogram(*ROUND_SECONDS)  # how long disk rounds took
        self.store.commit.on_round_took = self.rounds.observe
        self.recovering: asyncio.Future[list[Command]] | None = None  # the store is read back, in a thread
        self.is_writing = False  # whether the disk's thread runs, and the loop takes its results

    def attach(self, node: Node, resources: Resources) -> None:
        """Set who is told when a round is over or the disk fails. To be called before anything is written."""
        self.node = node
        self.resources = resources

    def add_metrics(self, metrics: Metrics) -> None:
        text = "How long rounds of the group commit took: all that is written in one is synced together"
        metrics.add(
            Metric(name="warren_disk_round_seconds", text=text, read=lambda: self.rounds, kind="histogram")
        )
        text = "Bytes of messages that were written to disk"
        metrics.add(
            Metric(
                name="warren_disk_written_bytes_total",
                text=text,
                read=lambda: self.store.commit.written_bytes,
                kind="counter",
            )
        )

    async def recover(self) -> list[Command]:
        """Read the data directory. Returns the commands that make the definitions again."""
        self.recovering = self.loop.run_in_executor(None, self.store.recover)
        return await asyncio.shield(self.recovering)

    def start(self) -> None:
        """Start the disk's thread, once the definitions are made again."""
        self.disk.start()
        self.loop.add_reader(self.disk.done, self.world.watchdog.run, self._ask_disk)
        self.is_writing = True

    async def close(self) -> None:
        """Wait until all is written, at most `CLOSE_SECONDS_MAX`: the disk may be full."""
        if self.recovering is not None:
            await asyncio.wait({self.recovering})  # if the start was cancelled, its thread may still read
        if self.is_writing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_written(), CLOSE_SECONDS_MAX)
            self.loop.remove_reader(self.disk.done)
            self.is_writing = False
        await self.loop.run_in_executor(None, self.disk.stop)
        await self.loop.run_in_executor(None, self.store.close)

    async def _all_written(self) -> None:
        """And all that jobs have still to write, such as that dead letters have left their old queues."""
        while self.node.turns.jobs or not self.store.commit.is_idle:
            if self.store.commit.is_idle:
                await asyncio.sleep(0)  # a turn
                continue
            written: asyncio.Future[int] = self.loop.create_future()
            self.store.safety.when_safe(written.set_result)
            await written

    def after_read(self) -> None:
        """A client's bytes were handled. If the disk is done with a round of few segments, end the round now,
        before the other sockets have their turn: the next round then begins sooner. With many segments, more
        rounds would cost more than they gain. `make bench` watches this.
        """
        if self.is_writing and self.store.commit.is_narrow and self.disk.has_result():
            self.world.watchdog.run(self._ask_disk)

    def _ask_disk(self) -> None:
        if self.disk.has_result():
            self.store.commit.completed()

    # --- called by the store ---

    def _disk_fails(self) -> None:
        self.resources.raise_disk_alarm()

    def _round_is_over(self) -> None:
        self.resources.check_disk_space(self.store.commit.written_bytes)
        self.node.end_turn()
