"""Named offsets of a stream: the file is written anew without anybody waiting, and loses nothing by it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.log_machine import STREAM, LogMachine
from warren.storage import named_offsets
from warren.storage.named_offsets import read_offsets
from warren.storage.stream_log import SegmentedStream

NAMES = [f"reader-{number}" for number in range(5)]
SIZE_BYTES_MAX = 2_000


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogMachine]:
    monkeypatch.setattr(named_offsets, "SIZE_BYTES_MAX", SIZE_BYTES_MAX)
    machine = LogMachine(tmp_path, arguments=STREAM)
    yield machine
    machine.close()


def store(machine: LogMachine, log: SegmentedStream, offset: int) -> None:
    """All names at this offset, in a turn each."""
    for name in NAMES:
        log.note_offset(name, offset)
        machine.store.write_marks()


def until_rewriting(machine: LogMachine, log: SegmentedStream) -> int:
    """The offset up to which all is in the file that is to be written anew."""
    offset = 0
    while not machine.housekeeping.waiting:
        offset += 1
        store(machine, log, offset)
    return offset - 1  # it may have begun with the first name


def on_disk(machine: LogMachine) -> dict[str, int]:
    return read_offsets(machine.directory / "offsets")[0]


def test_file_that_is_mostly_old_is_written_anew_in_the_background(machine: LogMachine) -> None:
    log, _ = machine.open_stream()
    offset = until_rewriting(machine, log) + 1
    before = (machine.directory / "offsets").stat().st_size
    machine.faults.done.clear()
    store(machine, log, offset + 1)
    assert [done for done in machine.faults.done if done.startswith("sync")] == []
    machine.housekeeping.run()
    store(machine, log, offset + 2)
    assert on_disk(machine) == dict.fromkeys(NAMES, offset + 2)
    assert (machine.directory / "offsets").stat().st_size < before


def test_new_file_is_synced_before_it_gets_the_name_and_the_directory_after(machine: LogMachine) -> None:
    log, _ = machine.open_stream()
    offset = until_rewriting(machine, log) + 1
    machine.faults.done.clear()
    machine.housekeeping.run()
    store(machine, log, offset + 1)
    machine.housekeeping.run()
    number = machine.directory.name
    steps = [done for done in machine.faults.done if done != "write offsets"]
    assert steps == [
        "write offsets anew offsets",
        "write offsets.new",
        "sync offsets.new",
        "write offsets.new",
        "rename offsets",
        f"sync directory {number}",
        f"sync {number}",
    ]


@pytest.mark.parametrize("seed", range(60))
def test_power_cut_at_any_moment_loses_no_offset_that_was_safe(machine: LogMachine, seed: int) -> None:
    rng = Random(seed)
    log, _ = machine.open_stream()
    safe = until_rewriting(machine, log)
    machine.platter.sync_all()
    for more in range(rng.randint(0, 4)):
        machine.housekeeping.run(rng.randint(0, 2))
        store(machine, log, safe + more)
    machine.cut_power(rng)
    machine.start()
    found = on_disk(machine)
    assert found.keys() == set(NAMES)
    assert min(found.values()) >= safe


@pytest.mark.parametrize("step", range(5))
def test_rewriting_that_fails_loses_nothing_and_is_tried_again(machine: LogMachine, step: int) -> None:
    log, _ = machine.open_stream()
    offset = until_rewriting(machine, log) + 1
    machine.faults.fail(at=len(machine.faults.done) + step, error=errno.ENOSPC)
    while machine.faults.failed == 0 or (machine.directory / "offsets").stat().st_size > SIZE_BYTES_MAX:
        offset += 1
        machine.housekeeping.run()
        store(machine, log, offset)
        machine.world.advance(1)
        machine.store.tidy()
        assert offset < 1_000, "it is written anew at last"
    machine.store.write_marks()
    assert on_disk(machine) == dict.fromkeys(NAMES, offset)
    assert not machine.world.errors


def test_stream_that_is_deleted_meanwhile_is_left_alone(machine: LogMachine) -> None:
    log, _ = machine.open_stream()
    until_rewriting(machine, log)
    directory = machine.directory
    log.delete()
    machine.delete_queue()
    machine.run()
    assert not directory.exists()
    assert machine.told == []
