"""How far a streaming query goes next, without a Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from tests.support.segments import IDENTITY, DataDirectory
from warren.pipeline.segments.errors import DataLoss, UnknownQueue
from warren.pipeline.source.options import parse_options
from warren.pipeline.source.positions import SparkOffset, joined, split
from warren.pipeline.source.streaming import StreamReader


def reader_of(data: DataDirectory, subscribe: str, **options: str) -> StreamReader:
    given = {"path": str(data.path), "subscribe": subscribe, **options}
    return StreamReader(parse_options(given, streaming=True))


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(10)])
@pytest.mark.parametrize("available_now", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_stream_that_is_not_subscribed_to_any_more_stays_where_it_is(
    tmp_path: Path, limit: ReadLimit, available_now: bool, is_there: bool
) -> None:
    data = DataDirectory(tmp_path)
    data.queue("a").append(5)
    if is_there:
        data.queue("b").append(5)
    reader = reader_of(data, "a")
    if available_now:
        reader.prepareForTriggerAvailableNow()
    start: SparkOffset = {"a": 2, "b": 3}
    end = reader.latestOffset(start, limit)
    assert end == {"a": 5, "b": 3, "": {"a": f"{IDENTITY}-1"}}
    assert {part.value.queue.name for part in reader.partitions(start, end)} == {"a"}


def test_stream_that_matched_the_pattern_and_is_gone_is_a_loss(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    data.queue("a1").append(5)
    options = {"path": str(data.path), "subscribePattern": "a."}
    with pytest.raises(UnknownQueue, match="no queue 'a2'"):
        StreamReader(parse_options(options, streaming=True)).latestOffset({"a2": 3}, ReadAllAvailable())


@pytest.mark.parametrize(
    ("offset", "offsets", "ids"),
    [
        ({"a": 5}, {"a": 5}, {}),
        ({"a": 5, "b": 0, "": {"a": "x-1"}}, {"a": 5, "b": 0}, {"a": "x-1"}),
    ],
)
def test_offset_of_spark_is_read_and_written_in_either_form(
    offset: SparkOffset, offsets: dict[str, int], ids: dict[str, str]
) -> None:
    assert split(offset) == (offsets, ids)
    assert joined(offsets, {**ids, "gone": "x-9"}) == offset


def rows_of(reader: StreamReader, start: SparkOffset, end: SparkOffset) -> list[int]:
    parts = reader.partitions(start, end)
    return [offset for part in parts for batch in reader.read(part) for offset in batch["offset"].to_pylist()]


@pytest.mark.parametrize("length", [2, 5, 9])
@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(2)])
def test_another_stream_of_the_same_name_is_a_loss_or_is_read_from_its_start(
    tmp_path: Path, length: int, limit: ReadLimit
) -> None:
    data = DataDirectory(tmp_path)
    old = data.queue("s")
    old.append(5)
    start = joined({"s": 5}, {"s": f"{IDENTITY}-1"})
    shutil.rmtree(old.path)
    data.queue("s").append(length)
    with pytest.raises(DataLoss, match=r"stream 's' was deleted and made anew: offsets from 5 on"):
        reader_of(data, "s").latestOffset(start, limit)
    reader = reader_of(data, "s", failOnDataLoss="false")
    end = reader.latestOffset(start, limit)
    read = length if isinstance(limit, ReadAllAvailable) else 2
    assert end == {"s": read, "": {"s": f"{IDENTITY}-2"}}
    assert rows_of(reader, start, end) == list(range(read))
    assert rows_of(reader, end, reader.latestOffset(end, ReadAllAvailable())) == list(range(read, length))


def test_stream_that_is_made_anew_after_a_batch_was_planned_is_read_in_the_next(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    data.queue("s").append(9)
    start, end = joined({"s": 2}, {"s": "other-1"}), joined({"s": 5}, {"s": "other-1"})
    with pytest.raises(DataLoss, match="made anew"):
        reader_of(data, "s").partitions(start, end)
    reader = reader_of(data, "s", failOnDataLoss="false")
    assert rows_of(reader, start, end) == []
    assert rows_of(reader, end, reader.latestOffset(end, ReadAllAvailable())) == list(range(9))
