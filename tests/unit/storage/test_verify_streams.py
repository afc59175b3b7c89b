"""Looking into the files of streams: what they hold, what is damage, and that what is sound is called so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.unit.storage.data_files import FIRST, SECOND, HandMade, with_stream
from tests.unit.storage.log_files import (
    TIME_MS,
    LogDirectory,
    acks,
    chunks,
    damaged,
    index,
    message,
    offset_of,
    record,
    segment,
)
from warren.cli.main import main
from warren.storage.data_files import DataFiles, FileKind
from warren.storage.format import SEGMENT_MAGIC, encode_header, encode_record
from warren.storage.inspect import RecordPlace, read_messages
from warren.storage.inspect_stream import summarize_stream
from warren.storage.verify import verify

CHUNKS = chunks(1, FIRST)
OTHER = segment(1, [b"ONE", b"TWO", b"THREE", b"four"])


@pytest.fixture
def data(tmp_path: Path) -> HandMade:
    return with_stream(tmp_path / "data")[0]


@pytest.fixture
def log(data: HandMade) -> LogDirectory:
    return LogDirectory(data.path / "queues" / "1")


def problems(data: HandMade) -> list[tuple[FileKind, str]]:
    told: list[tuple[FileKind, str]] = []
    verify(DataFiles(data.path), lambda problem: told.append((problem.kind, os.path.basename(problem.file))))  # noqa: PTH119 - paths are text here
    return told


def file_of(base: int, suffix: str) -> str:
    return f"{base:020}.{suffix}"


# --- verify ---


def test_sound_stream_is_sound(data: HandMade) -> None:
    checked = verify(DataFiles(data.path), lambda problem: pytest.fail(str(problem)))
    assert (checked.queues, checked.segments, checked.records) == (1, 2, 6)


@pytest.mark.parametrize("at", [0, 9, 13, 17, 25, 33, 41, 50, 60, 80, len(CHUNKS) - 1])
def test_bad_chunks_file_is_damage(data: HandMade, log: LogDirectory, at: int) -> None:
    log.put(1, "chunks", damaged(CHUNKS, at))
    assert problems(data) == [(FileKind.DAMAGE, file_of(1, "chunks"))]


@pytest.mark.parametrize("size", [0, 20, 40, len(CHUNKS) - 8])
def test_chunks_file_that_is_cut_off_is_damage(data: HandMade, log: LogDirectory, size: int) -> None:
    log.put(1, "chunks", CHUNKS[:size])
    assert problems(data) == [(FileKind.DAMAGE, file_of(1, "chunks"))]


def filtered(value: str) -> bytes:
    """The first segment, if its first message had this filter value."""
    first = encode_record(1, TIME_MS + 1, message(b"one", headers={"x-stream-filter-value": value}))
    return encode_header(SEGMENT_MAGIC, 1) + first + record(2, b"two") + record(3, b"three")


def test_chunks_of_other_filter_values_are_damage(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "seg", filtered("a"))
    log.put(1, "chunks", chunks(1, filtered("a")))
    assert problems(data) == []
    log.put(1, "chunks", chunks(1, filtered("b")))
    assert problems(data) == [(FileKind.DAMAGE, file_of(1, "chunks"))]


def test_chunks_of_more_than_there_is_are_damage(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "chunks", chunks(1, OTHER))
    assert problems(data) == [(FileKind.DAMAGE, file_of(1, "seg"))]


def test_chunks_of_less_than_there_is_are_damage(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "chunks", chunks(1, segment(1, [b"one", b"two"])))
    assert problems(data) == [(FileKind.DAMAGE, file_of(1, "chunks"))]


def test_bad_record_is_told_once(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "seg", damaged(FIRST, offset_of(FIRST, 1, 2) + 40))
    assert problems(data) == [(FileKind.DAMAGE, file_of(1, "seg"))]


def test_closed_segment_without_chunks_is_what_a_crash_leaves(data: HandMade, log: LogDirectory) -> None:
    (log.path / file_of(1, "chunks")).unlink()
    assert problems(data) == []


def test_unfinished_files_are_what_a_crash_leaves(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "chunks.new", b"half")
    log.put(4, "seg", SECOND[:-5])
    assert problems(data) == [
        (FileKind.HARMLESS, file_of(1, "chunks.new")),
        (FileKind.HARMLESS, file_of(4, "seg")),
    ]


def test_chunks_without_their_segment_are_damage_unless_it_was_the_oldest(
    data: HandMade, log: LogDirectory
) -> None:
    third = segment(7, [b"seven"])
    log.put(7, "seg", third)
    log.put(4, "chunks", chunks(4, SECOND))
    (log.path / file_of(4, "seg")).unlink()
    assert problems(data) == [(FileKind.DAMAGE, file_of(4, "seg"))]
    (log.path / file_of(1, "seg")).unlink()
    assert problems(data) == [(FileKind.HARMLESS, file_of(base, "chunks")) for base in (1, 4)]


def test_files_of_queues_are_foreign_to_streams_and_the_other_way_round(
    data: HandMade, log: LogDirectory
) -> None:
    log.put(1, "acks", acks(1))
    log.put(1, "idx", index(1, FIRST))
    queue = data.declare("q")
    queue.put(1, "seg", FIRST)
    queue.put(1, "chunks", CHUNKS)
    assert sorted(problems(data), key=str) == sorted(
        [(FileKind.DAMAGE, file_of(1, suffix)) for suffix in ("acks", "chunks", "idx")], key=str
    )


def test_times_that_go_down_are_damage(data: HandMade, log: LogDirectory) -> None:
    later = encode_record(5, TIME_MS, message(b"five"))
    log.put(4, "seg", encode_header(SEGMENT_MAGIC, 4) + record(4, b"four") + later)
    assert problems(data) == [(FileKind.DAMAGE, file_of(4, "seg"))]


def test_bad_line_of_offsets_is_damage_and_a_torn_one_is_not(data: HandMade, log: LogDirectory) -> None:
    file = log.path / "offsets"
    lines = file.read_bytes()
    file.write_bytes(damaged(lines, 20))
    assert problems(data) == [(FileKind.DAMAGE, "offsets")]
    file.write_bytes(lines[:-5])
    assert problems(data) == [(FileKind.HARMLESS, "offsets")]


# --- ls and cat ---


@pytest.mark.parametrize("lost", [False, True])
def test_stream_is_counted_by_its_chunks_or_without_them(
    data: HandMade, log: LogDirectory, lost: bool
) -> None:
    if lost:
        (log.path / file_of(1, "chunks")).unlink()
    summary = summarize_stream(DataFiles(data.path).queue("/", "s"))
    assert [(s.base, s.records, s.ready, s.indexed) for s in summary.segments] == [
        (1, 3, 3, not lost),
        (4, 3, 3, False),
    ]
    assert (summary.oldest, summary.newest) == (RecordPlace(1, TIME_MS + 1), RecordPlace(6, TIME_MS + 6))
    assert (summary.offsets, summary.problems) == ({"reader": 1}, [])


def test_messages_of_a_stream_have_offsets(data: HandMade) -> None:
    stream = DataFiles(data.path).queue("/", "s")
    found = list(read_messages(stream, lambda problem: pytest.fail(str(problem)), first=3))
    assert [(each.position, each.is_of_stream) for each in found] == [(n, True) for n in (3, 4, 5, 6)]


def test_ls_and_cat_show_streams_as_such(data: HandMade, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(data.path)
    assert main(["store", "ls", path]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(" stream")
    assert main(["store", "ls", path, "--json"]) == 0
    (stream,) = json.loads(capsys.readouterr().out)["queues"]
    assert (stream["type"], stream["first_offset"], stream["next_offset"]) == ("stream", 0, 6)
    assert (stream["offsets"], stream["messages"]) == ({"reader": 1}, 6)
    assert main(["store", "cat", path, "s", "--limit", "1"]) == 0
    assert capsys.readouterr().out.startswith("--- 1  offset 0  ")
    assert main(["store", "cat", path, "s", "--json", "--from", "6"]) == 0
    assert json.loads(capsys.readouterr().out)["offset"] == 5
    assert main(["store", "verify", path]) == 0
    assert "all sound" in capsys.readouterr().out
