"""The result of a job: numbers, tables and plots, independent of how they are shown.

Every job ends with one `JobResult`. Its first table says what was read, queue by queue, from which offset to
which. `text.py` prints a result, and `html.py` makes a page of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | date | datetime | None


@dataclass(frozen=True)
class Table:
    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    note: str = ""  # a line below the table
    rows_left_out: int = 0  # how many more rows there are, which were too many to show


@dataclass(frozen=True)
class Series:
    """One line of a plot: a name, and a value for each time; None where there is no value."""

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
    """A bar for each label, in the order given."""

    title: str
    labels: Sequence[str]
    values: Sequence[float]
    unit: str = ""


@dataclass(frozen=True)
class HistogramPlot:
    """How many values lie between one edge and the next; there is one count fewer than edges."""

    title: str
    edges: Sequence[float]
    counts: Sequence[float]
    unit: str = ""


Plot: TypeAlias = LinePlot | Bars | HistogramPlot


@dataclass(kw_only=True)
class JobResult:
    title: str
    numbers: dict[str, Value] = field(default_factory=dict)  # by label; shown in the order of insertion
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences for the user
    ok: bool = True  # False makes the command exit with 1, such as an audit that found damage
