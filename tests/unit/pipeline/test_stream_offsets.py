"""Where the next batch of a streaming query ends, without a Spark."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from tests.support.segments import IDENTITY, DataDirectory
from warren.pipeline.segments.errors import DataLoss, UnknownQueue
from warren.pipeline.segments.files import FileLog
from warren.pipeline.segments.log import QueueEnds
from warren.pipeline.source.options import parse_options
from warren.pipeline.source.positions import SparkOffset, joined, split
from warren.pipeline.source.streaming import QueryReader


def reader_of(data: DataDirectory, subscribe: str, **options: str) -> QueryReader:
    given = {"path": str(data.path), "subscribe": subscribe, **options}
    return QueryReader(parse_options(given, streaming=True))


def at(offset: int) -> SparkOffset:
    """Spark's offset for a query on `a`, the first stream that a test makes."""
    return joined({"a": offset}, {"a": f"{IDENTITY}-1"})


def queues_of(partitions: Sequence[InputPartition]) -> set[str]:
    return {portion.queue.name for part in partitions for portion in part.value.portions}


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
    assert queues_of(reader.partitions(start, end)) == {"a"}


def test_stream_that_matched_the_pattern_and_is_gone_is_a_loss(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    data.queue("a1").append(5)
    options = {"path": str(data.path), "subscribePattern": "a."}
    with pytest.raises(UnknownQueue, match="no queue 'a2'"):
        QueryReader(parse_options(options, streaming=True)).latestOffset({"a2": 3}, ReadAllAvailable())


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


def rows_of(reader: QueryReader, start: SparkOffset, end: SparkOffset) -> list[int]:
    parts = reader.partitions(start, end)
    return [offset for part in parts for batch in reader.read(part) for offset in batch["offset"].to_pylist()]


@pytest.mark.parametrize("length", [2, 5, 9])
@pytest.mark.parametrize("most", [None, 2])
def test_another_stream_of_the_same_name_is_a_loss_or_is_read_from_its_start(
    tmp_path: Path, length: int, most: int | None
) -> None:
    data = DataDirectory(tmp_path)
    options = {} if most is None else {"maxOffsetsPerTrigger": str(most)}
    limit = reader_of(data, "s", **options).getDefaultReadLimit()
    old = data.queue("s")
    old.append(5)
    start = joined({"s": 5}, {"s": f"{IDENTITY}-1"})
    shutil.rmtree(old.path)
    data.queue("s").append(length)
    with pytest.raises(DataLoss, match=r"stream 's' was deleted and made anew: offsets from 5 on"):
        reader_of(data, "s", **options).latestOffset(start, limit)
    reader = reader_of(data, "s", failOnDataLoss="false", **options)
    end = reader.latestOffset(start, limit)
    read = length if most is None else most
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


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call of `ends_of`, whether it was allowed to wait."""
    found: list[bool] = []
    look = FileLog.ends_of

    def noted(log: FileLog, vhost: str, names: Sequence[str], *, wait_s: float = 0.0) -> dict[str, QueueEnds]:
        found.append(wait_s > 0)
        return look(log, vhost, names)

    monkeypatch.setattr(FileLog, "ends_of", noted)
    return found


def test_look_waits_only_while_there_was_no_news(tmp_path: Path, waits: list[bool]) -> None:
    data = DataDirectory(tmp_path)
    data.queue("a").append(5)
    reader = reader_of(data, "a")
    idle, behind = at(5), at(3)
    for start in (idle, idle, behind, idle, idle):
        reader.latestOffset(start, ReadAllAvailable())
    assert waits == [False, True, True, False, True]
    reader.partitions(idle, idle)  # another source of the query has news
    reader.latestOffset(idle, ReadAllAvailable())
    reader.latestOffset(idle, ReadAllAvailable())
    assert waits[5:] == [False, True]


def test_query_that_reads_what_there_is_now_does_not_wait(tmp_path: Path, waits: list[bool]) -> None:
    data = DataDirectory(tmp_path)
    data.queue("a").append(5)
    reader = reader_of(data, "a")
    reader.prepareForTriggerAvailableNow()
    for _ in range(3):
        reader.latestOffset(at(5), ReadAllAvailable())
    assert not any(waits)


def test_batch_waits_for_as_many_as_asked_for_but_not_longer_than_the_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = DataDirectory(tmp_path)
    queue = stream.queue("a")
    queue.append(2)
    reader = reader_of(stream, "a", minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(at(0), limit) == at(2)  # the first one does not wait
    queue.append(4)
    assert reader.latestOffset(at(2), limit) == at(2)
    assert reader.latestOffset(at(2), ReadAllAvailable()) == at(6)
    now[0] = 109.0
    queue.append(1)
    assert reader.latestOffset(at(2), limit) == at(7)
    queue.append(1)
    now[0] = 118.0
    assert reader.latestOffset(at(7), limit) == at(7)
    now[0] = 119.5
    assert reader.latestOffset(at(7), limit) == at(8)


def test_query_that_is_to_end_does_not_wait_for_more(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    data.queue("a").append(2)
    reader = reader_of(data, "a", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(at(0), limit) == at(2)
    assert reader.latestOffset(at(1), limit) == at(2)


def test_batch_is_limited_in_bytes(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    size = data.queue("a").append(100).stat().st_size
    reader = reader_of(data, "a", maxBytesPerTrigger=str(size // 4))
    place, ends = 0, []
    while place < 100:
        place = split(reader.latestOffset(at(place), reader.getDefaultReadLimit()))[0]["a"]
        ends.append(place)
    assert ends in ([25, 50, 75, 100], [24, 48, 72, 96, 100])
