"""Times in archives: instants with a zone and with statistics, even if a user's own session wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.messages import Message, message, some_messages, table
from tests.pipeline.recorded import Recorded, places
from warren.pipeline.jobs import archive, compact
from warren.pipeline.jobs.archive import dated
from warren.pipeline.jobs.tables import ARCHIVE_PARTITIONS, read_archive
from warren.pipeline.session import TIMESTAMP_CONF, open_session

KEY = next(iter(TIMESTAMP_CONF))
PUBLISHED = datetime(2026, 3, 1, 23, 49, tzinfo=UTC)


@pytest.fixture
def int96(spark: SparkSession) -> Iterator[None]:
    """Spark's default setting, as in a session that the user has opened."""
    spark.conf.set(KEY, "INT96")
    yield
    assert spark.conf.get(KEY) == "INT96"
    for name, value in TIMESTAMP_CONF.items():
        spark.conf.set(name, value)


def instants(messages: list[Message]) -> dict[tuple[str, int], datetime]:
    return {(row["queue"], row["offset"]): row["timestamp"] for row in messages}


def files_below(place: str) -> list[Path]:
    found = sorted(Path(place).glob("vhost=*/**/*.parquet"))
    assert found
    return found


def kind_of_times(file: Path) -> pq.ColumnSchema:
    parquet = pq.ParquetFile(file)
    return parquet.schema.column(parquet.schema_arrow.get_field_index("timestamp"))


def check_times(place: str) -> None:
    for file in files_below(place):
        kind = kind_of_times(file)
        assert kind.physical_type == "INT64"
        assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(kind.logical_type)
        group = pq.ParquetFile(file).metadata.row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        times = next(column for column in columns if column.path_in_schema == "timestamp").statistics
        assert times.has_min_max
        assert times.min.tzinfo is not None


def test_session_of_ours_writes_times_as_micros(spark: SparkSession, tmp_path: Path) -> None:
    assert open_session(app_name="again", master="local[2]").conf.get(KEY) == "TIMESTAMP_MICROS"


@pytest.mark.usefixtures("int96")
def test_archive_snapshot_and_compacted_table_have_micros_with_statistics_in_any_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    recorded = Recorded(spark, tmp_path)
    recorded.add([message("orders", n, published_at=PUBLISHED) for n in range(5)])
    recorded.archive()
    archive.write_snapshot(table(spark, [message("orders", 0)]), str(tmp_path / "snapshots"), "monday")
    compact.compact(read_archive(spark, recorded.to), str(tmp_path / "compacted"))

    check_times(recorded.to)
    check_times(str(tmp_path / "snapshots" / "snapshot=monday"))
    check_times(str(tmp_path / "compacted"))


def test_duckdb_polars_and_pyarrow_read_the_same_instants_with_their_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    recorded, messages = Recorded(spark, tmp_path), some_messages(11, 30)
    recorded.add(messages)
    recorded.archive()
    files = [str(file) for file in files_below(recorded.to)]

    arrow = pads.dataset(files, partitioning="hive").to_table(["queue", "offset", "timestamp"])
    assert arrow.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    frame = pl.scan_parquet(files, hive_partitioning=True).select("queue", "offset", "timestamp").collect()
    assert frame.schema["timestamp"] == pl.Datetime("us", "UTC")
    with duckdb.connect() as connection:
        columns = 'queue, "offset", epoch_us(timestamp), typeof(timestamp)'
        sql = f"select {columns} from read_parquet(?, hive_partitioning=true)"  # noqa: S608 - all of it is here
        rows = connection.execute(sql, [files]).fetchall()
    assert {row[3] for row in rows} == {"TIMESTAMP WITH TIME ZONE"}

    wanted = {place: int(moment.timestamp() * 1_000_000) for place, moment in instants(messages).items()}
    assert {(str(row[0]), row[1]): row[2] for row in rows} == wanted
    for found in (arrow.to_pylist(), frame.to_dicts()):
        assert {(str(row["queue"]), row["offset"]): row["timestamp"] for row in found} == instants(messages)


@pytest.mark.usefixtures("int96")
def test_archive_that_was_begun_with_int96_goes_on_and_is_read_and_compacted_as_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    recorded, messages = Recorded(spark, tmp_path), some_messages(12, 20)
    recorded.add(messages[::2])
    stream = spark.readStream.schema(table(spark, []).schema).parquet(recorded.source)
    writer = dated(stream).writeStream.format("parquet").partitionBy(*ARCHIVE_PARTITIONS)  # as it was
    writer = writer.option("checkpointLocation", f"{recorded.to}/_checkpoint").trigger(availableNow=True)
    writer.start(recorded.to).awaitTermination()
    assert {kind_of_times(file).physical_type for file in files_below(recorded.to)} == {"INT96"}
    recorded.add(messages[1::2])
    recorded.archive()

    compact.compact(read_archive(spark, recorded.to), str(tmp_path / "compacted"))
    check_times(str(tmp_path / "compacted"))
    for place in (recorded.to, str(tmp_path / "compacted")):
        found = read_archive(spark, place)
        assert places(found) == sorted(("/", *place) for place in instants(messages))
        times = {(row.queue, row.offset): row.timestamp.astimezone(UTC) for row in found.collect()}
        assert times == instants(messages)
