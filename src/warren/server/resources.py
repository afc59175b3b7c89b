"""Memory and disk space: alarms when they are short, with the numbers behind each alarm, and metrics."""

from __future__ import annotations

from collections.abc import Callable

from warren.broker.node import MEMORY, Node
from warren.server.disk_space import DiskSpace
from warren.server.memory import MemoryAlarm, resident_bytes
from warren.server.memory_kinds import kinds_of
from warren.server.metrics import Metric, Metrics

DISK = "disk"


class Resources:
    """Raises and clears the node's alarms. `disk_fails` tells whether writes to the disk fail at present."""

    def __init__(
        self, node: Node, memory: MemoryAlarm, disk: DiskSpace, disk_fails: Callable[[], bool]
    ) -> None:
        self.node = node
        self.memory = memory
        self.disk = disk
        self.disk_fails = disk_fails

    def check(self) -> None:
        self.check_memory()
        self._set_alarm(DISK, self.disk_fails() or self.disk.is_low(), self._disk_counted)

    def check_disk_space(self, written_bytes: int) -> None:
        """Called after each disk round with the total of written bytes; asks the system only now and then."""
        if self.disk.is_found_low(written_bytes):
            self.raise_disk_alarm()

    def raise_disk_alarm(self) -> None:
        self.node.raise_alarm(DISK)

    def check_memory(self) -> None:
        """Cheap, so that a long turn can call this in between. `benchmarks/flood.py` watches this."""
        self._set_alarm(MEMORY, self.memory.is_exceeded(), self._memory_counted)

    def _set_alarm(self, resource: str, raised: bool, counted: Callable[[], dict[str, int]]) -> None:
        if raised == (resource in self.node.alarms):
            return
        if raised:
            self.node.raise_alarm(resource, counted())
        else:
            self.node.clear_alarm(resource, counted())

    def _memory_counted(self) -> dict[str, int]:
        use = self.memory.use
        totals = {"used": use.used_bytes(), "limit": self.memory.limit_bytes, "kept": use.kept_bytes()}
        return totals | self._kinds()

    def _kinds(self) -> dict[str, int]:
        return kinds_of(self.node, self.memory.use)

    def _disk_counted(self) -> dict[str, int]:
        return {"free": self.disk.free_bytes(), "limit": self.disk.limit_bytes}

    # --- metrics ---

    def add_metrics(self, metrics: Metrics) -> None:
        """Metrics have RabbitMQ's names where RabbitMQ has one of the same meaning."""
        use = self.memory.use
        figures: dict[str, tuple[str, Callable[[], int]]] = {
            "rabbitmq_process_resident_memory_bytes": ("Memory that is resident", resident_bytes),
            "rabbitmq_resident_memory_limit_bytes": (
                "Used memory above which publishers wait",
                lambda: self.memory.limit_bytes,
            ),
            "warren_memory_used_bytes": ("Memory that is used, which the alarm looks at", use.used_bytes),
            "warren_memory_kept_bytes": ("Memory that is free, and not given back yet", use.kept_bytes),
            "rabbitmq_disk_space_available_bytes": ("Free disk space", self.disk.free_bytes),
            "rabbitmq_disk_space_available_limit_bytes": (
                "Free disk space below which publishers wait",
                lambda: self.disk.limit_bytes,
            ),
            "rabbitmq_alarms_memory_used_watermark": ("1: too much memory is used", self._is_raised(MEMORY)),
            "rabbitmq_alarms_free_disk_space_watermark": (
                "1: too little disk is free",
                self._is_raised(DISK),
            ),
        }
        for name, (text, read) in figures.items():
            metrics.add(Metric(name=name, text=text, read=read))
        text = "What the used memory is used for"
        metrics.add(Metric(name="warren_memory_bytes", text=text, read=self._kinds, label="kind"))

    def _is_raised(self, resource: str) -> Callable[[], int]:
        return lambda: int(resource in self.node.alarms)
