from __future__ import annotations

import io
import json

import pytest

from warren.perf.results import ChurnResult, ConnectionsResult, Counts, Latency, LoadResult, ThroughputResult
from warren.perf.scanner import Histogram
from warren.perf.screen import Screen

COUNTS = Counts(published=4000, confirmed=1000, nacked=2, consumed=3000)
THROUGHPUT = ThroughputResult(
    seconds=2.0, total=COUNTS, latency=Latency(p50=1, p95=2, p99=3, max=4), blocked=1
)
RESULTS: list[LoadResult] = [
    THROUGHPUT,
    ConnectionsResult(seconds=2.0, wanted=10, opened=8, failed=2, lost=0, error="refused"),
    ChurnResult(of="queues", seconds=2.0, operations=8),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("result", RESULTS)
def test_json_is_one_object_and_nothing_else_even_on_a_terminal(result: LoadResult) -> None:
    out = Terminal()
    screen = Screen(out, as_json=True)
    screen.show("live")
    screen.result(result)
    assert json.loads(out.getvalue()) == result.as_json()
    assert out.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("publish_per_s", 2000),
        ("confirm_per_s", 500),
        ("consume_per_s", 1500),
        ("latency_us", {"p50": 1, "p95": 2, "p99": 3, "max": 4}),
    ],
)
def test_rates_are_per_second(key: str, value: object) -> None:
    assert THROUGHPUT.as_json()[key] == value


def test_the_live_line_is_rewritten_in_place_on_a_terminal() -> None:
    out = Terminal()
    screen = Screen(out, as_json=False)
    screen.show("one")
    screen.show("two")
    assert "\n" not in out.getvalue()
    assert out.getvalue().count("\r") == 2


def test_there_is_no_live_line_elsewhere() -> None:
    out = io.StringIO()
    Screen(out, as_json=False).show("one")
    assert out.getvalue() == ""


def test_the_table_has_a_line_for_each_row() -> None:
    out = io.StringIO()
    Screen(out, as_json=False).result(THROUGHPUT)
    assert out.getvalue().splitlines() == [
        "published               2,000/s   (4,000 in all)",
        "confirmed               500/s   (1,000 in all)",
        "consumed                1,500/s   (3,000 in all)",
        "refused (nack)          1/s   (2 in all)",
        "latency p50             1 µs",
        "latency p95             2 µs",
        "latency p99             3 µs",
        "latency max             4 µs",
        "blocked by the broker   1 times",
        "measured for            2.0 s",
    ]


def test_a_run_ended_at_once_has_rates_of_zero() -> None:
    assert ThroughputResult(seconds=0, total=COUNTS, latency=None, blocked=0).as_json()["publish_per_s"] == 0


def test_without_samples_there_is_no_latency() -> None:
    assert Latency.of(Histogram()) is None


def test_a_difference_of_counts_is_taken_stage_by_stage() -> None:
    later = Counts(published=4100, confirmed=1010, nacked=3, consumed=3000)
    assert later.since(COUNTS) == Counts(published=100, confirmed=10, nacked=1, consumed=0)
