"""How far a streaming query goes next, without a Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from tests.support.segments import DataDirectory
from warren.pipeline.segments.errors import UnknownQueue
from warren.pipeline.source.options import parse_options
from warren.pipeline.source.streaming import StreamReader


def reader_of(data: DataDirectory, subscribe: str) -> StreamReader:
    return StreamReader(parse_options({"path": str(data.path), "subscribe": subscribe}, streaming=True))


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
    assert {part.value.queue.name for part in reader.partitions(start, end)} == {"a"}


def test_stream_that_matched_the_pattern_and_is_gone_is_a_loss(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    data.queue("a1").append(5)
    options = {"path": str(data.path), "subscribePattern": "a."}
    with pytest.raises(UnknownQueue, match="no queue 'a2'"):
        StreamReader(parse_options(options, streaming=True)).latestOffset({"a2": 3}, ReadAllAvailable())
