"""What a large record needed to be written and read goes with it: no buffer is left, and no body."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.log_machine import STREAM, LogMachine, browse, message, read_on
from warren.broker.memory import Memory
from warren.broker.message import Message
from warren.broker.pack import Pack
from warren.storage.commit import BUFFERS_BYTES_MAX
from warren.storage.disk import allocated_bytes
from warren.storage.queue_log import QueueLog

LARGE_BYTES = BUFFERS_BYTES_MAX + 4 * 1024 * 1024
SMALL_BYTES_MAX = 1024 * 1024
CHUNK_BYTES_MAX = 600_000


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LogMachine]:
    machine = LogMachine(tmp_path, segment_bytes=100_000_000)
    yield machine
    machine.close()


def test_large_record_leaves_no_buffer_when_it_is_written(machine: LogMachine) -> None:
    before = allocated_bytes()
    log = machine.open()
    log.append(message(bytes(LARGE_BYTES)), 1, False)
    machine.run()
    assert allocated_bytes() - before < SMALL_BYTES_MAX


def test_large_record_that_was_taken_out_before_it_was_written_is_not_kept(machine: LogMachine) -> None:
    log = machine.open()
    location = log.append(message(bytes(LARGE_BYTES)), 1, False)
    log.append(message(b"small"), 2, False)
    body = take_out(log, location).body
    machine.run()
    assert holders(body) == 1


def read(log: QueueLog, _location: int) -> Message:
    ((_, found),) = read_on(log, 1)
    return found


def take_out(log: QueueLog, location: int) -> Message:
    found = log.take_out(1, location)
    assert found is not None
    return found


@pytest.mark.parametrize("get", [read, take_out])
@pytest.mark.parametrize("size", [900_000, LARGE_BYTES])
def test_large_record_leaves_no_buffer_when_it_is_read(
    machine: LogMachine, get: Callable[[QueueLog, int], Message], size: int
) -> None:
    log = machine.open()
    location = log.append(message(bytes(size)), 1, False)
    log.append(message(b"small"), 2, False)
    machine.run()
    before = allocated_bytes()
    body = get(log, location).body
    assert len(body) == size
    assert allocated_bytes() - before < CHUNK_BYTES_MAX
    assert holders(body) == 1
    assert [found.body for _, found in read_on(log)] == [b"small"]


def holders(body: bytes) -> int:
    """How many hold a body: not this function, nor the count itself."""
    return sys.getrefcount(body) - 2


def test_browser_keeps_no_buffer_of_a_large_record_and_goes_on_behind_it(machine: LogMachine) -> None:
    log = machine.open()
    for position in (1, 2, 3):
        log.append(message(bytes([position]) * LARGE_BYTES), position, False)
    log.append(message(b"small"), 4, False)
    machine.run()
    before = allocated_bytes()
    browser, found, position = log.browse(), [], 0
    for _ in range(4):
        position = browser.next_position(position)
        found.append((position, browser.read().body[:1]))
        assert allocated_bytes() - before < SMALL_BYTES_MAX
    assert found == [(1, b"\1"), (2, b"\2"), (3, b"\3"), (4, b"s")]
    assert browser.next_position(1) == 2, "it can go back"
    assert browser.read().body[:1] == b"\2"
    assert [number for number, _ in browse(log)] == [1, 2, 3, 4]


def test_reader_of_a_stream_keeps_no_buffer_of_a_large_record(tmp_path: Path) -> None:
    machine = LogMachine(tmp_path, segment_bytes=100_000_000, arguments=STREAM)
    log, _ = machine.open_stream()
    log.append(message(bytes(LARGE_BYTES)), 1, 1)
    log.append(message(b"small"), 2, 1)
    machine.run()
    before = allocated_bytes()
    near, other = log.reader(1, None), log.reader(1, None)
    for reader in (near, other):
        assert reader.ready() == LARGE_BYTES
        assert len(reader.take().body) == LARGE_BYTES
        assert allocated_bytes() - before < SMALL_BYTES_MAX
        assert reader.ready() == len(b"small")
        assert reader.take().body == b"small"
    machine.close()


def test_large_messages_leave_a_pack_one_by_one() -> None:
    memory = Memory(1 << 30)
    pack = Pack(memory)
    for position in range(1, 11):
        pack.append(Message(b"\0", b"\0", b"\0\0", bytes(100_000), False), position)
    full = memory.used_bytes
    locations = pack.append(Message(b"\0", b"\0", b"\0\0", bytes(100_000), False), 11)
    assert len(pack.pop().body) == 100_000
    found = pack.take_out(locations, 0)
    assert found is not None
    assert len(found.body) == 100_000
    assert memory.used_bytes < full - 90_000, "before all of its block is read"
    while pack.count:
        pack.pop()
    assert memory.used_bytes == 0
