"""Turns rows of (start, name, value) into plots of lines over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from warren.pipeline.report.result import LinePlot, Series, Value
from warren.pipeline.report.svg import SERIES_MAX

STEPS_MAX = 240
WINDOWS = (
    ("1 second", timedelta(seconds=1)),
    ("10 seconds", timedelta(seconds=10)),
    ("1 minute", timedelta(minutes=1)),
    ("10 minutes", timedelta(minutes=10)),
    ("1 hour", timedelta(hours=1)),
    ("1 day", timedelta(days=1)),
)
FIRST_TIME, LAST_TIME = 5, 6


def window_for(extent: Sequence[Sequence[Value]]) -> str:
    """The shortest window of WINDOWS that divides the time of what was read into at most STEPS_MAX windows,
    or a day. `extent` has rows of `extents`.
    """
    times = [row[place] for row in extent for place in (FIRST_TIME, LAST_TIME)]
    moments = [moment for moment in times if isinstance(moment, datetime)]
    span = max(moments) - min(moments) if moments else timedelta()
    return next((name for name, step in WINDOWS if span / step <= STEPS_MAX), WINDOWS[-1][0])


def lines_by_time(
    title: str,
    rows: Sequence[Sequence[Value]],
    window: str,
    unit: str = "messages",
    *,
    absent: float | None = 0.0,
) -> list[LinePlot]:
    """A plot with a line for each of the names with the highest totals; [] if there are no values. Where a
    name has no row, its value is `absent`.
    """
    values: dict[tuple[datetime, str], float] = {}
    totals: dict[str, float] = {}
    for start, name, value in rows:
        if isinstance(start, datetime) and isinstance(value, int | float):
            values[start, str(name)] = values.get((start, str(name)), 0.0) + value
            totals[str(name)] = totals.get(str(name), 0.0) + value
    if not values:
        return []
    times = _every(min(at for at, _ in values), max(at for at, _ in values), dict(WINDOWS)[window])
    names = sorted(totals, key=lambda name: (-totals[name], name))[:SERIES_MAX]
    series = [Series(name, [values.get((at, name), absent) for at in times]) for name in names]
    return [LinePlot(f"{title}, by {window}", times, series, unit)]


def _every(first: datetime, last: datetime, step: timedelta) -> list[datetime]:
    return [first + step * i for i in range(int((last - first) / step) + 1)]
