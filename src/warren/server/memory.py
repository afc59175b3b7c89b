"""How much memory the process uses, and how much it may."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from warren.server import arenas

STATM = Path("/proc/self/statm")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def total_bytes() -> int:
    """The machine's memory, or the share of it that this process was given."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if CGROUP_LIMIT.exists():
        limit = CGROUP_LIMIT.read_text().strip()
        if limit.isdecimal():
            return min(machine, int(limit))
    return machine


def share_in_bytes(share: float) -> int:
    """A share of the memory, or bytes if above 1."""
    return int(share * total_bytes()) if share <= 1 else int(share)


def give_back_free_memory() -> None:
    """Return what is kept of freed memory, here and by the C library, if it is one that can."""
    arenas.release()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class MemoryAlarm:
    """Raised above the watermark, cleared below it."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes

    def is_exceeded(self) -> bool:
        if resident_bytes() <= self.limit_bytes:
            return False
        give_back_free_memory()  # else memory that is free, but kept, would block publishers for ever
        return resident_bytes() > self.limit_bytes
