"""In processes of their own, since the memory of a process is changed for good."""

from __future__ import annotations

import subprocess
import sys

BEGIN = """
import random
from warren.broker.entry import Entry
from warren.broker.message import Message
from warren.server import slabs
from warren.server.memory import resident_bytes
early = Message(b"\\0", b"\\0", b"\\0\\0", b"early", False)
assert slabs.install(Message, Entry)
"""
CONTENTS = """
chance = random.Random(1)
held = {}
for turn in range(100_000):
    name, size = chance.randrange(1_000), int(2 ** chance.uniform(0, 17))
    held[name] = (bytes([name % 251]) * size, size)
for name, (data, size) in held.items():
    assert data == bytes([name % 251]) * size
grown = bytearray()
for turn in range(300_000):
    grown += b"abcdefg"
assert grown == b"abcdefg" * 300_000
large = [bytes([n]) * (n * 1_000_003) for n in range(20)]
assert all(data == bytes([n]) * (n * 1_000_003) for n, data in enumerate(large))
assert bytes(5_000_000) == b"\\0" * 5_000_000, "zeros, though the memory was used before"
"""
COUNTS = """
def counted():
    return slabs.object_bytes(), slabs.large_bytes()

objects, large = counted()
messages = [Message(b"\\0", b"\\0", b"\\0\\0", bytes(2_000), False) for _ in range(10_000)]
entries = [Entry(message, None, 1) for message in messages]
more = slabs.object_bytes() - objects
assert more == 10_000 * (Message.__basicsize__ + Entry.__basicsize__), more
assert 20_000_000 <= slabs.large_bytes() - large <= 24_000_000
resident = resident_bytes()
del messages, entries
assert slabs.object_bytes() == objects
assert slabs.large_bytes() - large < 1_000_000
kept = slabs.kept_bytes()
assert kept > 20_000_000
slabs.idle_bytes()
assert slabs.idle_bytes() == kept, "nobody has wanted them since"
assert slabs.give_back(5_000_000) in range(5_000_000, 6_000_000), "so much, and one slab at most"
slabs.give_back(1 << 40)
assert slabs.kept_bytes() == 0
assert resident - resident_bytes() > 20_000_000
again = [bytes([n % 251]) * 2_000 for n in range(10_000)]
assert all(data == bytes([n % 251]) * 2_000 for n, data in enumerate(again))
del early
"""
THREADS = """
import threading
def churn(seed):
    chance = random.Random(seed)
    held = [b""] * 100
    for turn in range(50_000):
        at = chance.randrange(100)
        assert held[at] == bytes([seed]) * len(held[at])
        held[at] = bytes([seed]) * chance.randrange(600, 20_000)
threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(1, 5)]
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    slabs.give_back(1 << 40)
for thread in threads:
    thread.join()
assert slabs.large_bytes() < 10_000_000
"""


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_written_is_there_whatever_else_comes_and_goes() -> None:
    run(CONTENTS)


def test_all_is_counted_and_goes_back_when_it_is_freed() -> None:
    run(COUNTS)


def test_threads_share_slabs_while_these_are_given_back() -> None:
    run(THREADS)
