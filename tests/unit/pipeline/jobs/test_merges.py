"""Merges in place: the lists name each message once at any moment, whenever a merge or an archive is cut off.

Files here are lines of text, and `Sink` does with the lists what Spark's file sink does. That Spark itself
reads and goes on with them is in tests/pipeline.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs import merges
from warren.pipeline.jobs.leftovers import remove_leftovers
from warren.pipeline.jobs.lists import ListedFile, current_lists, entries_of
from warren.pipeline.jobs.merges import AnotherMerges, Round, choose, merge_round, settle

DAY = "vhost=%2F/queue=a b%3F/date=2026-03-01"
WHOLE_EVERY = 10
STEPS = ("replace", "rename", "unlink", "rmdir")
BIG = 1_000_000


class Sink:
    """Writes batches of one file each, with one message: the number of the batch."""

    def __init__(self, root: Path) -> None:
        self.root, self.next = root, 0
        (root / "_spark_metadata").mkdir(parents=True)

    def write(self, batches: int) -> None:
        for _ in range(batches):
            self.commit(self.lines())

    def lines(self) -> list[str]:
        """What Spark reads before it writes the next list."""
        is_whole = (self.next + 1) % WHOLE_EVERY == 0
        earlier = [entry.line for file in current_lists(self.root) for entry in entries_of(file)]
        return (earlier if is_whole else []) + [self._line()]

    def commit(self, lines: list[str]) -> None:
        name = f"{self.next}.compact" if (self.next + 1) % WHOLE_EVERY == 0 else str(self.next)
        (self.root / "_spark_metadata" / name).write_text("\n".join(["v1", *lines]))
        (self.root / "_spark_metadata" / f".{name}.crc").write_text("checksum")
        self.next += 1

    def _line(self) -> str:
        file = self.root / DAY / f"part-{self.next:05}.c000.zstd.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{self.next}\n")
        path = "file://" + str(file).replace("%", "%25").replace(" ", "%20")
        return json.dumps({"path": path, "size": file.stat().st_size, "isDir": False, "action": "add"})


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "archive")


def as_one(files: Sequence[Path], to: Path) -> None:
    to.mkdir()
    (to / "part-new.zstd.parquet").write_text("".join(file.read_text() for file in files))


def merged(root: Path, *, keep_seconds: float = 0) -> Round:
    return merge_round(root, as_one, size_max=BIG, eager=True, keep_seconds=keep_seconds)


def read(root: Path) -> list[int]:
    """All messages, by the lists."""
    files = [Path(entry.path) for file in current_lists(root) for entry in entries_of(file)]
    return sorted(int(line) for file in files for line in file.read_text().splitlines())


def read_all_files(root: Path) -> list[int]:
    """All messages, as a program reads them that ignores the lists."""
    files = root.glob("vhost=*/**/*.parquet")
    return sorted(int(line) for file in files for line in file.read_text().splitlines())


def check_at_rest(sink: Sink) -> None:
    wanted = list(range(sink.next))
    assert (read(sink.root), read_all_files(sink.root)) == (wanted, wanted)
    assert [path.name for path in (sink.root / "_merges").iterdir()] == ["lock"]
    assert not list(sink.root.rglob(".*.new"))


def test_files_of_the_whole_list_become_one_and_those_of_the_last_batches_stay(sink: Sink) -> None:
    sink.write(12)
    assert merged(sink.root) == Round(files_before=10, files_after=1, waiting=1)
    assert read(sink.root) == list(range(12))
    assert settle(sink.root, alone=True) == 0
    check_at_rest(sink)
    (new,) = [file for file in sink.root.rglob("*.parquet") if "c000" not in file.name]
    assert new.suffixes == [".zstd", ".parquet"]
    assert not (sink.root / "_spark_metadata" / ".9.compact.crc").exists()  # it was of the list before


def test_old_files_stay_until_the_archive_has_made_its_next_list_from_the_new_one(sink: Sink) -> None:
    sink.write(12)
    merged(sink.root)
    sink.write(7)
    assert merged(sink.root).waiting == 1
    assert read_all_files(sink.root) == sorted([*range(10), *range(19)])
    sink.write(1)  # 19.compact
    assert merged(sink.root, keep_seconds=1000).waiting > 0  # a reader may still use the old files
    assert merged(sink.root) == Round(files_before=0, files_after=0, waiting=1)
    sink.write(10)
    merged(sink.root)
    settle(sink.root, alone=True)
    check_at_rest(sink)


def test_list_that_was_begun_before_the_swap_wins(sink: Sink) -> None:
    sink.write(19)
    stale = sink.lines()
    assert merged(sink.root).waiting == 1
    sink.commit(stale)
    assert read(sink.root) == list(range(20))
    assert settle(sink.root, alone=False) == 0
    check_at_rest(sink)


def test_list_that_comes_while_files_are_written_is_the_one_that_is_replaced(sink: Sink) -> None:
    sink.write(19)

    def slowly(files: Sequence[Path], to: Path) -> None:
        as_one(files, to)
        sink.write(1)  # 19.compact

    merge_round(sink.root, slowly, size_max=BIG, eager=True)
    settle(sink.root, alone=True)
    check_at_rest(sink)
    assert len(entries_of(current_lists(sink.root)[0])) == 11


class Crashed(Exception):
    pass


@contextmanager
def crash_at(step: int) -> Iterator[None]:
    """Crash at the `step`-th change of the file system, counted from 0, before it and all later ones."""
    left = [step]

    def cut(name: str) -> mock._patch[object]:
        whole = getattr(os, name)

        def or_crash(*args: object, **options: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise Crashed(name)
            return whole(*args, **options)

        return mock.patch.object(os, name, or_crash)

    patches = [cut(name) for name in STEPS]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["again", "alone", "archive"])
def test_merge_that_is_cut_off_anywhere_leaves_each_message_once(tmp_path: Path, how: str) -> None:
    crashes = 0
    for step in range(200):
        sink = Sink(tmp_path / f"archive-{step}")
        sink.write(12)
        done = False
        try:
            with crash_at(step):
                merged(sink.root)
                settle(sink.root, alone=True)
                done = True
        except Crashed:
            crashes += 1
        assert read(sink.root) == list(range(12))
        if how == "again":
            merged(sink.root)
            sink.write(8)
            merged(sink.root)
            sink.write(10)
            merged(sink.root)
            settle(sink.root, alone=True)
        elif how == "alone":
            settle(sink.root, alone=True)
            merged(sink.root)
            settle(sink.root, alone=True)
        else:  # as an archive does when it starts
            settle(sink.root, alone=True)
            remove_leftovers(str(sink.root), str(sink.root / "_checkpoint"))
            assert read_all_files(sink.root) == list(range(12))
            merged(sink.root)
            settle(sink.root, alone=True)
        check_at_rest(sink)
        if done:
            break
    assert done
    assert crashes > 25


def test_leftovers_are_neither_the_old_nor_the_new_files_of_a_merge(sink: Sink) -> None:
    sink.write(12)
    merged(sink.root)
    for file in (sink.root / "_spark_metadata").glob("*"):
        if file.name in {str(number) for number in range(9)}:
            file.unlink()  # as Spark does after some minutes
    assert remove_leftovers(str(sink.root), str(sink.root / "_checkpoint")) == 0
    settle(sink.root, alone=True)
    check_at_rest(sink)


def test_nothing_is_removed_if_the_lists_are_lost(sink: Sink) -> None:
    sink.write(12)
    merged(sink.root)
    before = sorted(sink.root.rglob("*.parquet"))
    shutil.rmtree(sink.root / "_spark_metadata")
    with pytest.raises(PipelineError, match="restore _spark_metadata"):
        settle(sink.root, alone=True)
    assert sorted(sink.root.rglob("*.parquet")) == before


def test_archive_that_was_copied_is_not_merged_in_place(sink: Sink, tmp_path: Path) -> None:
    sink.write(12)
    shutil.copytree(sink.root, tmp_path / "copy")
    with pytest.raises(PipelineError, match="moved or copied"):
        merged(tmp_path / "copy")


def test_second_process_that_merges_is_refused(sink: Sink) -> None:
    sink.write(12)
    with merges._locked(sink.root), pytest.raises(AnotherMerges):
        merged(sink.root)


def test_round_ends_early_if_asked_to(sink: Sink) -> None:
    sink.write(12)
    assert merge_round(sink.root, as_one, size_max=BIG, eager=True, is_over=lambda: True) == Round()


def of_sizes(*sizes: int) -> list[ListedFile]:
    return [ListedFile("", f"/a/{DAY}/part-{number}", size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "eager", "chosen"),
    [
        ([10, 10, 10], False, [[10, 10, 10]]),
        ([40, 40, 40, 40], False, [[40, 40], [40, 40]]),
        ([45, 1, 1], False, [[1, 1]]),  # the large one waits for as much again
        ([45, 1, 1], True, [[45, 1, 1]]),
        ([45, 20, 30, 1], False, [[45, 20, 30, 1]]),
        ([8, 4, 2, 1], False, []),
        ([10], True, []),
        ([], True, []),
    ],
)
def test_files_are_taken_together_up_to_the_size_that_is_wanted(
    sizes: list[int], eager: bool, chosen: list[list[int]]
) -> None:
    groups = choose(of_sizes(*sizes), 100, eager=eager)
    assert [[entry.size for entry in group] for group in groups] == chosen


def test_messages_are_written_again_a_few_times_only() -> None:
    written, files = 0, of_sizes()
    for _ in range(1000):
        files = [*files, *of_sizes(1)]
        files = [ListedFile("", f"/a/{DAY}/part-{number}", file.size) for number, file in enumerate(files)]
        for group in choose(files, BIG):
            size = sum(entry.size for entry in group)
            written += size
            files = [entry for entry in files if entry not in group]
            files.insert(0, ListedFile("", f"/a/{DAY}/part-0", size))
    assert len(files) < 25
    assert written < 15 * 1000
