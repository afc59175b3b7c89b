"""Results as a page: well formed, nothing from elsewhere, and no name can become markup."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from warren.pipeline.report.axis import short, ticks, time_ticks
from warren.pipeline.report.html import as_html
from warren.pipeline.report.result import Bars, HistogramPlot, JobResult, LinePlot, Plot, Series, Table
from warren.pipeline.report.svg import BARS_MAX, as_svg, is_in_panels

EVIL = "<script>alert('x')</script>&\""
TIMES = [datetime(2026, 3, 1, tzinfo=UTC) + timedelta(minutes=n) for n in range(4)]
PLOTS: list[Plot] = [
    LinePlot(EVIL, TIMES, [Series(EVIL, [1, None, 3, 4]), Series("b", [0, 0, 0, 0])], EVIL),
    LinePlot("One moment", TIMES[:1], [Series("a", [5.0])]),
    LinePlot("Nothing", [], []),
    Bars(EVIL, [EVIL, "b"], [3, 0], EVIL),
    Bars("Nothing", [], []),
    HistogramPlot(EVIL, [0, 1, 2], [5, 0], EVIL),
    HistogramPlot("Nothing", [0, 1], [0]),
]


class Outline(HTMLParser):
    """Collects a page's elements and what it fetches from elsewhere; checks that each element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.fetched: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page() -> str:
    table = Table(EVIL, (EVIL, "n"), [(EVIL, 3), (None, None)], note=EVIL, rows_left_out=2)
    result = JobResult(title=EVIL, numbers={EVIL: EVIL}, tables=[table], plots=PLOTS, notes=[EVIL])
    return as_html([result, JobResult(title="Second")], title=EVIL, made="today")


def test_page_is_well_formed_and_needs_nothing_from_elsewhere() -> None:
    outline = Outline(page())
    assert outline.open == []
    assert outline.fetched == ["#r0", "#r1"]
    assert outline.seen.count("svg") == len(PLOTS)
    assert "url(" not in page()


def test_no_name_becomes_markup() -> None:
    assert "script" not in Outline(page()).seen
    assert "&lt;script&gt;" in page()


def test_page_can_be_read_without_seeing_it() -> None:
    text = page()
    assert '<html lang="en">' in text
    assert text.count('role="img" aria-label="') == len(PLOTS)
    assert '<th scope="col"' in text
    assert "<caption>" in text


@pytest.mark.parametrize("plot", PLOTS)
def test_plot_is_well_formed_whatever_it_is_of(plot: Plot) -> None:
    root = ET.fromstring(as_svg(plot))  # noqa: S314 - our own
    assert root.tag == "svg"
    assert "nan" not in as_svg(plot)


def test_line_is_not_drawn_across_what_is_not_known() -> None:
    root = ET.fromstring(as_svg(LinePlot("t", TIMES, [Series("a", [1, None, 3, 4])])))  # noqa: S314
    assert [len(line.get("points", "").split()) for line in root.iter("polyline")] == [2]
    assert len(list(root.iter("circle"))) == 3


def test_lone_moment_is_bars_and_no_dot_in_an_empty_field() -> None:
    svg = as_svg(
        LinePlot("x", TIMES[:1], [Series("a", [5.0]), Series("b", [10.0]), Series("c", [None])], "m")
    )
    assert svg.count("<rect") == 2
    assert "<circle" not in svg
    assert "a, 2026-03-01 00:00:00" in svg


@pytest.mark.parametrize(
    ("one", "other", "panels"),
    [
        ([1000, 900, 950, 980], [3, 4, 3, 5], True),  # the second would be a flat line at the bottom
        ([100, 90, 95, 98], [100, 91, 95, 98], True),  # the lines would hide each other
        ([100, 90, 95, 98], [40, 41, 45, 48], False),
        ([100, 90, None, None], [None, None, 45, 48], False),
        ([0, 0, 0, 0], [0, 0, 0, 0], False),
    ],
)
def test_series_that_could_not_be_told_apart_have_a_scale_each(
    one: list[float | None], other: list[float | None], *, panels: bool
) -> None:
    plot = LinePlot("x", TIMES, [Series("one", one), Series("other", other)], "m")
    page = as_html([JobResult(title="t", plots=[plot])], title="t", made="today")
    assert is_in_panels(plot) is panels
    assert ('class="legend"' in page) is not panels
    if panels:  # each line begins at the bottom of its own panel
        heights = [
            [float(point.split(",")[1]) for point in line.split(" ")]
            for line in re.findall(r'points="([^"]+)"', page)
        ]
        assert max(heights[0]) < min(heights[1])


def test_bars_are_as_long_as_their_values_and_not_too_many() -> None:
    count = BARS_MAX + 5
    root = ET.fromstring(as_svg(Bars("t", [str(n) for n in range(count)], [*range(count, 0, -1)])))  # noqa: S314
    lengths = [float(bar.get("width", "")) for bar in root.iter("rect")]
    assert len(lengths) == BARS_MAX
    assert lengths[0] / lengths[5] == pytest.approx(count / (count - 5), rel=0.01)


@pytest.mark.parametrize(
    ("highest", "wanted"),
    [(0, [0, 1]), (4, [0, 1, 2, 3, 4]), (97, [0, 20, 40, 60, 80, 100]), (0.3, [0, 0.1, 0.2, 0.3])],
)
def test_ticks_are_round_and_cover_the_highest(highest: float, wanted: list[float]) -> None:
    assert ticks(highest) == pytest.approx(wanted)


def test_time_ticks_are_round_moments() -> None:
    found = time_ticks(TIMES[0] + timedelta(seconds=10), TIMES[3])
    assert [moment.second for moment in found] == [0, 0, 0, 0, 0][: len(found)] or found[0].second % 30 == 0
    assert TIMES[0] < found[0] <= found[-1] <= TIMES[3]


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (9999, "9,999"), (12_500, "12.5k"), (3_000_000, "3M")])
def test_long_numbers_are_short_on_an_axis(value: float, text: str) -> None:
    assert short(value) == text
