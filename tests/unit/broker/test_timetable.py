"""The timetable, on a clock that the test sets."""

from __future__ import annotations

import pytest

from tests.support.fakes import FakeWorld
from warren.amqp.budget import Budget
from warren.broker.clock import Clock
from warren.broker.timetable import DROPPED_MAX, LOOK_SECONDS_MAX, Timetable
from warren.broker.turns import Turns

DAY_MS = 24 * 3600 * 1000


class Scene:
    def __init__(self) -> None:
        self.world = FakeWorld()
        self.clock = Clock(self.world.time_ms)
        self.turns = 0
        self.kept: list[str] = []
        turns = Turns(self.world, Budget(), self.turn, self.world.report)
        self.timetable = Timetable(self.world, self.clock, turns, self.world.report)
        self.start_ms = self.clock.time_ms

    def turn(self) -> None:
        self.turns += 1

    def at(self, ms: int, name: str) -> None:
        self.timetable.at(self.start_ms + ms, lambda: self.kept.append(name))

    def pass_ms(self, ms: int) -> None:
        self.world.advance(ms / 1000)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_due_happens_in_order_and_not_before(scene: Scene) -> None:
    scene.at(30, "third")
    scene.at(10, "first")
    scene.at(20, "second")
    scene.pass_ms(9)
    assert scene.kept == []
    scene.pass_ms(11)
    assert scene.kept == ["first", "second"]
    scene.pass_ms(10)
    assert scene.kept == ["first", "second", "third"]


def test_what_is_due_at_the_same_time_happens_in_one_turn_in_order_of_asking(scene: Scene) -> None:
    for name in ("a", "b", "c"):
        scene.at(5, name)
    scene.pass_ms(5)
    assert (scene.kept, scene.turns) == (["a", "b", "c"], 1)


def test_what_was_due_long_ago_happens_at_once(scene: Scene) -> None:
    scene.at(-5000, "late")
    scene.pass_ms(0)
    assert scene.kept == ["late"]


def test_what_is_due_after_years_happens_then(scene: Scene) -> None:
    years_ms = 5 * 365 * DAY_MS
    scene.at(years_ms, "far")
    scene.at(1, "near")
    scene.world.ahead_ms = years_ms - DAY_MS
    scene.pass_ms(DAY_MS - 2)
    assert scene.kept == ["near"]
    scene.pass_ms(4)
    assert scene.kept == ["near", "far"]


def test_over_a_week_of_appointments_that_supersede_each_other_one_timer_runs(scene: Scene) -> None:
    scene.at(8 * DAY_MS, "far")
    timers = set()
    for minute in range(7 * 24 * 60):
        now_ms = scene.world.time_ms() - scene.start_ms
        dropped = scene.timetable.at(scene.start_ms + now_ms + 45_000, scene.turn)
        scene.at(now_ms + 30_000, str(minute))
        scene.timetable.drop(dropped)
        timers.add(len(scene.world.later))
        scene.pass_ms(60_000)
        timers.add(len(scene.world.later))
    assert timers == {1}
    assert len(scene.kept) == 7 * 24 * 60


def test_without_appointments_no_timer_runs(scene: Scene) -> None:
    scene.at(5, "only")
    scene.pass_ms(5)
    assert (scene.kept, scene.world.later) == (["only"], [])


def test_after_a_jump_of_the_clock_what_is_due_happens_at_the_next_look(scene: Scene) -> None:
    """The machine was suspended: the timers stood still, but the time of day went on."""
    scene.at(3600_000, "due while it slept")
    scene.at(100 * DAY_MS, "far")
    scene.pass_ms(1000)
    scene.world.ahead_ms = DAY_MS
    scene.world.advance(LOOK_SECONDS_MAX)
    assert scene.kept == ["due while it slept"]


def test_what_was_dropped_does_not_happen(scene: Scene) -> None:
    dropped = scene.timetable.at(scene.start_ms + 5, lambda: scene.kept.append("dropped"))
    scene.at(6, "kept")
    scene.timetable.drop(dropped)
    scene.timetable.drop(dropped)
    scene.timetable.drop(None)
    scene.pass_ms(10)
    assert scene.kept == ["kept"]


def test_what_was_dropped_does_not_stay_in_memory(scene: Scene) -> None:
    for _ in range(10 * DROPPED_MAX):
        scene.timetable.drop(scene.timetable.at(scene.start_ms + 10**9, scene.turn))
    assert len(scene.timetable.heap) <= 2 * DROPPED_MAX + 2


def test_one_that_fails_is_reported_and_keeps_nobody_from_theirs(scene: Scene) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    scene.timetable.at(scene.start_ms + 1, fail)
    scene.at(1, "next")
    scene.pass_ms(1)
    assert [str(error) for error in scene.world.errors] == ["no"]
    assert (scene.kept, scene.turns) == (["next"], 1)


def test_what_asks_again_while_it_happens_is_kept_too(scene: Scene) -> None:
    scene.timetable.at(scene.start_ms + 1, lambda: scene.at(2, "again"))
    scene.pass_ms(5)
    assert scene.kept == ["again"]


# --- the clock ---

STEP_BACK_MS_MAX = 10_000


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ([100, 200], 200),
        ([100_000, 99_999], 100_000),
        ([100_000, 100_000 - STEP_BACK_MS_MAX], 100_000),
        ([100_000, 99_999 - STEP_BACK_MS_MAX], 99_999 - STEP_BACK_MS_MAX),
    ],
)
def test_clock_waits_for_a_short_step_back_and_follows_a_long_one(read: list[int], expected: int) -> None:
    times = iter(read)
    clock = Clock(lambda: next(times))
    assert clock.refresh() == expected
