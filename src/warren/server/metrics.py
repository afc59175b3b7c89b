"""Numbers that tell how the broker does. Whoever knows one adds it; it is asked for when somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Number: TypeAlias = int | float
Read: TypeAlias = Callable[[], Number | Mapping[str, Number]]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """`read` gives a number or, if there is a `label`, one for each of its values."""

    name: str
    text: str
    read: Read
    kind: Literal["gauge", "counter"] = "gauge"
    label: str | None = None

    def samples(self) -> Iterator[tuple[str | None, Number]]:
        """Values of the label, and numbers."""
        found = self.read()
        if isinstance(found, Mapping):
            yield from found.items()
        else:
            yield None, found


@dataclass
class Metrics:
    by_name: dict[str, Metric] = field(default_factory=dict)

    def add(self, metric: Metric) -> None:
        """One of the same name is replaced."""
        self.by_name[metric.name] = metric
