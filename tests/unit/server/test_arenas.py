"""Python's arenas. Each test runs in a process of its own, since the allocator is changed for good."""

from __future__ import annotations

import subprocess
import sys

KEPT = """
from warren.server import arenas, memory
arenas.install()
objects = [bytes(100) for _ in range(2_000_000)]
full = memory.resident_bytes()
del objects
kept = memory.resident_bytes()
arenas.idle_bytes()
assert arenas.idle_bytes() == arenas.kept_bytes()
given = arenas.give_back(1 << 40)
released = memory.resident_bytes()
again = [bytes(100) for _ in range(100_000)]
assert len(set(map(id, again))) == len(again)
print(full, kept, released, given)
"""
PINNED = """
from warren.server import arenas
arenas.install()
objects = [bytes(100) for _ in range(2_000_000)]
used, free = arenas.used_bytes(), arenas.free_bytes()
pins = objects[::5_000]
del objects
print(used, free, arenas.used_bytes(), arenas.free_bytes())
"""
DEEP_CALLS = """
from warren.server import arenas
arenas.install()

def go_down(depth):
    return 0 if depth == 0 else 1 + go_down(depth - 1)

assert go_down(900) == 900  # frees the memory of these frames, and then that of some arenas
objects = [bytes(100) for _ in range(100_000)]
del objects
objects = [bytes(100) for _ in range(400_000)]  # takes all arenas that were kept
print(len(objects))
"""
MIB = 1024 * 1024


def figures_of(program: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_some_empty_arenas_are_kept_until_nobody_wants_them() -> None:
    full, kept, released, given = figures_of(KEPT)
    assert full - kept > 100 * MIB, "most of 280 MiB goes back at once"
    assert kept - released > 100 * MIB, "128 arenas are kept until then"
    assert given == 128 * MIB


def test_memory_of_frames_is_not_taken_for_an_arena() -> None:
    done = subprocess.run([sys.executable, "-c", DEEP_CALLS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "400000\n"), "smaller than an arena, it would be overrun"


def test_pools_without_an_object_are_free_though_their_arena_stays() -> None:
    used, free, used_then, free_then = figures_of(PINNED)
    assert free < 0.05 * used, "all are full"
    assert used_then > 0.9 * used, "each arena has an object that stays"
    assert free_then > 0.9 * used_then, "and most pools have none"
