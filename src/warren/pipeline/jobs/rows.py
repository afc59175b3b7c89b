"""Turns rows of Spark into plain values for a result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

from pyspark.sql import DataFrame, Row

from warren.pipeline.report.result import Table, Value

ROWS_SHOWN_MAX = 50


def collect(frame: DataFrame) -> list[list[Value]]:
    return [plain(row) for row in frame.collect()]


def plain(row: Row) -> list[Value]:
    """A row's values. Times are made UTC: Spark gives them in this machine's zone, but without naming it."""
    return [_value(value) for value in row]


def _value(value: object) -> Value:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if value is None or isinstance(value, str | int | float | date):
        return value
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    return ", ".join(str(_value(item)) for item in value) if isinstance(value, list) else str(value)


def whole(value: Value) -> int:
    """A value that is known to be a count."""
    assert isinstance(value, int)
    return value


def top(
    name: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Value]],
    *,
    most: int = ROWS_SHOWN_MAX,
    note: str = "",
) -> Table:
    """A table of the first `most` rows, which says how many more there are."""
    return Table(name, columns, rows[:most], note=note, rows_left_out=max(0, len(rows) - most))
