"""Filters that Spark hands down (with spark.sql.python.filterPushdown.enabled=true), as far as they spare reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from warren.pipeline.segments.decode import OPEN_END

Names: TypeAlias = frozenset[str] | None  # None is any
MICROSECONDS = 1_000_000


@dataclass
class Filters:
    """Offsets from `first_offset` to before `end_offset`, times from `since_ms` to before `until_ms`."""

    first_offset: int = 0
    end_offset: int = OPEN_END
    since_ms: int = 0
    until_ms: int = OPEN_END
    names: dict[str, Names] = field(default_factory=lambda: dict.fromkeys(("vhost", "queue")))

    def wants(self, vhost: str, queue: str) -> bool:
        wanted = self.names["vhost"], self.names["queue"]
        return all(names is None or name in names for names, name in zip(wanted, (vhost, queue), strict=True))

    def add(self, given: Filter) -> None:
        """Take it over, if it is one that spares reading."""
        column = ".".join(getattr(given, "attribute", ()))
        if column in self.names:
            self._add_names(column, given)
        elif column in _COLUMNS and isinstance(given, _COMPARISONS):
            _COLUMNS[column](self, given, given.value)

    def _add_names(self, column: str, given: Filter) -> None:
        if isinstance(given, EqualTo):
            found = frozenset({given.value})
        elif isinstance(given, In):
            found = frozenset(given.value)
        else:
            return
        known = self.names[column]
        self.names[column] = found if known is None else known & found

    def _add_offset(self, given: Filter, value: object) -> None:
        if type(value) is not int:
            return
        first, end = _range(given, value)
        self.first_offset = max(self.first_offset, first)
        self.end_offset = min(self.end_offset, end)

    def _add_time(self, given: Filter, value: object) -> None:
        if not isinstance(value, datetime):
            return
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        first, end = _range(given, _microseconds(aware))
        self.since_ms = max(self.since_ms, -(-first // 1000))
        self.until_ms = min(self.until_ms, -(-end // 1000))


_COMPARISONS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_COLUMNS: dict[str, Callable[[Filters, Filter, object], None]] = {
    "offset": Filters._add_offset,
    "timestamp": Filters._add_time,
}


def _range(given: Filter, value: int) -> tuple[int, int]:
    """The first that is wanted, and the first behind."""
    if isinstance(given, EqualTo):
        return value, value + 1
    if isinstance(given, GreaterThan):
        return value + 1, OPEN_END
    if isinstance(given, GreaterThanOrEqual):
        return value, OPEN_END
    return 0, value + isinstance(given, LessThanOrEqual)


def _microseconds(moment: datetime) -> int:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * MICROSECONDS + since.microseconds
