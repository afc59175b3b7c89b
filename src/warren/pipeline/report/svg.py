"""Draws plots as SVG within a page: lines over time, bars, histograms.

Colours are CSS classes, whose values are in the page's style, so that a plot looks right in light and dark.
Each dot and bar has a title, which browsers show when one points at it, and each plot has a label in words
for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from itertools import combinations, pairwise

from warren.pipeline.report.axis import short, ticks, time_label, time_ticks
from warren.pipeline.report.result import Bars, HistogramPlot, LinePlot, Plot, Series
from warren.pipeline.report.words import moment, number, printable

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 34, 26, 34
SERIES_MAX = 8
BARS_MAX = 20
BAR_HEIGHT, BAR_GAP = 20, 8
LABEL_WIDTH, LABEL_CHARACTERS = 230, 34
VALUE_WIDTH = 90
MARKED_POINTS_MAX = 60
ALONE = timedelta(seconds=1)
PANEL_HEIGHT, PANEL_TOP, PANEL_STEPS = 84, 22, 2
SMALL_SHARE = 0.1
"""A series whose highest value is below this share of the plot's would be a flat line at the bottom."""
SAME_SHARE = 0.02
"""Two series that differ by less than this share of the highest value, on average, would hide each other."""


def as_svg(plot: Plot) -> str:
    if isinstance(plot, LinePlot):
        return _lines(plot)
    return _bars(plot) if isinstance(plot, Bars) else _histogram(plot)


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{_text(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _place(x: float, y: float) -> str:
    return f"{x:.1f},{y:.1f}"


@dataclass(frozen=True)
class Box:
    """The heights between which a line is drawn."""

    top: float = TOP
    bottom: float = HEIGHT - BOTTOM

    def height_of(self, value: float, highest: float) -> float:
        return self.bottom - value / highest * (self.bottom - self.top)


WHOLE = Box()


def _value_axis(marks: Sequence[float], unit: str, box: Box = WHOLE) -> list[str]:
    parts = []
    for mark in marks:
        y = box.height_of(mark, marks[-1])
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="axis" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(mark)}</text>'
        )
    if unit:
        parts.append(f'<text class="axis" x="{LEFT}" y="{box.top - 10}">{_text(unit)}</text>')
    return parts


# --- lines ---


def is_lone(plot: LinePlot) -> bool:
    """Whether the plot has a single time: that makes no line, so it is drawn as bars."""
    return len(plot.times) == 1


def is_in_panels(plot: LinePlot) -> bool:
    """Whether lines would hide each other in one plot, so that each gets a panel and a scale of its own."""
    shown = [line.values for line in plot.series[:SERIES_MAX]]
    highest = max((v for values in shown for v in values if v is not None), default=0.0)
    if len(shown) < 2 or is_lone(plot) or not highest:  # noqa: PLR2004 - one is alone
        return False
    tops = [max((v for v in values if v is not None), default=0.0) for values in shown]
    return min(tops) < SMALL_SHARE * highest or any(
        _apart(one, other) < SAME_SHARE * highest for one, other in combinations(shown, 2)
    )


def _apart(one: Sequence[float | None], other: Sequence[float | None]) -> float:
    """How far two series differ on average, where both have values; infinity if that is nowhere."""
    gaps = [abs(a - b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    return sum(gaps) / len(gaps) if gaps else math.inf


def _lines(plot: LinePlot) -> str:
    if is_lone(plot):
        return _lone(plot)
    shown = plot.series[:SERIES_MAX]
    highest = max((v for line in shown for v in line.values if v is not None), default=0.0)
    names = ", ".join(line.name for line in shown)
    label = f"{plot.title}: {names}; highest {number(highest)} {plot.unit}".strip()
    if is_in_panels(plot):
        return _panels(plot, label)
    marks = ticks(highest)
    xs = _times_across(plot)
    parts = [*_value_axis(marks, plot.unit), *_time_axis(plot, WHOLE.bottom)]
    for index, line in enumerate(shown):
        parts += _line(plot, line, xs, marks[-1], f"s{index}", WHOLE)
    return _svg(HEIGHT, label, parts)


def _lone(plot: LinePlot) -> str:
    at = moment(plot.times[0])
    known = [(line.name, line.values[0]) for line in plot.series if line.values[0] is not None]
    labels, values = [f"{name}, {at}" for name, _ in known], [value for _, value in known]
    return _bars(Bars(plot.title, labels, [value or 0.0 for value in values], plot.unit))


def _panels(plot: LinePlot, label: str) -> str:
    xs, parts = _times_across(plot), list[str]()
    shown = plot.series[:SERIES_MAX]
    for index, line in enumerate(shown):
        box = Box(index * PANEL_HEIGHT + PANEL_TOP, (index + 1) * PANEL_HEIGHT - 4)
        marks = ticks(max((v for v in line.values if v is not None), default=0.0), PANEL_STEPS)
        parts += _value_axis(marks, "", box)
        parts.append(f'<text class="label" x="{LEFT}" y="{box.top - 8}">{_text(line.name)}</text>')
        parts += _line(plot, line, xs, marks[-1], f"s{index}", box)
    end, place = len(shown) * PANEL_HEIGHT, f'x="{WIDTH - RIGHT}" y="{PANEL_TOP - 8}"'
    unit = f'<text class="axis" {place} text-anchor="end">{_text(plot.unit)}</text>'
    return _svg(end + BOTTOM, label, [unit, *parts, *_time_axis(plot, end)])


def _times_across(plot: LinePlot) -> list[float]:
    if not plot.times:
        return []
    first = plot.times[0]
    span = (plot.times[-1] - first) or ALONE
    return [LEFT + (at - first) / span * (WIDTH - RIGHT - LEFT) for at in plot.times]


def _time_axis(plot: LinePlot, bottom: float) -> list[str]:
    if not plot.times:
        return []
    first, last = plot.times[0], plot.times[-1]
    span = (last - first) or ALONE
    parts = []
    for at in time_ticks(first, last) if last > first else [first]:
        x = LEFT + (at - first) / span * (WIDTH - RIGHT - LEFT)
        label = time_label(at, span)
        parts.append(
            f'<text class="axis" x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{label}</text>'
        )
    return parts


def _line(
    plot: LinePlot, line: Series, xs: Sequence[float], highest: float, colour: str, box: Box
) -> list[str]:
    """A series, in pieces: no line is drawn across missing values. If points are few, each has a dot."""
    parts, piece = [], list[str]()
    known = sum(value is not None for value in line.values)
    for at, x, value in zip(plot.times, xs, line.values, strict=True):
        if value is None:
            parts += _piece(piece, colour)
            piece = []
            continue
        y = box.height_of(value, highest)
        piece.append(_place(x, y))
        if known <= MARKED_POINTS_MAX:
            told = _text(f"{line.name}, {moment(at)}: {number(value)} {plot.unit}".strip())
            parts.append(
                f'<circle class="{colour} dot" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{told}</title></circle>'
            )
    return [*_piece(piece, colour), *parts]


def _piece(points: Sequence[str], colour: str) -> list[str]:
    return [f'<polyline class="{colour} line" points="{" ".join(points)}"/>'] if len(points) > 1 else []


# --- bars ---


def _bars(plot: Bars) -> str:
    pairs = list(zip(plot.labels, plot.values, strict=True))[:BARS_MAX]
    highest = max((value for _, value in pairs), default=0.0) or 1.0
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    parts = []
    for index, (label, value) in enumerate(pairs):
        y, length = index * (BAR_HEIGHT + BAR_GAP) + 2, max(value / highest * room, 1.0)
        middle = y + BAR_HEIGHT / 2 + 4
        whole = _text(f"{label}: {number(value)} {plot.unit}".strip())
        parts.append(
            f'<text class="label" x="{LABEL_WIDTH - 8}" y="{middle}" text-anchor="end">{_text(_cut(label))}'
            f"<title>{whole}</title></text>"
            f'<rect class="s0 bar" x="{LABEL_WIDTH}" y="{y}" width="{length:.1f}" height="{BAR_HEIGHT}" '
            'rx="3">'
            f"<title>{whole}</title></rect>"
            f'<text class="axis" x="{LABEL_WIDTH + length + 6:.1f}" y="{middle}">{short(value)}</text>'
        )
    told = "; ".join(f"{label}: {number(value)}" for label, value in pairs)
    return _svg(max(len(pairs), 1) * (BAR_HEIGHT + BAR_GAP) + 4, f"{plot.title}. {told}", parts)


def _cut(label: str) -> str:
    return label if len(label) <= LABEL_CHARACTERS else label[: LABEL_CHARACTERS - 1] + "…"


# --- histograms ---


def _histogram(plot: HistogramPlot) -> str:
    marks = ticks(max(plot.counts, default=0.0))
    step = (WIDTH - RIGHT - LEFT) / max(len(plot.counts), 1)
    parts = _value_axis(marks, "messages")
    every = max(1, -(-len(plot.edges) // 8))
    for index, (count, (low, high)) in enumerate(zip(plot.counts, pairwise(plot.edges), strict=True)):
        x, y = LEFT + index * step, WHOLE.height_of(count, marks[-1])
        told = _text(f"{number(low)} to {number(high)} {plot.unit}: {number(count)}")
        parts.append(
            f'<rect class="s0 bar" x="{x + 1:.1f}" y="{y:.1f}" width="{step - 2:.1f}" '
            f'height="{HEIGHT - BOTTOM - y:.1f}"><title>{told}</title></rect>'
        )
    for index in range(0, len(plot.edges), every):
        parts.append(
            f'<text class="axis" x="{LEFT + index * step:.1f}" y="{HEIGHT - BOTTOM + 18}" '
            f'text-anchor="middle">{short(plot.edges[index])}</text>'
        )
    parts.append(
        f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 2}" text-anchor="end">{_text(plot.unit)}</text>'
    )
    return _svg(HEIGHT, f"{plot.title}, {number(sum(plot.counts))} messages", parts)
