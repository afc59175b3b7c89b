"""Work that is too much for one turn of the event loop goes on in the next ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fakes import FakeWorld
from warren.amqp.budget import Budget
from warren.broker.turns import LOOK_AROUND_WORK, SHARE_MAX, SHARE_MIN, WORK_A_TURN_MAX, Turns


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def turns(world: FakeWorld) -> Turns:
    return Turns(world, Budget(), lambda: None, world.report)


def steps(done: list[int], count: int, cost: int) -> Iterator[int]:
    for number in range(count):
        done.append(number)
        yield cost


def test_little_is_done_at_once(turns: Turns) -> None:
    done: list[int] = []
    ends: list[str] = []
    turns.spread(steps(done, 10, 1), lambda: ends.append("end"))
    assert (len(done), ends) == (10, ["end"])


def test_little_is_done_at_once_even_when_the_turn_is_used_up(turns: Turns) -> None:
    turns.budget.left = -5
    done: list[int] = []
    turns.spread(steps(done, SHARE_MIN // 2, 1))
    assert len(done) == SHARE_MIN // 2


def test_much_is_spread_over_turns_and_then_comes_last(turns: Turns, world: FakeWorld) -> None:
    done: list[int] = []
    ends: list[int] = []
    turns.spread(steps(done, 100, WORK_A_TURN_MAX // 4), lambda: ends.append(len(done)))
    assert len(done) == 4
    before = 4
    while not ends:
        world.turn()
        assert len(done) - before <= 4, "no turn does more than its budget"
        before = len(done)
    assert ends == [100]


def test_those_in_line_take_turns(turns: Turns, world: FakeWorld) -> None:
    turns.budget.left = 0
    first: list[int] = []
    second: list[int] = []
    turns.spread(steps(first, 1_000, SHARE_MAX))
    turns.budget.left = 0
    turns.spread(steps(second, 1_000, SHARE_MAX))
    for _ in range(100):
        world.turn()
        assert abs(len(first) - len(second)) <= 1


def test_a_job_that_fails_keeps_nobody_from_their_turn(turns: Turns, world: FakeWorld) -> None:
    calls: list[str] = []

    def fail() -> None:
        raise ValueError("mine")

    turns.later(fail)
    turns.later(lambda: calls.append("second"))
    world.run()
    assert (calls, [str(error) for error in world.errors]) == (["second"], ["mine"])


def test_alarms_are_looked_at_while_there_is_much_to_do(turns: Turns, world: FakeWorld) -> None:
    looks: list[int] = []
    turns.look_around = lambda: looks.append(turns.budget.left)
    units = 20 * LOOK_AROUND_WORK
    turns.spread(steps([], units // 100, 100))
    world.run()
    assert 10 <= len(looks) <= 20


def test_many_small_shares_in_one_turn_count_as_well(turns: Turns, world: FakeWorld) -> None:
    looks: list[int] = []
    turns.look_around = lambda: looks.append(turns.budget.left)
    for _ in range(3 * LOOK_AROUND_WORK // SHARE_MIN):
        turns.begin_share()
        turns.budget.left = 0
        turns.end_share()
    world.run()
    assert len(looks) == 1
