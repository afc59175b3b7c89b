"""How much memory the process uses, and how much it may.

What is used is not what is resident: allocators keep what was freed, for a while or, where one object pins
a page, for long. A process that is all broker counts what it uses (`CountedMemory`): what is in its slabs and
in Python's arenas, what the C library has handed out, and what was there before it began to count. One that
is embedded has an allocator that is not ours to count, and looks at what is resident (`ResidentMemory`).
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
KEPT_BYTES_MIN = 8 * MIB  # for the next burst, by slabs and by arenas each
LOOK_SECONDS_MIN = 0.25  # between two looks at every pool
TRIM_SECONDS_MIN = 10.0


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


class MemoryUse(Protocol):
    """`used_bytes_most` is cheap, and may be more than is used; `used_bytes` may look closer. `kept_bytes`
    are free, and not the system's yet. `code_bytes` were there before anything was counted.
    """

    code_bytes: int

    def used_bytes_most(self) -> int: ...
    def used_bytes(self) -> int: ...
    def message_bytes(self) -> int: ...
    def kept_bytes(self) -> int: ...
    def idle_bytes(self) -> int: ...
    def give_back(self, most: int) -> None: ...


class CountedMemory:
    def __init__(self) -> None:
        """From now on it is counted."""
        resident = resident_bytes()
        arenas.install()
        self.is_counted = slabs.install(Message, Entry)
        self.code_bytes = max(0, resident - slabs.library_bytes())
        self.pools_free_bytes = 0
        self.looked_at = 0.0
        self.arenas_idle_bytes = 0

    def used_bytes_most(self) -> int:
        """Arenas count as full. A body that was announced, and has not come, takes no memory yet."""
        in_slabs = slabs.object_bytes() + slabs.large_bytes()
        used = self.code_bytes + in_slabs + slabs.library_bytes() + arenas.used_bytes()
        return used - awaited_bytes()

    def message_bytes(self) -> int:
        """Of messages, and of all that is too large for arenas: bodies and buffers."""
        return max(0, slabs.object_bytes() + slabs.large_bytes() - awaited_bytes())

    def used_bytes(self) -> int:
        now = time.monotonic()
        if now - self.looked_at >= LOOK_SECONDS_MIN:
            self.looked_at = now
            self.pools_free_bytes = arenas.free_bytes()
        return self.used_bytes_most() - self.pools_free_bytes

    def kept_bytes(self) -> int:
        """In slabs that are empty or have room, in arenas that are kept or have pools without an object."""
        room = slabs.used_bytes() - slabs.object_bytes() - slabs.large_bytes()
        return slabs.kept_bytes() + room + arenas.kept_bytes() + self.pools_free_bytes

    def idle_bytes(self) -> int:
        """What nobody has wanted since this was asked last, beyond what is kept for the next burst."""
        self.arenas_idle_bytes = max(0, arenas.idle_bytes() - KEPT_BYTES_MIN)
        return max(0, slabs.idle_bytes() - KEPT_BYTES_MIN) + self.arenas_idle_bytes

    def give_back(self, most: int) -> None:
        arenas.give_back(min(most, self.arenas_idle_bytes))
        slabs.give_back(most - min(most, self.arenas_idle_bytes))


class ResidentMemory:
    """What is free is only known once the C library, if it is one that can, has given it back."""

    def __init__(self) -> None:
        self.code_bytes = 0
        self.trimmed_at = 0.0
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
        """It is done where it is counted."""


def count_memory() -> MemoryUse:
    """For a process that is all broker. No slabs where addresses are rationed or memory is traced."""
    counted = CountedMemory()
    return counted if counted.is_counted else ResidentMemory()


class MemoryAlarm:
    """Raised above the watermark, cleared below it."""

    def __init__(self, use: MemoryUse, limit_bytes: int) -> None:
        self.use = use
        self.limit_bytes = limit_bytes

    def is_exceeded(self) -> bool:
        """Cheap as long as memory is not short: to be asked as often as one likes."""
        return self.use.used_bytes_most() > self.limit_bytes and self.use.used_bytes() > self.limit_bytes
