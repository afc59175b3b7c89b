"""archive and compact: each message once, whatever the queue is called, and however often they run."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.messages import ALL, Message, message, some_messages, table
from tests.pipeline.recorded import QUIET, Recorded, places
from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs import compact
from warren.pipeline.jobs.archive import read_snapshot, start, write_snapshot
from warren.pipeline.jobs.inputs import InputSlice, select
from warren.pipeline.jobs.tables import read_archive


@pytest.fixture
def recorded(spark: SparkSession, tmp_path: Path) -> Recorded:
    return Recorded(spark, tmp_path)


def test_archive_has_every_message_once_and_whole(spark: SparkSession, recorded: Recorded) -> None:
    messages = some_messages(5, 120)
    recorded.add(messages[:200])
    assert recorded.archive() == 200
    recorded.add(messages[200:])
    assert recorded.archive() == len(messages) - 200
    assert recorded.archive() == 0
    rows = [row.asDict(recursive=True) for row in read_archive(spark, recorded.to).collect()]
    for row in rows:
        row["timestamp"] = row["timestamp"].astimezone(UTC)
        assert row.pop("date") == row["timestamp"].date()
        row["body"] = bytes(row["body"])
    key: Callable[[Message], tuple[str, int]] = lambda row: (row["queue"], row["offset"])  # noqa: E731
    assert sorted(({name: row[name] for name in ALL} for row in rows), key=key) == sorted(messages, key=key)


def test_archive_lies_by_vhost_queue_and_day(recorded: Recorded) -> None:
    recorded.add([message("orders", 0), message("orders", 900)])
    recorded.archive()
    days = sorted(path.name for path in Path(recorded.to, "vhost=%2F", "queue=orders").iterdir())
    assert days == ["date=2026-03-01", "date=2026-03-02"]


def test_archive_refuses_a_new_checkpoint(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    recorded.add([message("orders", 0)])
    recorded.archive()
    stream = spark.readStream.schema(table(spark, []).schema).parquet(recorded.source)
    with pytest.raises(PipelineError, match="--checkpoint"):
        start(stream, recorded.to, checkpoint=str(tmp_path / "another"))
    with pytest.raises(PipelineError, match="belongs to another directory"):
        start(stream, str(tmp_path / "elsewhere"), checkpoint=f"{recorded.to}/_checkpoint")
    recorded.add([message("orders", 1)])
    recorded.archive()
    Path(recorded.to, "_checkpoint", "commits", "0").unlink()  # as Spark does after a hundred batches
    with pytest.raises(PipelineError, match="belongs to another directory"):
        start(stream, str(tmp_path / "elsewhere"), checkpoint=f"{recorded.to}/_checkpoint")


def test_archive_goes_on_where_its_first_run_was_killed_before_it_had_a_checkpoint(
    spark: SparkSession, recorded: Recorded
) -> None:
    recorded.add([message("orders", 0)])
    Path(recorded.to, "_spark_metadata").mkdir(parents=True)
    assert recorded.archive() == 1
    assert recorded.archive() == 0
    assert [row.offset for row in read_archive(spark, recorded.to).collect()] == [0]


def test_snapshot_of_one_name_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    to = str(tmp_path / "snapshots")
    write_snapshot(table(spark, some_messages(6, 10)), to, "monday")
    write_snapshot(table(spark, [message("orders", 3)]), to, "monday")
    write_snapshot(table(spark, [message("orders", 4)]), to, "tuesday")
    found = spark.read.parquet(to).filter("queue = 'orders'").select("snapshot", "offset").collect()
    assert sorted(map(tuple, found)) == [("monday", 3), ("tuesday", 4)]


@pytest.mark.parametrize("name", ["7", "before 10:00, 50% = half/full"])
def test_snapshot_is_found_by_its_name_also_if_it_is_empty(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    to = str(tmp_path / "snapshots")
    write_snapshot(table(spark, []), to, name)
    assert places(read_snapshot(spark, to, name)) == []
    write_snapshot(table(spark, [message("orders", 3)]), to, name)
    write_snapshot(table(spark, [message("orders", 4)]), to, "another")
    assert places(read_snapshot(spark, to, name)) == [("/", "orders", 3)]


def test_slice_of_an_archive_is_that_of_a_queue(spark: SparkSession) -> None:
    messages = table(spark, some_messages(7, 40))
    chosen = InputSlice(queues=("orders", "7"), from_offset='{"orders": 30, "7": -2}', to_offset="35")
    wanted = [("/", "7", n) for n in range(35)] + [("/", "orders", n) for n in range(30, 35)]
    assert places(select(messages, chosen)) == wanted
    assert places(select(messages, InputSlice(pattern="order"))) == []
    assert len(places(select(messages, InputSlice(pattern="order.")))) == 40
    since = InputSlice(
        queues=("orders",), since_ms=1772409000000 + 20 * 9_000, until_ms=1772409000000 + 30 * 9_000
    )
    assert places(select(messages, since)) == [("/", "orders", n) for n in range(20, 30)]


def options(recorded: Recorded, to: str, **given: object) -> Namespace:
    plain: dict[str, object] = {
        "archive": recorded.to, "to": to, "vhost": "/", "queue": [], "pattern": None, "from_offset": None,
        "to_offset": None, "since": None, "until": None, "latest_per": None, "rows_a_file": 1000,
        "in_place": False,
    }  # fmt: skip
    return Namespace(**(plain | given))


def test_compact_keeps_all_in_fewer_files_however_often_it_runs(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    messages = some_messages(8, 100)
    to = str(tmp_path / "compacted")
    for part in range(2):
        recorded.add(messages[part::2])
        recorded.archive()
    for _ in range(2):
        result = compact.run(spark, options(recorded, to), QUIET)
        assert places(read_archive(spark, to)) == places(read_archive(spark, recorded.to))
        assert result.numbers["messages read"] == result.numbers["messages written"] == len(messages)
        assert (result.numbers["files before"], result.numbers["files after"]) == (12, 6)
    orders = read_archive(spark, to).filter("queue = 'orders'").select("offset").collect()
    assert [row[0] for row in orders] == list(range(100))  # files are in order


def test_compact_keeps_the_latest_of_each_key_and_all_without_one(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    messages, to = some_messages(9, 60), str(tmp_path / "latest")
    for part in (messages[::2], messages[1::2]):
        recorded.add(part)
        recorded.archive()
        compact.run(spark, options(recorded, to, latest_per="message_id"), QUIET)
    latest: dict[tuple[str, object], int] = {}
    for plain in sorted(messages, key=lambda m: m["offset"]):
        latest[plain["queue"], plain["message_id"] or plain["offset"]] = plain["offset"]
    wanted = sorted(("/", queue, offset) for (queue, _), offset in latest.items())
    assert places(read_archive(spark, to)) == wanted


def test_compact_refuses_to_write_into_an_archive(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    recorded.add([message("orders", 0)])
    recorded.archive()
    other = Recorded(spark, tmp_path / "other")
    other.add([message("orders", 1)])
    other.archive()
    with pytest.raises(PipelineError, match="--to"):
        compact.run(spark, options(recorded, other.to), QUIET)
