"""Directories of queues that hold little: what is sound is known as recovery would know it, and all else is
left to recovery as it is.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.storage.log_files import LogDirectory, acks, done, index, record, segment, timed_segment
from warren.storage import queues_recovery
from warren.storage.files import names_in
from warren.storage.format import HEADER_BYTES, SEGMENT_MAGIC, encode_header
from warren.storage.problems import Problems
from warren.storage.queues_recovery import QueuesRecovery
from warren.storage.recovery import RecoveredLog, recover, recover_short
from warren.storage.segment import Segment
from warren.storage.short_logs import ShortLogs

THREE = segment(1, [b"one", b"two", b"three"])
GAP = encode_header(SEGMENT_MAGIC, 7) + record(7, b"seven") + record(10, b"ten")
SOME_ACKS = acks(1, done(2), (3, 1, 2))
SMALL_MAX = 64 * 1024
NUMBER = 17

Spoil = Callable[[LogDirectory], None]


@pytest.fixture
def log(tmp_path: Path) -> LogDirectory:
    """The directory of a queue with three messages, the second of which is acked."""
    log = LogDirectory(tmp_path / "queues" / str(NUMBER))
    (log.path / "queue.json").write_text("{}\n")
    log.put(1, "seg", THREE)
    log.put(1, "acks", SOME_ACKS)
    return log


def read(log: LogDirectory) -> list[Segment] | None:
    return read_several(log.path.parent, [NUMBER])[0]


def read_several(queues: Path, numbers: list[int]) -> list[list[Segment] | None]:
    parent = os.open(queues, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return ShortLogs(parent, numbers).read().segments(str(queues))
    finally:
        os.close(parent)


def unexpected(event: str, **fields: Any) -> None:
    raise AssertionError(f"told: {event} {fields}")


def everything_about(found: RecoveredLog, log: LogDirectory) -> object:
    """What was recovered, and the files that are left."""
    segments = [
        (
            (part.path.removeprefix(str(log.path)), part.base, part.last, part.count, part.end, part.written),
            (part.alive, part.unread, part.unread_bytes, part.marks_written, part.entries, part.dues),
            (part.life, part.on_disk, part.damaged, part.dirty, part.marked),
            [part.fate_of(position) for position in range(part.base, part.last + 1)],
        )
        for part in found.segments
    ]
    files = {path.name: path.read_bytes() for path in log.path.iterdir() if path.is_file()}
    return segments, found.position, files


def as_recovery_knows_it(log: LogDirectory, *, marks_may_be_lost: bool = False) -> object:
    """By a copy of it. Nothing is told."""
    copy = LogDirectory(log.path.parent.parent / "copy" / str(NUMBER))
    shutil.copytree(log.path, copy.path, dirs_exist_ok=True)
    names = names_in(str(copy.path))
    found = recover(str(copy.path), Problems(unexpected), names, marks_may_be_lost=marks_may_be_lost)
    known = everything_about(found, copy)
    shutil.rmtree(copy.path)
    return known


def taken_over(log: LogDirectory, *, marks_may_be_lost: bool = False) -> object:
    segments = read(log)
    assert segments is not None
    found = recover_short(segments, Problems(unexpected), marks_may_be_lost=marks_may_be_lost)
    return everything_about(found, log)


# --- what is sound ---


@pytest.mark.parametrize("marks_may_be_lost", [False, True])
@pytest.mark.parametrize(
    ("base", "data", "marks"),
    [
        (1, THREE, None),
        (1, THREE, SOME_ACKS),
        (1, THREE, acks(1)),
        (1, THREE, acks(1, done(1, 3))),
        (1, THREE, acks(1, (1, 1, 70_000), (1, 3, 2), done(3))),
        (7, GAP, None),
        (7, GAP, acks(7, done(8, 2), done(10))),
        (1, timed_segment(1, ["5000", None, "0"]), None),
        (1, timed_segment(1, ["5000", None, "0"]), acks(1, done(1))),
        (2**40, segment(2**40, [b""] * 1000), acks(2**40, done(2**40 + 1, 998))),
    ],
)
def test_sound_log_is_known_as_recovery_knows_it(
    log: LogDirectory, base: int, data: bytes, marks: bytes | None, marks_may_be_lost: bool
) -> None:
    for suffix in ("seg", "acks"):
        log.file(1, suffix).unlink()
    log.put(base, "seg", data)
    if marks is not None:
        log.put(base, "acks", marks)
    expected = as_recovery_knows_it(log, marks_may_be_lost=marks_may_be_lost)
    assert taken_over(log, marks_may_be_lost=marks_may_be_lost) == expected


@pytest.mark.parametrize("with_manifest", [True, False])
def test_directory_without_a_log_has_no_segments(tmp_path: Path, with_manifest: bool) -> None:
    log = LogDirectory(tmp_path / "queues" / str(NUMBER))
    if with_manifest:
        (log.path / "queue.json").write_text("{}\n")
    expected = as_recovery_knows_it(log)
    assert read(log) == []
    assert taken_over(log) == expected


def test_segment_as_large_as_is_read_here_is_known_as_recovery_knows_it(log: LogDirectory) -> None:
    log.put(1, "seg", THREE + record(4, bytes(SMALL_MAX - len(THREE) - len(record(4, b"")))))
    assert log.file(1, "seg").stat().st_size == SMALL_MAX
    expected = as_recovery_knows_it(log)
    assert taken_over(log) == expected


# --- what is not ---


@pytest.mark.parametrize("suffix", ["seg", "acks"])
def test_damaged_byte_is_left_to_recovery_or_makes_no_difference(log: LogDirectory, suffix: str) -> None:
    sound = log.file(1, suffix).read_bytes()
    left = 0
    for at in range(len(sound)):
        log.put(1, suffix, sound[:at] + bytes((sound[at] ^ 0x10,)) + sound[at + 1 :])
        if read(log) is None:
            left += 1
        else:  # zeros that are not looked at
            assert sound[at] == 0
            assert taken_over(log) == as_recovery_knows_it(log)
    assert left >= len(sound) - 3 * 7, "a record ends in seven zeros at most"


@pytest.mark.parametrize("suffix", ["seg", "acks"])
def test_file_that_was_cut_is_left_to_recovery_or_is_a_whole_one(log: LogDirectory, suffix: str) -> None:
    sound = log.file(1, suffix).read_bytes()
    whole = 0
    for size in range(len(sound)):
        log.put(1, suffix, sound[:size])
        if suffix == "seg":
            log.put(1, "acks", acks(1))
        if read(log) is not None:
            whole += 1
            assert taken_over(log) == as_recovery_knows_it(log)
    assert whole == 2, "two records of three, and none and one of two marks"


def a_directory(log: LogDirectory) -> None:
    log.file(1, "seg").unlink()
    log.file(1, "seg").mkdir()


def a_pipe(log: LogDirectory) -> None:
    log.file(1, "seg").unlink()
    os.mkfifo(log.file(1, "seg"))


def a_link(log: LogDirectory) -> None:
    log.file(1, "seg").rename(log.path.parent / "elsewhere")
    log.file(1, "seg").symlink_to(log.path.parent / "elsewhere")


@pytest.mark.parametrize(
    "spoil",
    [
        a_directory,
        a_pipe,
        a_link,
        lambda log: log.file(1, "seg").unlink(),
        lambda log: log.put(4, "seg", segment(4, [b"four"])),
        lambda log: log.put(4, "acks", acks(4, done(4))),
        lambda log: log.put(1, "idx", index(1, THREE)),
        lambda log: log.put(1, "torn", b"torn"),
        lambda log: log.put(1, "acks.new", SOME_ACKS),
        lambda log: log.put(1, "acks", acks(1, done(3, 2))),
        lambda log: log.put(1, "acks", acks(2, done(2))),
        lambda log: log.put(1, "seg", THREE + bytes(8)),
        lambda log: log.put(1, "seg", THREE + bytes(4096)),
        lambda log: log.put(1, "seg", THREE[:HEADER_BYTES]),
        lambda log: log.put(1, "seg", b""),
        lambda log: log.put(1, "seg", segment(1, [bytes(SMALL_MAX)])),
        lambda log: log.put(1, "acks", acks(1, *[(1, 1, 1)] * 1100)),
        lambda log: log.file(1, "seg").rename(log.path / "1.seg"),
        lambda log: (log.path / "notes.txt").touch(),
        lambda log: (log.path / "priority-3").mkdir(),
        lambda log: (log.path / "offsets").touch(),
        lambda log: [log.put(base, "torn", b"torn") for base in range(100, 400)],
        lambda log: shutil.rmtree(log.path),
    ],
)
def test_directory_with_anything_else_is_left_as_it_is(log: LogDirectory, spoil: Spoil) -> None:
    spoil(log)
    before = sorted(log.path.rglob("*"))
    assert read(log) is None
    assert sorted(log.path.rglob("*")) == before


def test_no_descriptor_left_leaves_all_to_recovery(log: LogDirectory) -> None:
    """And none is open afterwards, however far it came."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    parent = os.open(log.path.parent, os.O_RDONLY | os.O_DIRECTORY)
    open_before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - with its own
    first, second = os.dup(parent), os.dup(parent)  # the lowest that are free
    os.close(first)
    os.close(second)
    found = []
    try:
        for limit in (first, second, second + 1):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            found.append(ShortLogs(parent, [NUMBER]).read().segments(str(log.path.parent))[0])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        open_after = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        os.close(parent)
    assert found[:2] == [None, None], "without one for the directory, and without one for a file"
    assert found[2] is not None
    assert open_after == open_before


# --- very many ---


class Told:
    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, **_fields: Any) -> None:
        self.events.append(event)

    warning = error = info


def test_every_queue_of_many_batches_gets_its_own_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of them damaged: they are told of, and cost no other queue anything."""
    monkeypatch.setattr(queues_recovery, "BATCH", 3)
    for number in range(1, 101):
        log = LogDirectory(tmp_path / str(number))
        log.put(number, "seg", segment(number, [b"x" * number]) + (b"torn" if number % 10 == 0 else b""))
    told = Told()
    recovery = QueuesRecovery(
        str(tmp_path), Problems(told.warning), lambda _path: None, told, marks_may_be_lost=False
    )
    recovery.run(set(range(1, 101)), set())
    found = {number: one.segments for (number, _), one in recovery.logs.items()}
    assert {number: [part.unread_bytes for part in parts] for number, parts in found.items()} == {
        number: [number] for number in range(1, 101)
    }
    assert told.events == ["torn tail"] * 10
