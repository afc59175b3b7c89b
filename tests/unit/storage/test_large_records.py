"""Large bodies are written from where they are, by the disk's thread: the event loop copies none of them."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.log_machine import LogMachine, browse, entry_of, message, read_on
from tests.support.machine import Machine
from tests.support.waiting import until_readable
from warren.broker import commands
from warren.broker.message import Message
from warren.storage.disk import WRITE, Buffer, Disk, Operation
from warren.storage.format import SEGMENT_MAGIC, encode_header, encode_record
from warren.storage.queue_log import QueueLog

SMALL, LARGE = message(b"small"), message(bytes(1024 * 1024) + b"end")  # no multiple of 8
CONTENT = (
    encode_header(SEGMENT_MAGIC, 1)
    + encode_record(1, SMALL.time_ms, SMALL)
    + encode_record(2, LARGE.time_ms, LARGE)
)
COPIED_BYTES_MAX = 64 * 1024
WAIT_SECONDS_MAX = 60


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LogMachine]:
    machine = LogMachine(tmp_path, segment_bytes=8 * 1024 * 1024)
    yield machine
    machine.close()


@pytest.fixture
def log(machine: LogMachine) -> QueueLog:
    """With a small, a large and a small message, of which nothing is written yet."""
    log = machine.open()
    for position, each in enumerate((SMALL, LARGE, SMALL), 1):
        log.append(each, position, False)
    return log


def gathered(log: QueueLog) -> Buffer:
    buffer = log.segments[0].gathered
    assert buffer is not None
    return buffer


def messages(found: list[tuple[int, Message]]) -> list[tuple[int, bytes, bytes]]:
    return [(position, each.properties, each.body) for position, each in found]


ALL = messages([(1, SMALL), (2, LARGE), (3, SMALL)])


def test_body_is_not_copied(log: QueueLog) -> None:
    buffer = gathered(log)
    assert buffer.allocated <= COPIED_BYTES_MAX
    assert len(buffer) == log.segments[0].end == len(CONTENT)
    assert buffer.tobytes() == CONTENT


def test_nothing_follows_a_large_record_in_its_segment(log: QueueLog) -> None:
    assert [segment.base for segment in log.segments] == [1, 3]


def test_message_that_is_not_written_yet_is_read_as_the_object_it_is(
    machine: LogMachine, log: QueueLog
) -> None:
    assert browse(log)[1][1] is LARGE
    assert log.take_out(2, len(CONTENT) - len(encode_record(2, LARGE.time_ms, LARGE))) is LARGE
    machine.world.run()  # the disk has it now, and has not done it
    assert messages(read_on(log)) == [ALL[0], ALL[2]]


@pytest.mark.parametrize("flying", [False, True])
def test_reading_on_finds_what_is_not_written_yet(machine: LogMachine, log: QueueLog, flying: bool) -> None:
    if flying:
        machine.world.run()
    found = read_on(log)
    assert messages(found) == ALL
    assert found[1][1] is LARGE


def test_records_are_found_again_after_a_restart(machine: LogMachine, log: QueueLog) -> None:
    machine.run()
    assert (machine.directory / f"{1:020}.seg").read_bytes() == CONTENT
    assert log.segments[0].written == len(CONTENT)
    machine.restart()
    assert messages(read_on(machine.open())) == ALL


def test_write_that_fails_is_repeated_with_the_body(machine: LogMachine, log: QueueLog) -> None:
    machine.world.run()  # files are made; what is to be written fails
    machine.faults.fail(at=len(machine.faults.done), error=errno.ENOSPC)
    machine.finish_round()
    assert machine.store.is_failing
    assert machine.faults.done[-1].startswith("write")
    machine.world.advance(1)
    machine.run()
    assert (machine.directory / f"{1:020}.seg").read_bytes() == CONTENT
    assert messages(read_on(log)) == ALL


def test_thread_writes_the_record_with_its_checksum(log: QueueLog, tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    disk = Disk()
    disk.start()
    try:
        disk.submit([Operation(WRITE, file=file, data=gathered(log), offset=0)])
        assert until_readable(disk.done, WAIT_SECONDS_MAX)
        assert disk.result() is None
        assert path.read_bytes() == CONTENT
    finally:
        disk.stop()
        os.close(file)


def test_three_queues_share_one_body(tmp_path: Path) -> None:
    machine = Machine(tmp_path, segment_bytes=8 * 1024 * 1024)
    for name in ("a", "b", "c"):
        machine.node.execute(commands.DeclareQueue(vhost="/", name=name, durable=True))
        machine.queues[name].publish(LARGE)
    buffers = [segment.gathered for segment in machine.store.commit.dirty]
    assert [buffer.allocated <= COPIED_BYTES_MAX for buffer in buffers if buffer is not None] == [True] * 3
    machine.run()
    machine.stop()
    machine.start()
    found = [machine.queues[name].get(no_ack=True) for name in ("a", "b", "c")]
    assert [entry.message.body for entry in found if entry is not None] == [LARGE.body] * 3
    del found
    machine.stop()


def test_body_that_is_read_is_not_copied_either(machine: LogMachine, log: QueueLog) -> None:
    """Twice its size would be in memory if it was read into a buffer first."""
    machine.run()
    tracemalloc.start()
    try:
        found = read_on(log)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert messages(found) == ALL
    assert peak < 1.5 * len(LARGE.body)


@pytest.mark.parametrize("at", [4, 40, 60, 1000, 1024 * 1024])
def test_large_record_that_is_damaged_is_set_aside(machine: LogMachine, log: QueueLog, at: int) -> None:
    machine.run()
    large_at = len(CONTENT) - len(encode_record(2, LARGE.time_ms, LARGE))
    file = machine.directory / f"{1:020}.seg"
    data = bytearray(file.read_bytes())
    data[large_at + at] ^= 0x55
    file.write_bytes(data)
    assert messages(read_on(log)) == [ALL[0], ALL[2]]
    assert machine.told == ["bad record"]
    assert (machine.directory / f"{1:020}.torn").read_bytes() == data[large_at:]


@pytest.mark.parametrize("state", ["gathered", "flying", "written"])
def test_large_record_is_given_back_wherever_it_is(machine: LogMachine, state: str) -> None:
    log = machine.open()
    places = [log.append(each, position, True) for position, each in enumerate((SMALL, LARGE, SMALL), 1)]
    if state == "flying":
        machine.world.run()
    elif state == "written":
        machine.run()
    for position, each in ((3, SMALL), (2, LARGE), (1, SMALL)):
        log.give_back(entry_of(each, position, places[position - 1], 70_000 if position == 2 else 0))
    assert (log.unread, log.unread_bytes) == (3, len(LARGE.body) + 2 * len(SMALL.body))
    assert [log.deliveries_of(position) for position in (1, 2, 3)] == [0, 70_000, 0]
    assert messages(read_on(log)) == ALL
