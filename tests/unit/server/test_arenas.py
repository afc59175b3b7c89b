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
MIB = 1024 * 1024


def test_some_empty_arenas_are_kept_until_they_are_released() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    full, kept, released = map(int, done.stdout.split())
    assert full - kept > 100 * MIB, "most of 280 MiB goes back at once"
    assert kept - released > 100 * MIB, "128 arenas are kept until then"
