"""What the node has read, written and used of the machine, with samples of the past for `/api/nodes`."""

from __future__ import annotations

import gc
import resource
import threading
from typing import ClassVar

from warren.broker.history import History
from warren.broker.node import Node
from warren.server.descriptors import open_descriptors
from warren.server.disk_space import DiskSpace
from warren.server.memory import MemoryUse
from warren.server.store_runner import StoreRunner
from warren.storage.window import read_figures

MICROSECONDS = 1_000_000


class NodeFigures:
    """Counts from 0 when it is made, whatever the process has done before."""

    COUNTERS: ClassVar[tuple[str, ...]] = (
        "reads",  # of files of queues
        "read_bytes",
        "read_us",
        "rounds",  # of the group commit, each of which writes and syncs
        "written_bytes",
        "round_us",
        "collections",  # by Python's garbage collector
        "context_switches",
    )
    GAUGES: ClassVar[tuple[str, ...]] = ("memory", "descriptors", "sockets", "threads", "disk_free")
    NAMES: ClassVar[tuple[str, ...]] = (*COUNTERS, *GAUGES)

    def __init__(self, node: Node, memory: MemoryUse, disk: DiskSpace, storage: StoreRunner) -> None:
        self.node = node
        self.memory = memory
        self.disk = disk
        self.storage = storage
        self.history: History | None = None  # samples of the figures, in the order of `NAMES`
        self.before = self._of_process()  # what the process has counted before

    def counters(self) -> tuple[int, ...]:
        reads, read_bytes, read_us, collections, switches = (
            now - before for now, before in zip(self._of_process(), self.before, strict=True)
        )
        rounds = self.storage.rounds
        round_us = int(MICROSECONDS * rounds.sum)
        written = (sum(rounds.counts), self.storage.store.commit.written_bytes, round_us)
        return (reads, read_bytes, read_us, *written, collections, switches)

    def gauges(self) -> tuple[int, ...]:
        """Of memory this is the upper bound: to look closer, every few seconds, would cost too much."""
        return (
            self.memory.used_bytes_most(),
            open_descriptors(),
            len(self.node.clients),
            threading.active_count(),
            self.disk.free_bytes(),
        )

    def _of_process(self) -> tuple[int, ...]:
        reads, read_bytes, read_ns = read_figures()
        used = resource.getrusage(resource.RUSAGE_SELF)
        collections = sum(generation["collections"] for generation in gc.get_stats())
        return reads, read_bytes, read_ns // 1000, collections, used.ru_nvcsw + used.ru_nivcsw
