"""The summary of a streaming query: offsets by queue, from the progress that Spark reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from warren.pipeline.jobs.queries import Summary, offsets_of


def batch(
    number: int, start: str | None, end: str, rows: int, late: int = 0, latest: str | None = None
) -> Any:
    return SimpleNamespace(
        batchId=number,
        numInputRows=rows,
        durationMs={"addBatch": 5, "walCommit": 1},
        timestamp=f"2026-03-01T10:00:{number:02}.000Z",
        sources=[SimpleNamespace(startOffset=start, endOffset=end, latestOffset=latest)],
        stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=late)],
    )


def query(*batches: Any) -> Any:
    return SimpleNamespace(recentProgress=list(batches))


def test_batches_are_counted_once_however_often_they_are_seen() -> None:
    summary = Summary()
    first = batch(7, '{"a": 5}', '{"a": 9}', 4, late=1)
    summary.take_in(query(first))
    summary.take_in(query(first, batch(8, '{"a": 9}', '{"a": 12, "b": 0}', 2)))
    assert (summary.rows, summary.rows_late, summary.batches) == (6, 1, 2)
    assert (summary.first, summary.next) == ({"a": 5}, {"a": 12, "b": 0})
    assert [rows for _, rows in summary.history] == [4, 2]


def test_first_batch_ever_began_where_the_streams_did() -> None:
    summary = Summary({"a": 100, "b": 3})
    summary.take_in(
        query(
            batch(0, None, '{"a": 110, "b": 3}', 9), batch(1, '{"a": 110, "b": 3}', '{"a": 110, "b": 3}', 0)
        )
    )
    assert summary.missing == 1
    assert list(summary.table().rows) == [("a", 10, 100, 109), ("b", 0, None, None)]


def test_where_a_query_began_may_be_unknown() -> None:
    summary = Summary()
    summary.take_in(query(batch(0, None, '{"a": 110}', 9)))
    assert summary.missing is None
    assert list(summary.table().rows) == [("a", None, None, 109)]


def test_offsets_that_are_none_are_ignored() -> None:
    assert offsets_of(None) == offsets_of("null") == offsets_of("[1]") == offsets_of("x") == {}
    assert offsets_of('{"a": 1, "b": null}') == {"a": 1}


def test_line_tells_what_comes_in_and_how_far_it_is_behind() -> None:
    summary = Summary({"a": 0})
    summary.take_in(query(batch(0, None, '{"a": 9000}', 9000, latest='{"a": 10000}')))
    assert str(summary) == "9,000 messages in 1 batches, 1,000 behind"
    summary.take_in(
        query(batch(10, '{"a": 9000}', '{"a": 10030, "b": 5}', 1035, latest='{"a": 10050, "b": 7}'))
    )
    assert str(summary) == "10,035 messages in 2 batches, 5 a second come in, 22 behind"
