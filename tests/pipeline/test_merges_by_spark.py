"""Files merged in place, as Spark and others see them: each message once, before, meanwhile and after."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.segments import DataDirectory, QueueDirectory, message
from warren.pipeline import archive_files
from warren.pipeline.jobs import archive, compact
from warren.pipeline.jobs.lists import FILES, current_lists, is_whole, number_of, places_in
from warren.pipeline.jobs.lock import only_one
from warren.pipeline.jobs.tables import read_archive
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import JobResult

NAMES = ("s", "a b/c=d:%*;")
LIST_EVERY = "spark.sql.streaming.fileSink.log.compactInterval"
BATCHES = 4  # with LIST_EVERY set to 3, Spark makes a whole list with the third batch, not the tenth
SEED = 5


class Archive:
    """Two streams in files, and their archive."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.place, self.data = spark, path / "archive", path / "data"
        data = DataDirectory(self.data)
        self.streams: dict[str, QueueDirectory] = {name: data.queue(name) for name in NAMES}

    @property
    def wanted(self) -> list[tuple[str, int]]:
        streams = self.streams.items()
        return sorted((name, n) for name, stream in streams for n in range(stream.next_position - 1))

    def add(self, each: int, body_bytes: int = 0) -> None:
        chance = random.Random(SEED)
        for stream in self.streams.values():
            stream.append([message(chance.randbytes(body_bytes)) for _ in range(each)])

    def archive(self, *words: str) -> JobResult:
        where = ["--path", str(self.data), "--queue", *NAMES, "--to", str(self.place), "--once"]
        return self._run(archive, *where, *words)

    def compact(self, *words: str) -> JobResult:
        return self._run(compact, "--archive", str(self.place), "--in-place", *words)

    def _run(self, job: ModuleType, *words: str) -> JobResult:
        parser = argparse.ArgumentParser()
        job.add_arguments(parser)
        options = parser.parse_args(words)
        job.check(options)
        result = job.run(self.spark, options, ProgressLine(None))
        assert isinstance(result, JobResult)
        return result

    def files(self) -> set[str]:
        return {file.relative_to(self.place).as_posix() for file in self.place.glob(FILES)}

    def sizes(self) -> list[int]:
        return [(self.place / place).stat().st_size for place in self.files()]

    def listed(self) -> set[str]:
        return places_in(current_lists(self.place))


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Archive]:
    spark.conf.set(LIST_EVERY, "3")
    yield Archive(spark, tmp_path)
    spark.conf.unset(LIST_EVERY)


def rows(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((row.queue, row.offset) for row in frame.select("queue", "offset").collect())


def rows_of_files(files: str | list[str]) -> list[tuple[str, int]]:
    """The rows of these files, as DuckDB reads them."""
    with duckdb.connect() as connection:
        sql = 'select queue, "offset" from read_parquet(?, hive_partitioning=true)'
        return sorted(connection.execute(sql, [files]).fetchall())


def count(result: JobResult, name: str) -> int:
    found = result.numbers[name]
    assert isinstance(found, int)
    return found


def test_compact_in_place_leaves_each_message_once_for_those_who_read_and_for_the_archive_that_goes_on(
    spark: SparkSession, streams: Archive
) -> None:
    streams.add(BATCHES * 10)
    streams.archive("--batch", "20", "--roll-every", "0")
    before = streams.files()
    assert len(before) >= BATCHES * 2
    begun = spark.read.parquet(str(streams.place))
    assert rows(begun) == streams.wanted

    with only_one(str(streams.place), elsewhere=False):  # as if an archive job ran
        result = streams.compact()
        assert count(result, "into") == 2
        assert "The archive runs" in result.notes[0]
        assert rows(begun) == streams.wanted
        assert rows(spark.read.parquet(str(streams.place))) == streams.wanted
        assert before < streams.files()
        assert rows_of_files(archive_files(streams.place)) == streams.wanted
    streams.compact()  # now no archive job runs
    assert streams.files() == streams.listed()
    assert len(streams.listed()) == len(before) - count(result, "files merged") + 2
    assert rows(read_archive(spark, str(streams.place))) == streams.wanted
    assert rows_of_files(str(streams.place / FILES)) == streams.wanted

    merged = streams.listed() - before
    whole = [number_of(file) for file in current_lists(streams.place) if is_whole(file)]
    streams.add(BATCHES * 10)
    streams.archive("--batch", "20", "--roll-every", "0")
    assert number_of(current_lists(streams.place)[0]) > max(whole)
    assert merged <= streams.listed()  # Spark took them over into its next list
    assert rows(spark.read.parquet(str(streams.place))) == streams.wanted


def test_files_roll_by_size_in_what_is_merged_at_the_end(
    spark: SparkSession, streams: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    each, body, overhead = 75, 1000, 15_000  # Parquet's overhead for a file with so many columns
    streams.add(each, body)
    monkeypatch.setattr(archive, "BATCH_BYTES_MAX", 30_000)
    result = streams.archive("--roll-every", "0", "--compression", "none")
    assert count(result, "batches") >= 2 * each * body // 30_000
    assert max(streams.sizes()) < 30_000 + overhead

    result = streams.archive("--roll-size", "100 kB")
    assert count(result, "files merged") > count(result, "into")
    assert streams.files() == streams.listed()  # nothing waits: the archive has ended
    assert 50_000 < max(streams.sizes()) < 100_000 + overhead
    assert rows(read_archive(spark, str(streams.place))) == streams.wanted
