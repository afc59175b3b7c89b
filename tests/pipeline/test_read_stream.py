"""`spark.readStream.format("warren")`, on a real Spark: each message once, and losses are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.support.segment_api import SegmentApi
from tests.support.segments import IDENTITY, DataDirectory


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    return DataDirectory(tmp_path / "data")


class Query:
    """A query that reads what there is into Parquet files, and ends; with the same checkpoint each time."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.path = path
        self.options: dict[str, str] = {}

    def run(self, **options: str) -> list[int]:
        """The rows of each batch."""
        given = {"startingOffsets": "earliest", **self.options, **options}
        reader = self.spark.readStream.format("warren").options(**given)
        query = (
            reader.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.path / "out"))
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def rows(self) -> DataFrame:
        return self.spark.read.parquet(str(self.path / "out"))

    def offsets(self, queue: str = "s") -> list[int]:
        rows = self.rows().where(f"queue = '{queue}'").select("offset").collect()
        return sorted(row["offset"] for row in rows)


@pytest.fixture
def query(spark: SparkSession, data: DataDirectory, tmp_path: Path) -> Query:
    made = Query(spark, tmp_path)
    made.options = {"path": str(data.path), "subscribe": "s"}
    return made


def test_query_goes_on_from_its_checkpoint(query: Query, data: DataDirectory) -> None:
    stream = data.queue("s")
    stream.append(5)
    query.run()
    stream.append(3)
    stream.append(4)
    query.run()
    assert query.run() == []
    assert query.offsets() == list(range(12))
    assert {bytes(row.body) for row in query.rows().collect()} == {b"m%d" % i for i in range(12)}


def test_batches_are_limited_by_max_offsets_per_trigger(query: Query, data: DataDirectory) -> None:
    stream = data.queue("s")
    stream.append(7)
    stream.append(3)
    assert query.run(maxOffsetsPerTrigger="4") == [4, 4, 2]
    assert query.offsets() == list(range(10))


def test_query_starts_at_the_end_unless_told_otherwise(query: Query, data: DataDirectory) -> None:
    stream = data.queue("s")
    stream.append(5)
    query.run(startingOffsets="latest")
    stream.append(2)
    query.run(startingOffsets="latest")
    assert query.offsets() == [5, 6]


def test_stream_that_is_new_to_a_pattern_is_read_from_its_start(query: Query, data: DataDirectory) -> None:
    query.options = {"path": str(data.path), "subscribePattern": "s.*"}
    data.queue("s").append(2)
    query.run()
    data.queue("s2").append(3)
    query.run()
    query.run()
    assert (query.offsets("s"), query.offsets("s2")) == ([0, 1], [0, 1, 2])


def test_retention_that_overtook_the_query_is_an_error_with_the_range(
    query: Query, data: DataDirectory
) -> None:
    stream = data.queue("s")
    stream.append(2)
    query.run()
    gone, kept = stream.append(3), stream.append(2)
    gone.unlink()
    (data.path / "queues" / "1" / f"{1:020}.seg").unlink()
    assert kept.exists()
    with pytest.raises(
        StreamingQueryException, match=r"offsets 2 to 4 of stream 's' are gone.*failOnDataLoss"
    ):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.offsets() == [0, 1, 5, 6]


def test_stream_that_was_made_anew_is_an_error_and_then_read_from_its_start(
    query: Query, data: DataDirectory
) -> None:
    old = data.queue("s")
    old.append(5)
    query.run()
    (old.path / "queue.json").unlink()
    (old.path / f"{1:020}.seg").unlink()
    old.path.rmdir()
    data.queue("s").append(2)
    with pytest.raises(
        StreamingQueryException,
        match=r"stream 's' was deleted and made anew: offsets from 5 on .*failOnDataLoss",
    ):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.offsets() == [0, 0, 1, 1, 2, 3, 4]


def test_checkpoint_without_identities_is_gone_on_from_and_has_them_then(
    query: Query, data: DataDirectory
) -> None:
    stream = data.queue("s")
    stream.append(5)
    query.run()
    written = query.path / "checkpoint" / "offsets" / "0"
    lines = written.read_text().splitlines()
    assert json.loads(lines[-1]) == {"s": 5, "": {"s": f"{IDENTITY}-1"}}
    written.write_text("\n".join([*lines[:-1], '{"s": 5}']))  # as earlier versions wrote it
    (written.parent / ".0.crc").unlink()
    stream.append(3)
    query.run()
    assert query.offsets() == list(range(8))
    lines = (query.path / "checkpoint" / "offsets" / "1").read_text().splitlines()
    assert json.loads(lines[-1]) == {"s": 8, "": {"s": f"{IDENTITY}-1"}}


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("classic", "s", "'s' is a classic queue, which readStream cannot read"),
        ("stream", "other", "no queue 's' in vhost '/'"),
    ],
)
def test_what_is_no_stream_is_refused(
    query: Query, data: DataDirectory, kind: str, name: str, told: str
) -> None:
    data.queue(name, kind=kind).append(1)
    with pytest.raises(PySparkException, match=told):
        query.run()


def test_progress_is_told_to_the_broker_under_the_reference(query: Query, data: DataDirectory) -> None:
    data.queue("s").append(6)
    with SegmentApi(str(data.path)) as api:
        query.options = {
            "url": api.url,
            "subscribe": "s",
            "reference": "archive",
            "maxOffsetsPerTrigger": "2",
        }
        query.run()
    assert query.offsets() == list(range(6))
    ((path, offset),) = api.offsets.items()
    assert path == "/api/streams///s/offsets/archive"
    assert offset == 5  # the last batch is reported, too: otherwise the query would seem to be behind
