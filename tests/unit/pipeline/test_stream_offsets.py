"""How far a streaming query goes next, without a Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from tests.support.segments import DataDirectory
from warren.pipeline.segments.errors import UnknownQueue
from warren.pipeline.segments.files import FileLog
from warren.pipeline.segments.log import Ends
from warren.pipeline.source.options import parse_options
from warren.pipeline.source.streaming import StreamReader


def reader_of(data: DataDirectory, subscribe: str, **options: str) -> StreamReader:
    given = {"path": str(data.path), "subscribe": subscribe, **options}
    return StreamReader(parse_options(given, streaming=True))


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
    start = {"a": 2, "b": 3}
    end = reader.latestOffset(start, limit)
    assert end == {"a": 5, "b": 3}
    assert queues_of(reader.partitions(start, end)) == {"a"}


def test_stream_that_matched_the_pattern_and_is_gone_is_a_loss(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    data.queue("a1").append(5)
    options = {"path": str(data.path), "subscribePattern": "a."}
    with pytest.raises(UnknownQueue, match="no queue 'a2'"):
        StreamReader(parse_options(options, streaming=True)).latestOffset({"a2": 3}, ReadAllAvailable())


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each look at the log was one that may wait."""
    found: list[bool] = []
    look = FileLog.ends_of

    def noted(log: FileLog, vhost: str, names: Sequence[str], *, wait_s: float = 0.0) -> dict[str, Ends]:
        found.append(wait_s > 0)
        return look(log, vhost, names)

    monkeypatch.setattr(FileLog, "ends_of", noted)
    return found


def test_look_waits_only_while_there_was_no_news(tmp_path: Path, waits: list[bool]) -> None:
    data = DataDirectory(tmp_path)
    data.queue("a").append(5)
    reader = reader_of(data, "a")
    idle, behind = {"a": 5}, {"a": 3}
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
        reader.latestOffset({"a": 5}, ReadAllAvailable())
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
    assert reader.latestOffset({"a": 0}, limit) == {"a": 2}  # the first one does not wait
    queue.append(4)
    assert reader.latestOffset({"a": 2}, limit) == {"a": 2}
    assert reader.latestOffset({"a": 2}, ReadAllAvailable()) == {"a": 6}
    now[0] = 109.0
    queue.append(1)
    assert reader.latestOffset({"a": 2}, limit) == {"a": 7}
    queue.append(1)
    now[0] = 118.0
    assert reader.latestOffset({"a": 7}, limit) == {"a": 7}
    now[0] = 119.5
    assert reader.latestOffset({"a": 7}, limit) == {"a": 8}


def test_query_that_is_to_end_does_not_wait_for_more(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    data.queue("a").append(2)
    reader = reader_of(data, "a", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"a": 0}, limit) == {"a": 2}
    assert reader.latestOffset({"a": 1}, limit) == {"a": 2}


def test_batch_is_limited_in_bytes(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    size = data.queue("a").append(100).stat().st_size
    reader = reader_of(data, "a", maxBytesPerTrigger=str(size // 4))
    start, ends = {"a": 0}, []
    while start["a"] < 100:
        start = reader.latestOffset(start, reader.getDefaultReadLimit())
        ends.append(start["a"])
    assert ends in ([25, 50, 75, 100], [24, 48, 72, 96, 100])
