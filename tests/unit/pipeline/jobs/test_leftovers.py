"""The files that a killed run left in an archive are removed, and no others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs.leftovers import remove_leftovers

DAY = "vhost=%2F/queue=orders/date=2026-03-01"


def file_in(root: Path, name: str, *, directory: str = DAY) -> Path:
    file = root / directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"PAR1")
    return file


def list_in(root: Path, name: str, *files: Path) -> None:
    lines = [json.dumps({"path": f"file://{file}".replace("%", "%25"), "size": 4}) for file in files]
    (root / "_spark_metadata").mkdir(exist_ok=True)
    (root / "_spark_metadata" / name).write_text("\n".join(["v1", *lines]))


def progress_in(root: Path, *, offsets: int = 0, commits: int = 0) -> str:
    """A checkpoint with this many batches in `offsets` and in `commits`."""
    for kind, count in (("offsets", offsets), ("commits", commits)):
        (root / "_checkpoint" / kind).mkdir(parents=True)
        for number in range(count):
            (root / "_checkpoint" / kind / str(number)).write_text("v1")
    return str(root / "_checkpoint")


def removed(root: Path) -> int:
    return remove_leftovers(str(root), str(root / "_checkpoint"))


def test_files_that_are_not_listed_go_with_their_checksums(tmp_path: Path) -> None:
    first, second, third = (file_in(tmp_path, f"part-0000{n}-a.c000.snappy.parquet") for n in range(3))
    left = file_in(tmp_path, "part-00000-b.c000.snappy.parquet")
    checksum = file_in(tmp_path, ".part-00000-b.c000.snappy.parquet.crc")
    list_in(tmp_path, "9.compact", first, second)
    list_in(tmp_path, "10", third)
    progress_in(tmp_path, offsets=12, commits=11)
    assert removed(tmp_path) == 1
    assert [file.exists() for file in (first, second, third, left, checksum)] == [True] * 3 + [False] * 2


def test_all_files_of_a_first_batch_that_was_cut_off_go(tmp_path: Path) -> None:
    checkpoint = progress_in(tmp_path, offsets=1)
    left = file_in(tmp_path, "part-00000-a.parquet")
    (tmp_path / "_spark_metadata").mkdir()
    assert remove_leftovers(f"file://{tmp_path}", f"file://{checkpoint}") == 1
    assert not left.exists()


@pytest.mark.parametrize(("offsets", "commits"), [(1, 1), (2, 0), (200, 100), (0, 0)])
@pytest.mark.parametrize("emptied", [True, False])
def test_nothing_goes_if_the_lists_are_lost(
    tmp_path: Path, offsets: int, commits: int, *, emptied: bool
) -> None:
    checkpoint = progress_in(tmp_path, offsets=offsets, commits=commits)
    file = file_in(tmp_path, "part-00000-a.parquet")
    if emptied:
        (tmp_path / "_spark_metadata").mkdir()
    with pytest.raises(PipelineError, match="restore _spark_metadata"):
        remove_leftovers(str(tmp_path), checkpoint)
    assert file.exists()


def test_files_that_are_older_than_the_first_batch_stay(tmp_path: Path) -> None:
    file = file_in(tmp_path, "part-00000-a.parquet")
    os.utime(file, (1, 1))
    progress_in(tmp_path, offsets=1)
    with pytest.raises(PipelineError, match=f"such as {file}"):
        removed(tmp_path)
    assert file.exists()


@pytest.mark.parametrize(("lists", "missing"), [(["9.compact", "11"], 10), (["0", "2"], 1), (["0", "1"], 2)])
def test_nothing_goes_if_one_of_the_lists_is_lost(tmp_path: Path, lists: list[str], missing: int) -> None:
    file = file_in(tmp_path, "part-00000-a.parquet")
    for name in lists:
        list_in(tmp_path, name)
    progress_in(tmp_path, offsets=3, commits=3)
    with pytest.raises(PipelineError, match=f"lacks the list of batch {missing}, "):
        removed(tmp_path)
    assert file.exists()


def test_what_is_on_another_file_system_is_left_alone() -> None:
    assert remove_leftovers("hdfs://host/archive", "hdfs://host/archive/_checkpoint") == 0


def test_snapshot_in_an_archive_is_left_alone(tmp_path: Path) -> None:
    snapshot = file_in(tmp_path, "part-00000-a.parquet", directory=f"snapshot=x/{DAY}")
    list_in(tmp_path, "0")
    assert removed(tmp_path) == 0
    assert snapshot.exists()


def test_nothing_goes_by_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    file = file_in(tmp_path, "part-00000-a.parquet")
    list_in(tmp_path, "0")
    (tmp_path / "_spark_metadata" / "0").write_text("v1\nnonsense")
    with pytest.raises(PipelineError, match="is not a list of files"):
        removed(tmp_path)
    assert file.exists()
