"""Checking a data directory: what is damage, what a crash leaves, and where it is."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.storage.data_files import FIRST, SECOND, HandMade, with_queue
from tests.unit.storage.log_files import (
    LogDirectory,
    acks,
    damaged,
    done,
    dues,
    index,
    index_of_version_1,
    offset_of,
    record,
    segment,
    timed_segment,
)
from warren.broker.commands import DeclareQueue
from warren.storage import data_files
from warren.storage.data_files import DataFiles, FileKind, FileProblem
from warren.storage.format import HEADER_BYTES, MARK_BYTES, SEGMENT_MAGIC, encode_header
from warren.storage.verify import Checked, verify

LATER = (3).to_bytes(4, "little")  # a version that is not known here
WHOLE_INDEX = index(1, FIRST)
BAD = offset_of(FIRST, 1, 2)


class Told(NamedTuple):
    """A problem, without the path of the data directory."""

    kind: FileKind
    file: str
    offset: int | None


@pytest.fixture
def data(tmp_path: Path) -> HandMade:
    return with_queue(tmp_path / "data")[0]


@pytest.fixture
def log(data: HandMade) -> LogDirectory:
    return LogDirectory(data.path / "queues" / "1")


def problems(data: HandMade) -> list[FileProblem]:
    told: list[FileProblem] = []
    verify(DataFiles(data.path), told.append)
    return told


def told(data: HandMade) -> list[Told]:
    return [
        Told(p.kind, Path(p.file).relative_to(data.path).name.lstrip("0"), p.offset) for p in problems(data)
    ]


def test_sound_directory_is_checked_without_a_word(data: HandMade) -> None:
    sizes = [
        path.stat().st_size
        for path in data.path.rglob("*")
        if path.suffix in {".seg", ".idx", ".acks", ".log"}
    ]
    found: list[FileProblem] = []
    assert verify(DataFiles(data.path), found.append) == Checked(1, 2, 6, sum(sizes))
    assert found == []


def test_nothing_is_written(data: HandMade, log: LogDirectory) -> None:
    for base, suffix in ((1, "idx"), (1, "acks"), (4, "acks")):
        log.put(base, suffix, b"garbage" * 10)
    log.put(4, "seg", SECOND + b"torn")
    before = data.state()
    assert len(problems(data)) == 4
    assert data.state() == before


# --- segments ---


@pytest.mark.parametrize(
    ("base", "suffix", "content", "expected"),
    [
        (1, "seg", damaged(FIRST, BAD + 40), [Told(FileKind.DAMAGE, "1.seg", BAD)]),
        (1, "seg", damaged(FIRST, len(FIRST) - 10), [Told(FileKind.DAMAGE, "1.seg", offset_of(FIRST, 1, 3))]),
        (1, "seg", damaged(FIRST, 20), [Told(FileKind.DAMAGE, "1.seg", 0)]),
        (1, "seg", FIRST[:8] + LATER + FIRST[12:], [Told(FileKind.DAMAGE, "1.seg", 0)]),
        (1, "seg", b"", [Told(FileKind.DAMAGE, "1.seg", None), Told(FileKind.DAMAGE, "1.seg", None)]),
        (1, "seg", FIRST + b"more", [Told(FileKind.DAMAGE, "1.seg", len(FIRST))]),
        (4, "seg", SECOND + b"torn", [Told(FileKind.HARMLESS, "4.seg", len(SECOND))]),
        (4, "seg", SECOND + bytes(4096), [Told(FileKind.HARMLESS, "4.seg", len(SECOND))]),
        (4, "seg", b"", [Told(FileKind.HARMLESS, "4.seg", None)]),
        (4, "seg", SECOND[:20], [Told(FileKind.HARMLESS, "4.seg", 0)]),
        (4, "torn", b"torn", [Told(FileKind.HARMLESS, "4.torn", None)]),
        (4, "acks.torn", b"torn", [Told(FileKind.HARMLESS, "4.acks.torn", None)]),
        (1, "idx", WHOLE_INDEX[:-1], [Told(FileKind.DAMAGE, "1.idx", 0)]),
        (1, "idx", WHOLE_INDEX[:8] + LATER + WHOLE_INDEX[12:], [Told(FileKind.DAMAGE, "1.idx", 0)]),
        (1, "idx", index(1, FIRST[:BAD]), [Told(FileKind.DAMAGE, "1.idx", None)]),
        (1, "idx", index(1, FIRST + record(4, b"")), [Told(FileKind.DAMAGE, "1.seg", None)]),
        (1, "idx.new", b"part", [Told(FileKind.HARMLESS, "1.idx.new", None)]),
        (1, "idx", index_of_version_1(1, FIRST[:BAD]), [Told(FileKind.DAMAGE, "1.idx", None)]),
    ],
    ids=[
        "record",
        "last record of a closed segment",
        "header",
        "unknown version",
        "empty",
        "bytes behind a closed segment",
        "torn tail",
        "zeros at the tail",
        "empty tail",
        "torn header",
        "torn file",
        "torn ack file",
        "cut index",
        "unknown index",
        "short index",
        "long index",
        "unfinished index",
        "index of version 1 that says something else",
    ],
)
def test_damage_is_told_with_file_and_offset(
    data: HandMade, log: LogDirectory, base: int, suffix: str, content: bytes, expected: list[Told]
) -> None:
    log.put(base, suffix, content)
    assert told(data) == expected


def test_index_of_version_1_is_sound(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "idx", index_of_version_1(1, FIRST))
    assert told(data) == []


# --- what is due ---

TIMED = timed_segment(1, ["100", None, "200"])
DUES = dues(1, TIMED)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (DUES, []),
        (DUES[:-1], [Told(FileKind.DAMAGE, "1.due", 0)]),
        (damaged(DUES, 50), [Told(FileKind.DAMAGE, "1.due", 0)]),
        (dues(1, timed_segment(1, ["100", "200"])), [Told(FileKind.DAMAGE, "1.due", 0)]),
        (dues(1, timed_segment(1, ["100", None, "300"])), [Told(FileKind.DAMAGE, "1.due", None)]),
        (None, [Told(FileKind.DAMAGE, "1.due", None)]),
    ],
    ids=["sound", "cut", "damaged", "of another index", "with another time", "missing"],
)
def test_due_file_is_checked_against_the_segment(
    data: HandMade, log: LogDirectory, content: bytes | None, expected: list[Told]
) -> None:
    log.put(1, "seg", TIMED)
    log.put(1, "idx", index(1, TIMED))
    if content is not None:
        log.put(1, "due", content)
    assert told(data) == expected


def test_due_file_may_have_a_record_that_is_bad_by_now(data: HandMade, log: LogDirectory) -> None:
    at = offset_of(TIMED, 1, 3)
    log.put(1, "seg", damaged(TIMED, at + 40))
    log.put(1, "idx", index(1, TIMED))
    log.put(1, "due", DUES)
    assert told(data) == [Told(FileKind.DAMAGE, "1.seg", at)]


def test_due_file_that_outlived_its_segment_is_harmless(data: HandMade, log: LogDirectory) -> None:
    log.put(7, "due", DUES)
    assert told(data) == [Told(FileKind.HARMLESS, "7.due", None)]


def test_torn_tail_says_what_happens_to_it(data: HandMade, log: LogDirectory) -> None:
    log.put(4, "seg", SECOND + b"torn")
    (problem,) = problems(data)
    assert problem.text == (
        "torn tail, 4 bytes of a write that did not finish; the next start sets them aside"
    )


def test_tail_of_a_segment_that_is_not_the_newest_is_damage(data: HandMade, log: LogDirectory) -> None:
    log.put(4, "seg", SECOND + b"torn")
    log.put(9, "seg", segment(9, [b"nine"]))
    assert told(data) == [Told(FileKind.DAMAGE, "4.seg", len(SECOND))]


def test_index_that_says_something_else_is_damage(data: HandMade, log: LogDirectory) -> None:
    other = encode_header(SEGMENT_MAGIC, 1) + record(1, b"one") + record(4, b"two") + record(5, b"three")
    assert len(other) == len(FIRST)
    log.put(1, "idx", index(1, other))
    assert told(data) == [Told(FileKind.DAMAGE, "1.idx", None)]


def test_segment_that_begins_before_the_end_of_the_one_before_is_damage(
    data: HandMade, log: LogDirectory
) -> None:
    log.put(3, "seg", segment(3, [b"again"]))
    assert told(data) == [Told(FileKind.DAMAGE, "3.seg", None)]


def test_file_that_cannot_be_read_is_told_and_the_rest_checked(data: HandMade, log: LogDirectory) -> None:
    log.file(1, "acks").unlink()
    log.file(1, "acks").mkdir()
    log.put(4, "seg", damaged(SECOND, 20))
    assert told(data) == [Told(FileKind.UNREADABLE, "1.acks", None), Told(FileKind.DAMAGE, "4.seg", 0)]


# --- marks ---


MARKS = acks(4, done(4), done(5), (6, 1, 1))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (damaged(MARKS, HEADER_BYTES + 20), Told(FileKind.DAMAGE, "4.acks", HEADER_BYTES + MARK_BYTES)),
        (MARKS + bytes(2 * MARK_BYTES) + MARKS[HEADER_BYTES:], Told(FileKind.DAMAGE, "4.acks", len(MARKS))),
        (damaged(MARKS, 20), Told(FileKind.DAMAGE, "4.acks", 0)),
        (MARKS[:8] + LATER + MARKS[12:], Told(FileKind.DAMAGE, "4.acks", 0)),
        (MARKS[:-1], Told(FileKind.HARMLESS, "4.acks", HEADER_BYTES + 2 * MARK_BYTES)),
        (MARKS + bytes(100), Told(FileKind.HARMLESS, "4.acks", len(MARKS))),
        (MARKS[:10], Told(FileKind.HARMLESS, "4.acks", 0)),
        (acks(4, done(5, 9)), Told(FileKind.HARMLESS, "4.acks", None)),
    ],
    ids=[
        "mark",
        "zeros between",
        "header",
        "unknown version",
        "torn mark",
        "zeros at the tail",
        "torn header",
        "marks of what was never written",
    ],
)
def test_bad_marks_are_told_with_their_offset(
    data: HandMade, log: LogDirectory, content: bytes, expected: Told
) -> None:
    log.put(4, "acks", content)
    assert told(data) == [expected]


def test_marks_beyond_a_segment_that_is_not_the_newest_are_damage(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "acks", acks(1, (3, 5, 1)))
    assert told(data) == [Told(FileKind.DAMAGE, "1.acks", None)]


def test_marks_of_what_was_done_with_before_it_was_written_are_harmless(
    data: HandMade, log: LogDirectory
) -> None:
    log.put(1, "acks", acks(1, (3, 5, 1), done(3, 5)))
    assert told(data) == [Told(FileKind.HARMLESS, "1.acks", None)]


@pytest.mark.parametrize("marks", [[], [done(7)], [(7, 3, 1)]], ids=["none", "done with", "delivered"])
def test_marks_of_a_segment_that_was_never_written_are_harmless(
    data: HandMade, log: LogDirectory, marks: list[tuple[int, int, int]]
) -> None:
    log.put(7, "acks", acks(7, *marks))
    assert told(data) == [Told(FileKind.HARMLESS, "7.acks", None)]


def test_missing_segment_is_damage_if_there_is_its_index(data: HandMade, log: LogDirectory) -> None:
    log.put(7, "idx", index(7, segment(7, [b"seven", b"eight"])))
    assert told(data) == [Told(FileKind.DAMAGE, "7.seg", None)]


def test_files_that_were_not_written_before_the_end_are_harmless(data: HandMade, log: LogDirectory) -> None:
    log.put(4, "seg", SECOND + b"torn")
    log.put(9, "seg", b"")
    log.put(10, "seg", b"")
    assert told(data) == [
        Told(FileKind.HARMLESS, "4.seg", len(SECOND)),
        Told(FileKind.HARMLESS, "9.seg", None),
        Told(FileKind.HARMLESS, "10.seg", None),
    ]


# --- definitions, names, directories ---


def test_damaged_line_of_the_definitions_is_told(data: HandMade) -> None:
    data.declare("other")
    file = data.path / "definitions.log"
    at = file.read_bytes().index(b'"q"')
    line = file.read_bytes().rindex(b"\n", 0, at) + 1
    file.write_bytes(damaged(file.read_bytes(), at))
    assert told(data) == [Told(FileKind.DAMAGE, "definitions.log", line), Told(FileKind.DAMAGE, "1", None)]


def test_torn_tail_of_the_definitions_is_harmless(data: HandMade) -> None:
    file = data.path / "definitions.log"
    size = file.stat().st_size
    with file.open("ab") as appended:
        appended.write(b'bbb8b0f0 {"add_vh')
    assert told(data) == [Told(FileKind.HARMLESS, "definitions.log", size)]


@pytest.mark.parametrize("empty", [True, False])
def test_definitions_that_are_gone_are_damage_if_there_are_queues(data: HandMade, empty: bool) -> None:
    file = data.path / "definitions.log"
    file.write_bytes(b"")
    if not empty:
        file.unlink()
    assert told(data) == [Told(FileKind.DAMAGE, "definitions.log", None), Told(FileKind.DAMAGE, "1", None)]


def test_directory_of_a_deleted_queue_is_harmless(data: HandMade) -> None:
    data.definitions.reserve_queue_numbers(9)
    (data.path / "definitions.log").write_bytes(data.definitions.compacted())
    data.directory(9, DeclareQueue(vhost="/", name="deleted"))
    (problem,) = problems(data)
    assert problem.kind is FileKind.HARMLESS
    assert problem.text == "left by a queue that was deleted: 'deleted' in vhost '/'"


def test_directory_of_a_queue_that_the_definitions_never_had_is_harmless(data: HandMade) -> None:
    data.directory(9, DeclareQueue(vhost="/", name="newer"))
    (problem,) = problems(data)
    assert problem.kind is FileKind.HARMLESS
    assert problem.text == "the next start declares its queue again: 'newer' in vhost '/'"


@pytest.mark.parametrize("name", ["9.deleted", "9.unknown", "9.unknown2"])
def test_directory_that_was_set_aside_is_harmless(data: HandMade, name: str) -> None:
    (data.path / "queues" / name).mkdir()
    (problem,) = problems(data)
    assert problem.kind is FileKind.HARMLESS


def foreign_in_queue(data: HandMade) -> str:
    return "queues/1/notes.txt"


def foreign_in_queues(data: HandMade) -> str:
    return "queues/notes.txt"


def foreign_with_a_number(data: HandMade) -> str:
    return "queues/7"


def foreign_in_root(data: HandMade) -> str:
    return "definitions.log.bak"


@pytest.mark.parametrize(
    "place", [foreign_in_queue, foreign_in_queues, foreign_with_a_number, foreign_in_root]
)
def test_foreign_file_is_told(data: HandMade, place: Callable[[HandMade], str]) -> None:
    path = data.path / place(data)
    path.write_bytes(b"mine")
    assert Told(FileKind.DAMAGE, path.name, None) in told(data)


@pytest.mark.parametrize("name", ["lock", "running", "definitions.new", "transient", "lost+found"])
def test_files_that_a_broker_leaves_are_not_foreign(data: HandMade, name: str) -> None:
    (data.path / name).touch()
    assert told(data) == []


@pytest.mark.parametrize("name", ["definitions.damaged", "definitions.torn"])
def test_definitions_set_aside_are_harmless(data: HandMade, name: str) -> None:
    (data.path / name).touch()
    assert told(data) == [Told(FileKind.HARMLESS, name, None)]


def test_directory_that_says_it_is_of_another_queue_is_damage(data: HandMade, log: LogDirectory) -> None:
    data.directory(1, DeclareQueue(vhost="/", name="other"))
    assert told(data) == [Told(FileKind.DAMAGE, "queue.json", None)]


@pytest.mark.parametrize("text", [None, "", "{}"])
def test_directory_that_does_not_say_of_which_queue_it_is_is_harmless(
    data: HandMade, log: LogDirectory, text: str | None
) -> None:
    (log.path / "queue.json").unlink()
    if text is not None:
        (log.path / "queue.json").write_text(text)
    assert told(data) == [Told(FileKind.HARMLESS, "queue.json", None)]


# --- beside a broker ---


@pytest.fixture
def locked(data: HandMade) -> Iterator[None]:
    """As by a broker; this process has the lock."""
    with (data.path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"{os.getpid():<20}\n")
        lock.flush()
        yield


@pytest.mark.usefixtures("locked")
@pytest.mark.parametrize("later", [False, True], ids=["tail", "segment before the tail"])
def test_segment_that_is_being_written_is_told_as_such(
    data: HandMade, log: LogDirectory, later: bool
) -> None:
    log.put(4, "seg", SECOND + b"part")
    if later:
        log.put(9, "seg", segment(9, [b"nine"]))
    (problem,) = problems(data)
    assert (problem.kind, problem.text) == (FileKind.HARMLESS, "4 bytes are being written")


@pytest.mark.usefixtures("locked")
def test_marks_may_be_ahead_of_the_records_of_a_broker(data: HandMade, log: LogDirectory) -> None:
    log.put(4, "acks", acks(4, (5, 10, 1)))
    log.put(15, "acks", acks(15, (15, 1, 1)))
    assert told(data) == []


@pytest.mark.usefixtures("locked")
def test_segment_may_be_written_and_indexed_after_it_was_listed(
    data: HandMade, log: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its size had been looked at before it was written, and the rest of the directory after that."""
    listed = data_files._size
    is_early = {"00000000000000000001.seg": 0, "00000000000000000004.seg": 40}
    monkeypatch.setattr(data_files, "_size", lambda entry: is_early.get(entry.name, listed(entry)))
    assert told(data) == []


@pytest.mark.usefixtures("locked")
def test_damage_is_told_beside_a_broker_too(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "seg", FIRST + b"more")
    assert told(data) == [Told(FileKind.DAMAGE, "1.seg", len(FIRST))]
