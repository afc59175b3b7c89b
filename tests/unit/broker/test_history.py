"""Samples of counters and gauges, in scales of a minute, an hour and a day."""

from __future__ import annotations

import sys
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from warren.broker.history import DAY, HOUR, LARGE, MINUTE, SCALES, SLOTS, History, Timeline, scale_for

A_MINUTE, AN_HOUR, A_DAY = 12, 720, 17_280  # in ticks


def history_of(counter: list[int]) -> History:
    """The history of a counter that goes up by these numbers, one each tick, from tick 1 on."""
    history, total = History(1, 0, 0), 0
    for tick, more in enumerate(counter, start=1):
        total += more
        history.note((total,), tick)
    history.catch_up(len(counter))
    return history


def test_rings_are_a_minute_an_hour_and_a_day() -> None:
    assert [scale.seconds for scale in SCALES] == [60, 3_600, 86_400]
    assert [scale.slot_seconds for scale in SCALES] == [5, 60, 1_800]
    assert [scale_for(age) for age in (5, 60, 61, 3_600, 3_601, 10**9)] == [
        MINUTE,
        MINUTE,
        HOUR,
        HOUR,
        DAY,
        DAY,
    ]


def test_change_of_a_counter_is_what_the_last_tick_added() -> None:
    assert history_of([7, 20]).change(0) == 20
    assert history_of([7, 20, 0]).change(0) == 0


def test_change_of_a_gauge_may_be_negative() -> None:
    history = History(0, 1, 0)
    history.note((9,), 1)
    history.note((4,), 2)
    assert history.change(0) == -5
    history.catch_up(3)
    assert history.change(0) == 0


def test_samples_of_a_counter_are_totals_newest_first() -> None:
    history = history_of([1, 2, 3, 4])
    assert history.samples(0, MINUTE, 1, 5) == [10, 6, 3, 1, 0]
    assert history.samples(0, MINUTE, 2, 3) == [10, 3, 0]


def test_samples_of_a_gauge_stay_while_nothing_changes() -> None:
    history = History(0, 1, 0)
    history.note((5,), 2)
    history.note((8,), 5)
    history.catch_up(6)
    assert history.samples(0, MINUTE, 1, 7) == [8, 8, 5, 5, 5, 0, 0]


def test_a_number_that_was_never_more_than_0_takes_no_memory() -> None:
    history = History(2, 0, 0)
    history.note((3, 0), 1)
    assert history.columns[1] is None
    assert history.samples(1, HOUR, 1, 3) == [0, 0, 0]
    assert history.change(1) == 0


def test_memory_of_a_number_is_bounded() -> None:
    history = history_of([1] * AN_HOUR)
    column = history.columns[0]
    assert column is not None
    assert len(column) == SLOTS
    assert sys.getsizeof(column) < 600


def test_an_hour_is_kept_by_minutes() -> None:
    history = history_of([1] * (2 * AN_HOUR))
    samples = history.samples(0, HOUR, 1, 61)
    assert samples[0] == 2 * AN_HOUR
    assert {before - after for before, after in pairwise(samples[1:])} == {A_MINUTE}


def test_a_long_silence_leaves_no_old_increments() -> None:
    history = history_of([100])
    history.catch_up(1 + 2 * A_DAY)
    for scale in SCALES:
        assert set(history.samples(0, scale, 1, scale.slots)) == {100}


def test_a_slot_that_cannot_hold_its_number_holds_the_largest() -> None:
    small, large = History(1, 0, 0), History(1, 0, 0, LARGE)
    for history in (small, large):
        history.note((2**40,), 1)
    assert (small.change(0), large.change(0)) == (2**32 - 1, 2**40)


@given(st.lists(st.integers(0, 5), max_size=200), st.sampled_from([MINUTE, HOUR]))
def test_samples_are_the_totals_at_the_ends_of_slots(increments: list[int], scale: object) -> None:
    assert scale in SCALES
    scale = MINUTE if scale is MINUTE else HOUR
    history = history_of(increments)
    totals = [sum(increments[:tick]) for tick in range(len(increments) + 1)]
    now = len(increments)
    ends = [now, *(end - 1 for end in range(now // scale.ticks * scale.ticks, 0, -scale.ticks))]
    expected = [totals[end] for end in ends][: scale.slots]
    assert history.samples(0, scale, 1, scale.slots)[: len(expected)] == expected


def test_timeline_knows_when_ticks_were() -> None:
    timeline = Timeline(tick=100, time_ms=1_000_000)
    assert timeline.time_of(98) == 990_000


def test_what_is_forgotten_never_changed() -> None:
    history = History(1, 1, 0)
    for tick, length in enumerate((3, 9, 5), start=1):
        history.note((10 * tick, length), tick)
    history.forget()
    assert [history.samples(index, MINUTE, 1, 4) for index in (0, 1)] == [[30] * 4, [5] * 4]
    assert [history.change(index) for index in (0, 1)] == [0, 0]
    history.note((34, 6), 4)
    assert [history.samples(index, MINUTE, 1, 3) for index in (0, 1)] == [[34, 30, 30], [6, 5, 5]]
