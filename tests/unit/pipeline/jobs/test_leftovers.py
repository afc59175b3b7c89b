"""What a killed run left in an archive goes, and nothing else."""

from __future__ import annotations

import json
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
    lines = [json.dumps({"path": f"file://{file}".replace("%", "%25"), "action": "add"}) for file in files]
    (root / "_spark_metadata").mkdir(exist_ok=True)
    (root / "_spark_metadata" / name).write_text("\n".join(["v1", *lines]))


def test_files_that_are_not_listed_go_with_their_checksums(tmp_path: Path) -> None:
    first, second, third = (file_in(tmp_path, f"part-0000{n}-a.c000.snappy.parquet") for n in range(3))
    left = file_in(tmp_path, "part-00000-b.c000.snappy.parquet")
    checksum = file_in(tmp_path, ".part-00000-b.c000.snappy.parquet.crc")
    list_in(tmp_path, "9.compact", first, second)
    list_in(tmp_path, "10", third)
    assert remove_leftovers(str(tmp_path)) == 1
    assert [file.exists() for file in (first, second, third, left, checksum)] == [True] * 3 + [False] * 2


def test_all_files_of_a_first_batch_that_was_cut_off_go(tmp_path: Path) -> None:
    left = file_in(tmp_path, "part-00000-a.parquet")
    (tmp_path / "_checkpoint").mkdir()
    assert remove_leftovers(f"file://{tmp_path}") == 1
    assert not left.exists()


def test_what_is_no_archive_or_a_snapshot_in_one_is_left_alone(tmp_path: Path) -> None:
    others = file_in(tmp_path / "else", "part-00000-a.parquet")
    assert remove_leftovers(str(tmp_path / "else")) == 0
    snapshot = file_in(tmp_path, "part-00000-a.parquet", directory=f"snapshot=x/{DAY}")
    list_in(tmp_path, "0")
    assert remove_leftovers(str(tmp_path)) == 0
    assert others.exists()
    assert snapshot.exists()


def test_nothing_goes_by_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    file = file_in(tmp_path, "part-00000-a.parquet")
    list_in(tmp_path, "0")
    (tmp_path / "_spark_metadata" / "0").write_text("v1\nnonsense")
    with pytest.raises(PipelineError, match="is not a list of files"):
        remove_leftovers(str(tmp_path))
    assert file.exists()
