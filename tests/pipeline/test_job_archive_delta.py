"""archive --format delta: at any moment Delta's readers see a complete table, with each message once."""

from __future__ import annotations

import argparse
import random
import sys
from datetime import UTC
from pathlib import Path
from types import ModuleType

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.pipeline.conftest import CONF
from tests.pipeline.killing import kill_at_random
from tests.support.segments import DataDirectory
from warren.pipeline import archive_files
from warren.pipeline.errors import PipelineError, UsageError
from warren.pipeline.jobs import archive, compact, delta
from warren.pipeline.jobs.tables import read_archive
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import JobResult

NAME = "a b/c=d:%*;"
CONF_WORDS = [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]


def run(spark: SparkSession, job: ModuleType, *words: str) -> JobResult:
    parser = argparse.ArgumentParser()
    job.add_arguments(parser)
    options = parser.parse_args(words)
    job.check(options)
    result = job.run(spark, options, ProgressLine(None))
    assert isinstance(result, JobResult)
    return result


def offsets(spark: SparkSession, place: Path) -> list[int]:
    """As our jobs read it; and nobody reads anything else."""
    found = sorted(row.offset for row in read_archive(spark, str(place)).select("offset").collect())
    assert sorted(pl.read_delta(str(place)).get_column("offset").to_list()) == found
    return found


def test_delta_table_has_each_message_once_through_repeated_batches_and_merges(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = DataDirectory(tmp_path / "data").queue(NAME)
    place = tmp_path / "table"
    words = ["--path", str(tmp_path / "data"), "--queue", NAME, "--to", str(place), "--once"]
    words += ["--format", "delta", "--roll-every", "0"]
    stream.append(10)
    run(spark, archive, *words)
    for name in ("0", ".0.crc"):  # as if it had been killed before it noted that the batch is done
        (place / "_checkpoint" / "commits" / name).unlink()
    stream.append(50)
    run(spark, archive, *words, "--batch", "10")
    assert DeltaTable(place).version() == 5
    assert offsets(spark, place) == list(range(60))
    times = pl.read_delta(str(place)).get_column("timestamp")
    assert times.dtype == pl.Datetime("us", "UTC")
    row = read_archive(spark, str(place)).filter("offset = 3").collect()[0]
    assert (row.queue, bytes(row.body), row.timestamp.astimezone(UTC)) == (NAME, b"m3", times.sort()[3])

    before = DeltaTable(place)
    result = run(spark, compact, "--archive", str(place), "--in-place")
    assert (result.numbers["files merged"], result.numbers["into"]) == (6, 1)
    assert pa.table(before.to_pyarrow_table()).num_rows == 60  # a reader of the version before reads on
    assert offsets(spark, place) == list(range(60))


def test_delta_archive_merges_by_itself_and_keeps_its_format(spark: SparkSession, tmp_path: Path) -> None:
    DataDirectory(tmp_path / "data").queue("s").append(30)
    place = tmp_path / "table"
    words = ["--path", str(tmp_path / "data"), "--queue", "s", "--to", str(place), "--once"]
    result = run(spark, archive, *words, "--format", "delta", "--batch", "10")
    assert (result.numbers["files merged"], result.numbers["into"]) == (3, 1)
    assert offsets(spark, place) == list(range(30))
    with pytest.raises(PipelineError, match="--format delta"):
        run(spark, archive, *words)
    with pytest.raises(PipelineError, match="read it as one"):
        archive_files(place)
    other = [*words[:-2], str(tmp_path / "files"), "--once"]
    run(spark, archive, *other)
    with pytest.raises(PipelineError, match="--format parquet"):
        run(spark, archive, *other, "--format", "delta")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--to", "t", "--snapshot"], "--snapshot writes Parquet"),
        (["--to", "s3a://bucket/t"], "path of this machine"),
    ],
)
def test_what_delta_cannot_do_is_told(spark: SparkSession, words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        run(spark, archive, "--path", "data", "--queue", "s", "--format", "delta", *words)


def test_without_the_extra_the_line_says_how_to_get_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"pip install 'warrenmq\[delta\]'"):
        run(spark, archive, "--path", "data", "--queue", "s", "--format", "delta", "--to", "t")


@pytest.mark.timeout(300)
def test_delta_archive_that_is_killed_has_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    stream = DataDirectory(tmp_path / "data").queue("s")
    stream.append(2000)
    place = tmp_path / "table"
    place.mkdir()
    words = ["--path", str(tmp_path / "data"), "--queue", "s", "--to", str(place), "--format", "delta"]
    command = [sys.executable, "-m", "warren", "pipeline", "archive", *words, "--every", "1", "--batch", "20"]
    command += ["--roll-every", "1", "--quiet", "--master", "local[2]", *CONF_WORDS]
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: {kill_at_random(command, place, random.Random(seed), tmp_path / 'driver.log')}")  # noqa: T201
    run(spark, archive, *words, "--once")
    assert offsets(spark, place) == list(range(2000))
