"""Ack files are written anew when most of what is in them is overtaken, and nothing is lost over it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.log_machine import LogMachine, message, read_on
from warren.storage import rewriting
from warren.storage.ack_file import read_fates
from warren.storage.queue_log import QueueLog

BYTES_MIN = 200
MESSAGES = 4


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogMachine]:
    monkeypatch.setattr(rewriting, "ACKS_BYTES_MIN", BYTES_MIN)
    machine = LogMachine(tmp_path, segment_bytes=100_000)
    yield machine
    machine.close()


@pytest.fixture
def log(machine: LogMachine) -> QueueLog:
    """With messages that are out with a client."""
    log = machine.open()
    for position in range(1, MESSAGES + 1):
        log.append(message(b"%d" % position), position, True)
    machine.run()
    return log


def deliver(machine: LogMachine, log: QueueLog, counts: range) -> None:
    """All of them, each time in a turn of its own."""
    for count in counts:
        for position in range(1, MESSAGES + 1):
            log.delivered(position, count + position)
        machine.store.write_marks()


def acks(machine: LogMachine) -> Path:
    (file,) = machine.directory.glob("*.acks")
    return file


def fates(machine: LogMachine) -> list[int]:
    found, bad, _ = read_fates(acks(machine), 1)
    assert bad == 0
    return [found.of(position) for position in range(1, MESSAGES + 1)]


def expected(count: int) -> list[int]:
    return [count + position for position in range(1, MESSAGES + 1)]


def test_messages_that_are_delivered_again_and_again_take_no_more_room(
    machine: LogMachine, log: QueueLog
) -> None:
    largest = 0
    for start in range(0, 2_000, 10):
        deliver(machine, log, range(start, start + 10))
        machine.housekeeping.run()
        largest = max(largest, acks(machine).stat().st_size)
    assert largest < 10 * BYTES_MIN
    assert fates(machine) == expected(1_999)
    machine.kill(Random(0))
    machine.start()
    reopened = machine.open()
    assert [reopened.deliveries_of(position) for position, _ in read_on(reopened)] == expected(1_999)


def test_marks_that_come_while_a_file_is_written_anew_are_kept(machine: LogMachine, log: QueueLog) -> None:
    deliver(machine, log, range(10))
    assert len(machine.housekeeping.waiting) == 1
    deliver(machine, log, range(10, 13))  # before it is read
    machine.housekeeping.run()
    before = acks(machine).stat().st_size
    log.acked(2)
    machine.store.write_marks()
    assert acks(machine).stat().st_size < before
    assert fates(machine)[0] == expected(12)[0]
    machine.restart()
    assert [position for position, _ in read_on(machine.open())] == [1, 3, 4]


def test_what_comes_faster_than_the_event_loop_copies_is_left_to_the_background(
    machine: LogMachine, log: QueueLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "ADDED_BYTES_MAX", 32)
    deliver(machine, log, range(10))
    machine.housekeeping.run()
    for count in (10, 11):
        deliver(machine, log, range(count, count + 1))
        assert len(machine.housekeeping.waiting) == 1, "too much has come since"
        machine.housekeeping.run()
    size = acks(machine).stat().st_size
    machine.store.write_marks()
    assert acks(machine).stat().st_size < size
    assert fates(machine) == expected(11)


@pytest.mark.parametrize("at", range(4), ids=["begin", "write", "sync", "add or rename"])
def test_a_file_that_cannot_be_written_anew_stays(machine: LogMachine, log: QueueLog, at: int) -> None:
    deliver(machine, log, range(10))
    machine.faults.fail(at=len(machine.faults.done) + at, error=errno.ENOSPC)
    machine.housekeeping.run()
    machine.store.tidy()
    machine.housekeeping.run()
    assert machine.faults.failed == 1
    assert fates(machine) == expected(9)
    assert not list(machine.directory.glob("*.new"))
    assert not log.segments[0].rewriting
    deliver(machine, log, range(10, 60))
    machine.run()
    machine.store.write_marks()
    assert fates(machine) == expected(59)
    assert acks(machine).stat().st_size < 60 * MESSAGES * 16, "it is tried again"


def test_after_a_power_cut_what_was_synced_is_there(machine: LogMachine, log: QueueLog) -> None:
    log.acked(1)
    log.acked(3)
    deliver(machine, log, range(10))
    machine.housekeeping.run()
    machine.store.write_marks()
    machine.housekeeping.run()
    machine.lose_all_unsynced()
    machine.start()
    assert [position for position, _ in read_on(machine.open())] == [2, 4]


def test_what_is_left_of_a_rewriting_that_did_not_finish_goes_at_the_next_start(
    machine: LogMachine, log: QueueLog
) -> None:
    deliver(machine, log, range(10))
    machine.housekeeping.run()
    assert list(machine.directory.glob("*.acks.new"))
    machine._close_files()
    machine.start()
    assert not list(machine.directory.glob("*.acks.new"))
    assert fates(machine) == expected(9)
    assert not machine.told


def test_files_of_an_earlier_broker_are_written_anew_at_the_next_start(
    machine: LogMachine, log: QueueLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.store.commit.rewritings, "bytes_min", 1_000_000)
    deliver(machine, log, range(100))
    machine.stop()
    size = acks(machine).stat().st_size
    machine.start()
    machine.open()
    machine.housekeeping.run()
    machine.store.write_marks()
    assert acks(machine).stat().st_size < size / 10
    assert fates(machine) == expected(99)


def test_a_segment_that_is_deleted_meanwhile_leaves_nothing(machine: LogMachine, log: QueueLog) -> None:
    deliver(machine, log, range(10))
    log.roll(MESSAGES + 1)
    for position in range(1, MESSAGES + 1):
        log.acked(position)
    machine.run()
    assert not list(machine.directory.glob("*.acks*"))


@pytest.mark.parametrize("is_written", [False, True])
def test_a_queue_that_is_deleted_meanwhile_leaves_nothing(
    machine: LogMachine, log: QueueLog, is_written: bool
) -> None:
    deliver(machine, log, range(10))
    if is_written:
        machine.housekeeping.run()
    machine.delete_queue()
    log.delete()
    machine.run()
    machine.run()
    assert not Path(log.chain.directory.path).exists()
    assert not machine.told


def test_an_end_meanwhile_leaves_no_file_half_written(machine: LogMachine, log: QueueLog) -> None:
    deliver(machine, log, range(10))
    machine.housekeeping.run()
    machine.store.close()
    assert not list(machine.directory.glob("*.acks.new"))
    assert fates(machine) == expected(9)


def test_marks_that_a_full_disk_does_not_take_do_not_fill_the_memory(
    machine: LogMachine, log: QueueLog
) -> None:
    machine.faults.fail(at=len(machine.faults.done), error=errno.ENOSPC, times=1_000_000)
    machine.store.write_marks()
    for count in range(50_000):
        for position in range(1, MESSAGES + 1):
            log.delivered(position, count + position)
        machine.store.write_marks()
    assert len(log.segments[0].marks_to_write()) < 2 * 1024 * 1024
    machine.faults.plan = None
    machine.world.advance(1)
    machine.run()
    assert fates(machine) == expected(49_999)
