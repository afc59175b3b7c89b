from __future__ import annotations

import pytest

from warren.perf.scanner import Histogram


def filled(*values: int) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@pytest.mark.parametrize("ns", [0, 1, 127, 128, 129, 255, 256, 1_000, 123_456_789, 2**42 - 1])
def test_a_value_comes_back_within_one_percent(ns: int) -> None:
    histogram = filled(ns, 2**42 - 1)
    assert ns <= histogram.percentile(0.5) <= ns * 1.01


def test_percentiles_split_the_values() -> None:
    histogram = filled(*range(1, 101))
    assert [histogram.percentile(share) for share in (0.01, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]


def test_no_percentile_exceeds_the_largest_value() -> None:
    assert filled(1_000_001).percentile(0.99) == 1_000_001


def test_nothing_recorded_gives_zero() -> None:
    assert Histogram().percentile(0.5) == 0


def test_values_beyond_an_hour_are_left_out() -> None:
    histogram = filled(2**42, 2**64 - 1)
    assert (histogram.count, histogram.max_ns) == (0, 0)


def test_clear_forgets_all() -> None:
    histogram = filled(10, 20)
    histogram.clear()
    assert (histogram.count, histogram.max_ns, histogram.percentile(0.5)) == (0, 0, 0)
