"""In a process of its own, since the arenas of a process are changed for good."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from warren.server import arenas, memory
arenas.install()
objects = [bytes(100) for _ in range(2_000_000)]
full = memory.resident_bytes()
del objects
kept = memory.resident_bytes()
arenas.release()
released = memory.resident_bytes()
again = [bytes(100) for _ in range(100_000)]
assert len(set(map(id, again))) == len(again)
print(full, kept, released)
"""
DEEP_CALLS = """
from warren.server import arenas
arenas.install()

def go_down(depth):
    return 0 if depth == 0 else 1 + go_down(depth - 1)

assert go_down(900) == 900  # the memory for these frames is given back, and then that of some arenas
objects = [bytes(100) for _ in range(100_000)]
del objects
objects = [bytes(100) for _ in range(400_000)]  # takes all that was kept
print(len(objects))
"""
MIB = 1024 * 1024


def test_some_empty_arenas_are_kept_until_they_are_released() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    full, kept, released = map(int, done.stdout.split())
    assert full - kept > 100 * MIB, "most of 280 MiB goes back at once"
    assert kept - released > 100 * MIB, "128 arenas are kept until then"


def test_memory_of_frames_is_not_taken_for_an_arena() -> None:
    done = subprocess.run([sys.executable, "-c", DEEP_CALLS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "400000\n"), "smaller than an arena, it would be overrun"
