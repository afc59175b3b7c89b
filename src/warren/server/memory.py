"""How much memory the process uses, and whether that is above the limit.

Used memory is less than resident memory: allocators keep freed memory, for a while or, where one object pins
a page, for long. A process that is all broker counts the used memory (`CountedMemory`): objects in its slabs
and in Python's arenas, what the C library has handed out, and what was resident before the counting began. A
broker embedded in another program cannot count what that program's allocators hold, so it takes the resident
memory as used (`ResidentMemory`).
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Protocol

from warren.amqp.reader import awaited_bytes
from warren.broker.entry import Entry
from warren.broker.message import Message
from warren.server import arenas, slabs

STATM = Path("/proc/self/statm")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
MIB = 1024 * 1024
KEPT_BYTES_MIN = 8 * MIB  # slabs keep this much free memory for the next burst, and so do arenas
LOOK_SECONDS_MIN = 0.25  # between two counts of the free pools in arenas
TRIM_SECONDS_MIN = 10.0  # between two calls of `malloc_trim`


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def total_bytes() -> int:
    """The machine's memory, or the limit of our control group if that is lower."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if CGROUP_LIMIT.exists():
        limit = CGROUP_LIMIT.read_text().strip()
        if limit.isdecimal():
            return min(machine, int(limit))
    return machine


def share_in_bytes(share: float) -> int:
    """Bytes for a setting that is a share of the memory, or a number of bytes if above 1."""
    return int(share * total_bytes()) if share <= 1 else int(share)


class MemoryUse(Protocol):
    """How the memory in use is found out."""

    code_bytes: int  # resident before the counting began

    def used_bytes_most(self) -> int:
        """A cheap upper bound of `used_bytes`."""

    def used_bytes(self) -> int:
        """The memory in use. Takes longer than `used_bytes_most`."""

    def message_bytes(self) -> int:
        """The part of it that messages and large buffers take; 0 if not known."""

    def kept_bytes(self) -> int:
        """Free memory that was not given back to the system yet."""

    def idle_bytes(self) -> int:
        """The part of it that was not needed since this was last called, and may be given back."""

    def give_back(self, most: int) -> None:
        """Give up to so many of these bytes back to the system. Called in a thread."""


class CountedMemory:
    """Counts by our own allocators, slabs and arenas. `benchmarks/memory.py` watches what they keep."""

    def __init__(self) -> None:
        """Installs the allocators: the counting begins."""
        resident = resident_bytes()
        arenas.install()
        self.is_counted = slabs.install(Message, Entry)  # False: slabs cannot be used here
        self.code_bytes = max(0, resident - slabs.library_bytes())
        self.pools_free_bytes = 0  # in arenas, when it was last counted
        self.looked_at = 0.0  # when that was
        self.arenas_idle_bytes = 0  # the arenas' part of what `idle_bytes` last returned

    def used_bytes_most(self) -> int:
        """Counts arenas as full. Buffers for bodies count only as far as the body has arrived: the rest of
        the buffer takes no memory yet.
        """
        in_slabs = slabs.object_bytes() + slabs.large_bytes()
        used = self.code_bytes + in_slabs + slabs.library_bytes() + arenas.used_bytes()
        return used - awaited_bytes()

    def message_bytes(self) -> int:
        """Messages, and everything that is too large for arenas: bodies and buffers."""
        return max(0, slabs.object_bytes() + slabs.large_bytes() - awaited_bytes())

    def used_bytes(self) -> int:
        now = time.monotonic()
        if now - self.looked_at >= LOOK_SECONDS_MIN:
            self.looked_at = now
            self.pools_free_bytes = arenas.free_bytes()
        return self.used_bytes_most() - self.pools_free_bytes

    def kept_bytes(self) -> int:
        """Free bytes in empty and partly used slabs, in kept arenas, and in arenas' pools without objects."""
        room = slabs.used_bytes() - slabs.object_bytes() - slabs.large_bytes()
        return slabs.kept_bytes() + room + arenas.kept_bytes() + self.pools_free_bytes

    def idle_bytes(self) -> int:
        """Kept bytes that were not needed since the last call, less what is kept for the next burst."""
        self.arenas_idle_bytes = max(0, arenas.idle_bytes() - KEPT_BYTES_MIN)
        return max(0, slabs.idle_bytes() - KEPT_BYTES_MIN) + self.arenas_idle_bytes

    def give_back(self, most: int) -> None:
        arenas.give_back(min(most, self.arenas_idle_bytes))
        slabs.give_back(most - min(most, self.arenas_idle_bytes))


class ResidentMemory:
    """Takes the resident memory as used. The C library is told to give freed memory back before a close look,
    if it can (`malloc_trim`), since freed memory counts as used until then.
    """

    def __init__(self) -> None:
        self.code_bytes = 0
        self.trimmed_at = 0.0  # when `trim` was last called
        self.trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def used_bytes_most(self) -> int:
        return resident_bytes()

    def used_bytes(self) -> int:
        now = time.monotonic()
        if self.trim is not None and now - self.trimmed_at >= TRIM_SECONDS_MIN:
            self.trimmed_at = now
            self.trim(0)
        return resident_bytes()

    def message_bytes(self) -> int:
        return 0

    def kept_bytes(self) -> int:
        return 0

    def idle_bytes(self) -> int:
        return 0

    def give_back(self, most: int) -> None:
        """`used_bytes` does it."""


def count_memory() -> MemoryUse:
    """For a process that is all broker. Falls back to the resident memory where slabs cannot be used: the
    address space is limited, or memory is traced.
    """
    counted = CountedMemory()
    return counted if counted.is_counted else ResidentMemory()


class MemoryAlarm:
    """Whether more memory is used than the watermark allows."""

    def __init__(self, use: MemoryUse, limit_bytes: int) -> None:
        self.use = use
        self.limit_bytes = limit_bytes

    def is_exceeded(self) -> bool:
        """Cheap as long as memory is not short, so it may be called often."""
        return self.use.used_bytes_most() > self.limit_bytes and self.use.used_bytes() > self.limit_bytes
