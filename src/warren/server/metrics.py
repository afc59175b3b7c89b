"""Metrics of the broker. Each module adds its own; a metric's value is read when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Number: TypeAlias = int | float
Read: TypeAlias = Callable[[], Number | Mapping[str, Number]]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number, or one for each value of a label."""

    name: str
    text: str  # the help text for Prometheus
    read: Read  # returns the number or, if there is a `label`, numbers by the label's values
    kind: Literal["gauge", "counter"] = "gauge"
    label: str | None = None

    def samples(self) -> Iterator[tuple[str | None, Number]]:
        """Pairs of a label's value and a number; the value is None if there is no label."""
        found = self.read()
        if isinstance(found, Mapping):
            yield from found.items()
        else:
            yield None, found


@dataclass
class Metrics:
    by_name: dict[str, Metric] = field(default_factory=dict)

    def add(self, metric: Metric) -> None:
        """Replaces a metric of the same name."""
        self.by_name[metric.name] = metric
