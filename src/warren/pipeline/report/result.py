"""What a job found out: figures, tables and plots, without a word about how they are shown.

Every job ends with one `JobResult`. Its first table says what was read, queue by queue, from which offset to
which; `text.py` prints it and `html.py` makes a page of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | date | datetime | None


@dataclass(frozen=True)
class Table:
    """`note` is a line below it; of a table with `rows_left_out` these were too many to show."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    note: str = ""
    rows_left_out: int = 0


@dataclass(frozen=True)
class Series:
    """One line of a plot: a name, and a value for each x; None where there is none."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class LinePlot:
    """Values over time."""

    title: str
    times: Sequence[datetime]
    series: Sequence[Series]
    unit: str = ""


@dataclass(frozen=True)
class Bars:
    """A bar for each label, longest first if that is how they come."""

    title: str
    labels: Sequence[str]
    values: Sequence[float]
    unit: str = ""


@dataclass(frozen=True)
class HistogramPlot:
    """How many values lie between one edge and the next: one count fewer than edges."""

    title: str
    edges: Sequence[float]
    counts: Sequence[float]
    unit: str = ""


Plot: TypeAlias = LinePlot | Bars | HistogramPlot


@dataclass(kw_only=True)
class JobResult:
    """`numbers` are shown in the order in which they were put in. A result that is not `ok` makes the command
    exit with 1: an audit that found something, say.
    """

    title: str
    numbers: dict[str, Value] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ok: bool = True
