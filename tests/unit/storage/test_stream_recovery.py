"""Reading a stream's directory back: no position is used again, whatever became of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.storage.log_files import LogDirectory, chunks, damaged, segment
from warren.storage.format import SEGMENT_MAGIC, encode_header
from warren.storage.problems import Problems
from warren.storage.recovery import last_possible
from warren.storage.stream_recovery import RecoveredStream, recover_stream

FIRST = segment(1, [b"one", b"two", b"three"])
SECOND = segment(4, [b"four", b"five"])
LATER = (3).to_bytes(4, "little")  # a version that is not known here


class Directory(LogDirectory):
    """With what recovering it told and synced."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.told: list[str] = []
        self.synced: list[str] = []

    def recover(self) -> RecoveredStream:
        problems = Problems(lambda event, **_: self.told.append(event))
        return recover_stream(str(self.path), problems, self.synced.append)

    def file(self, base: int, suffix: str) -> Path:
        return self.path / f"{base:020}.{suffix}"


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    directory = Directory(tmp_path / "1")
    directory.put(1, "seg", FIRST)
    directory.put(1, "chunks", chunks(1, FIRST))
    directory.put(4, "seg", SECOND)
    return directory


def found(recovered: RecoveredStream) -> list[tuple[int, int, bool]]:
    return [(each.base, each.last, each.is_closed()) for each in recovered.segments]


def test_tail_is_scanned_and_synced_and_others_are_not(directory: Directory) -> None:
    recovered = directory.recover()
    assert (found(recovered), recovered.position) == ([(1, 3, True), (4, 5, False)], 5)
    tail = directory.file(4, "seg")
    assert directory.synced == [str(tail), str(tail.parent), str(tail.parent.parent)]
    assert directory.told == []


def test_sync_that_fails_is_told(directory: Directory) -> None:
    def fail(path: str) -> None:
        raise OSError(5, "no", path)

    recovered = recover_stream(
        str(directory.path), Problems(lambda event, **_: directory.told.append(event)), fail
    )
    assert recovered.position == 5
    assert directory.told == ["cannot sync"]


@pytest.mark.parametrize("base", [1, 4])
def test_segment_of_an_unknown_version_is_left_alone_with_its_positions(
    directory: Directory, base: int
) -> None:
    data = directory.file(base, "seg").read_bytes()
    directory.put(base, "seg", data[:8] + LATER + data[12:])
    directory.file(1, "chunks").unlink()
    assert directory.recover().position == last_possible(base)
    assert directory.file(base, "seg").read_bytes()[8:12] == LATER


@pytest.mark.parametrize("sound", [True, False])
def test_positions_of_a_lost_last_segment_are_not_used_again(directory: Directory, sound: bool) -> None:
    known = chunks(4, SECOND)
    directory.put(4, "chunks", known if sound else damaged(known, 40))
    directory.file(4, "seg").unlink()
    recovered = directory.recover()
    assert (found(recovered), recovered.position) == ([(1, 3, True)], 5 if sound else last_possible(4))
    assert "segment is missing" in directory.told


def test_segment_of_which_nothing_is_left_was_in_use(directory: Directory) -> None:
    directory.put(4, "chunks", chunks(4, SECOND))
    directory.put(4, "seg", b"")
    assert directory.recover().position == 5


@pytest.mark.parametrize("left", [b"", encode_header(SEGMENT_MAGIC, 6), segment(6, [b"six"])[:-9]])
def test_segment_that_was_just_begun_is_begun_again(directory: Directory, left: bytes) -> None:
    directory.put(6, "seg", left)
    directory.put(4, "seg", segment(4, [b"four"]))
    recovered = directory.recover()
    assert (found(recovered), recovered.position) == ([(1, 3, True), (4, 4, False)], 4)
    assert not directory.file(6, "seg").exists()


def test_chunks_of_what_retention_has_dropped_go(directory: Directory) -> None:
    directory.file(1, "seg").unlink()
    assert directory.recover().position == 5
    assert not directory.file(1, "chunks").exists()
    assert directory.told == []


def test_chunks_of_a_segment_that_is_missing_in_the_middle_go_and_are_told_once(directory: Directory) -> None:
    third = segment(6, [b"six"])
    directory.put(4, "chunks", chunks(4, SECOND))
    directory.put(6, "seg", third)
    directory.file(4, "seg").unlink()
    for _ in range(2):
        recovered = directory.recover()
        assert (found(recovered), recovered.position) == ([(1, 3, True), (6, 6, False)], 6)
    assert not directory.file(4, "chunks").exists()
    assert directory.told == ["segment is missing"]


def test_damaged_chunks_of_the_last_segment_are_written_anew(directory: Directory) -> None:
    sound = chunks(4, SECOND)
    directory.put(4, "chunks", damaged(sound, 40))
    recovered = directory.recover()
    assert found(recovered)[-1] == (4, 5, True)
    assert directory.told == ["chunks file is not sound"]
    assert directory.file(4, "chunks").read_bytes() == sound


def test_unfinished_chunks_are_no_problem(directory: Directory) -> None:
    directory.put(4, "chunks.new", b"half")
    directory.put(9, "chunks.new", b"half")
    assert directory.recover().position == 5
    assert directory.told == []
    assert not directory.file(9, "chunks.new").exists()
