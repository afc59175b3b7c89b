"""Metrics of the broker. Each module adds its own; a metric's value is read when somebody asks for it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, TypeAlias

Number: TypeAlias = int | float
Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[str, Labels, Number]
"""What is added to the metric's name, labels, and a number."""
NO_LABELS: Labels = {}


class Histogram:
    """Counts values by their size, for a metric of kind `histogram`."""

    def __init__(self, *bounds: float) -> None:
        self.bounds = bounds  # the highest value of each bucket; there is one more for all above
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def samples(self) -> Iterator[Sample]:
        """As Prometheus wants them: each bucket has those below it in it."""
        totals = list(accumulate(self.counts))
        for bound, total in zip(self.bounds, totals, strict=False):
            yield "_bucket", {"le": repr(bound)}, total
        yield "_bucket", {"le": "+Inf"}, totals[-1]
        yield "_sum", NO_LABELS, self.sum
        yield "_count", NO_LABELS, totals[-1]


Read: TypeAlias = Callable[[], Number | Mapping[str, Number] | Histogram]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number, or one for each value of a label, or a histogram."""

    name: str
    text: str  # the help text for Prometheus
    read: Read  # returns the number, numbers by the label's values if there is a `label`, or a histogram
    kind: Literal["gauge", "counter", "histogram"] = "gauge"
    label: str | None = None
    labels: Labels = field(default_factory=dict)  # further ones, which stay the same

    def samples(self) -> Iterator[Sample]:
        found = self.read()
        if isinstance(found, Histogram):
            yield from found.samples()
        elif isinstance(found, Mapping):
            assert self.label is not None, "numbers by a label's values need the label's name"
            for value, number in found.items():
                yield "", {**self.labels, self.label: value}, number
        else:
            yield "", self.labels, found


@dataclass
class Metrics:
    by_name: dict[str, Metric] = field(default_factory=dict)

    def add(self, metric: Metric) -> None:
        """Replaces a metric of the same name."""
        self.by_name[metric.name] = metric
