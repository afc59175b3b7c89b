"""The files of an archive that a program without Spark should read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warren.pipeline import archive_files
from warren.pipeline.errors import PipelineError

DAY = "vhost=%2F/queue=a b/date=2026-03-01"


def file_in(root: Path, place: str) -> str:
    file = root / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return str(file)


def test_of_an_archive_those_are_read_that_its_lists_name(tmp_path: Path) -> None:
    (tmp_path / "_lock").touch()
    listed, _left = (file_in(tmp_path, f"{DAY}/part-{n}.parquet") for n in range(2))
    assert archive_files(tmp_path) == []  # its first batch is not done
    line = {"path": "file://" + listed.replace("%", "%25").replace(" ", "%20"), "size": 0}
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "0").write_text(f"v1\n{json.dumps(line)}")
    assert archive_files(tmp_path) == [listed]


def test_of_a_table_without_lists_all_files_are_read(tmp_path: Path) -> None:
    compacted = file_in(tmp_path / "compacted", f"{DAY}/part-0.parquet")
    snapshot = file_in(tmp_path / "snapshots", f"snapshot=monday/{DAY}/part-0.parquet")
    file_in(tmp_path / "compacted", f"_temporary/{DAY}/part-1.parquet")
    (tmp_path / "snapshots" / "_lock").touch()
    assert archive_files(str(tmp_path / "compacted")) == [compacted]
    assert archive_files(tmp_path / "snapshots") == [snapshot]


def test_delta_table_is_not_read_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(PipelineError, match="read it as one"):
        archive_files(tmp_path)
