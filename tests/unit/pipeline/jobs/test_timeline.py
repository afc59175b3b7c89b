"""Rows by time as lines: a point for each step, also where there is no row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from warren.pipeline.jobs.timeline import lines_by_time, window_for

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("absent", [0.0, None])
def test_step_without_a_row_is_absent(absent: float | None) -> None:
    rows = [(NOON, "a", 1), (NOON, "b", 5), (NOON + 2 * MINUTE, "a", 3)]
    (plot,) = lines_by_time("Messages", rows, "1 minute", absent=absent)
    assert list(plot.times) == [NOON, NOON + MINUTE, NOON + 2 * MINUTE]
    assert {line.name: list(line.values) for line in plot.series} == {
        "b": [5, absent, absent],
        "a": [1, absent, 3],
    }
    assert [line.name for line in plot.series] == ["b", "a"]


def test_nothing_has_no_plot() -> None:
    assert lines_by_time("Messages", [], "1 minute") == []


@pytest.mark.parametrize(
    ("span", "wanted"),
    [
        (timedelta(), "1 second"),
        (timedelta(minutes=4), "1 second"),
        (timedelta(minutes=5), "10 seconds"),
        (timedelta(days=1), "10 minutes"),
        (timedelta(days=900), "1 day"),
    ],
)
def test_window_cuts_what_was_read_into_a_few_hundred_pieces(span: timedelta, wanted: str) -> None:
    assert window_for([("/", "q", 1, 0, 0, NOON, NOON + span)]) == wanted
