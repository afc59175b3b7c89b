"""Slabs. Each test runs in a process of its own, since the allocator is changed for good."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

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
assert more == 10_000 * sum(-(-kind.__basicsize__ // 16) * 16 for kind in (Message, Entry)), more
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
RAW = """
import ctypes
import threading
python = ctypes.CDLL(None)  # which lets go of the interpreter's lock, as the broker's own thread does
pointer, size_t = ctypes.c_void_p, ctypes.c_size_t
take, take_zeros = python.PyMem_RawMalloc, python.PyMem_RawCalloc
change, give = python.PyMem_RawRealloc, python.PyMem_RawFree
take.restype, take.argtypes = pointer, [size_t]
take_zeros.restype, take_zeros.argtypes = pointer, [size_t, size_t]
change.restype, change.argtypes = pointer, [pointer, size_t]
give.restype, give.argtypes = None, [pointer]
"""
EDGES = """
EDGES = [0, 1, 511, 512, 513, 576, 577, 65_535, 65_536, 65_537, 524_288, 524_289, 16 << 20, (16 << 20) + 1]

def fill(p, size, byte):
    ctypes.memset(p, byte, size)

def holds(p, size, byte):
    return ctypes.string_at(p, size) == bytes([byte]) * size

before = slabs.large_bytes() + slabs.library_bytes()
for size in EDGES:
    p = take(size)
    assert p is not None and p % 16 == 0
    fill(p, size, 1)
    zeros = take_zeros(1, size)
    assert holds(zeros, size, 0)
    fill(zeros, size, 2)
    assert holds(p, size, 1)
    for other in EDGES:
        p = change(p, other)
        assert p is not None and p % 16 == 0
        assert holds(p, min(size, other), 1)
        fill(p, other, 1)
        p = change(p, size)
        assert holds(p, min(size, other), 1)
        fill(p, size, 1)
    assert holds(zeros, size, 2)
    give(p)
    give(zeros)
assert take_zeros(1 << 40, 1 << 40) is None, "more than there are addresses"
assert take(1 << 62) is None
give(None)
p = change(None, 5_000)
assert change(p, 1 << 62) is None
give(p)
assert abs(slabs.large_bytes() + slabs.library_bytes() - before) < 100_000
"""
UNLOCKED = """
def churn(seed):
    chance = random.Random(seed)
    held = [(None, 0)] * 50
    for turn in range(4_000):
        at = chance.randrange(50)
        p, size = held[at]
        if p is not None:
            assert ctypes.string_at(p, size) == bytes([seed]) * size
        wanted = chance.choice([chance.randrange(600, 3_000), chance.randrange(3_000, 70_000)])
        if chance.random() < 0.5:
            p = change(p, wanted)
            assert ctypes.string_at(p, min(size, wanted)) == bytes([seed]) * min(size, wanted)
        else:
            give(p)
            p = take_zeros(wanted, 1)
            assert ctypes.string_at(p, wanted) == bytes(wanted)
        ctypes.memset(p, seed, wanted)
        held[at] = (p, wanted)
    for p, _ in held:
        give(p)

before = slabs.large_bytes()
threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(1, 5)]
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    slabs.give_back(1 << 40)
    messages = [Message(b"\\0", b"\\0", b"\\0\\0", bytes(600), False) for _ in range(1_000)]
for thread in threads:
    thread.join()
del messages
assert slabs.large_bytes() - before < 1_000_000
"""
REFUSED = """
from warren.broker.message import Message
from warren.server.memory import ResidentMemory, count_memory
early = [bytes(n) for n in range(0, 100_000, 1_000)]
assert isinstance(count_memory(), ResidentMemory)
del early
late = [Message(b"\\0", b"\\0", b"\\0\\0", bytes(n), False) for n in range(0, 100_000, 1_000)]
"""


def run(program: str) -> None:
    execute(BEGIN + program)


def execute(program: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_written_is_there_whatever_else_comes_and_goes() -> None:
    run(CONTENTS)


def test_all_is_counted_and_goes_back_when_it_is_freed() -> None:
    run(COUNTS)


def test_threads_share_slabs_while_these_are_given_back() -> None:
    run(THREADS)


def test_all_sizes_can_be_asked_for_and_changed_into_each_other() -> None:
    run(RAW + EDGES)


def test_threads_without_the_interpreters_lock_share_slabs() -> None:
    run(RAW + UNLOCKED)


@pytest.mark.parametrize("environment", ["dev", "debug", "malloc", "trace"])
def test_memory_that_is_debugged_or_traced_is_left_alone(environment: str) -> None:
    variables = {
        "dev": {"PYTHONDEVMODE": "1"},
        "debug": {"PYTHONMALLOC": "debug"},
        "malloc": {"PYTHONMALLOC": "malloc"},
        "trace": {"PYTHONTRACEMALLOC": "1"},
    }
    execute(REFUSED, **variables[environment])
