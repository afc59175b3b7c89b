"""Which turns of the event loop were slow, and what the log says of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.fakes import FakeWorld
from warren.amqp.budget import Budget
from warren.broker.turns import WORK_A_TURN_MAX, Turns
from warren.server.watchdog import SILENCE_SECONDS, SLOW_SECONDS, UNKNOWN, Watchdog, describe


class Lines:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})

    info = error = warning


class Hands:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def dog(lines: Lines, hands: Hands) -> Watchdog:
    return Watchdog(lines, hands)


def taking(hands: Hands, seconds: float) -> Any:
    def turn() -> None:
        hands.time += seconds

    return turn


def test_quick_turn_is_not_told(dog: Watchdog, lines: Lines, hands: Hands) -> None:
    dog.run(taking(hands, SLOW_SECONDS / 2))
    assert (dog.slow_turns, lines.lines) == (0, [])


def test_slow_turn_is_counted_and_told_with_what_it_did(dog: Watchdog, lines: Lines, hands: Hands) -> None:
    dog.run(taking(hands, 0.25))
    assert dog.slow_turns == 1
    assert [(line["event"], line["ms"]) for line in lines.lines] == [("slow turn", 250)]
    assert "taking" in lines.lines[0]["what"]


def test_slow_turn_that_fails_is_told_as_well(dog: Watchdog, lines: Lines, hands: Hands) -> None:
    def fails() -> None:
        hands.time += 1
        raise ValueError

    with pytest.raises(ValueError):
        dog.run(fails)
    assert len(lines.lines) == 1


def test_many_slow_turns_make_few_lines_and_the_longest_is_told(
    dog: Watchdog, lines: Lines, hands: Hands
) -> None:
    for seconds in (0.2, 0.3, 0.4, 0.2):
        dog.run(taking(hands, seconds))
    hands.time += SILENCE_SECONDS
    dog.beat(hands.time)
    assert dog.slow_turns == 4
    assert [(line["ms"], line["others"]) for line in lines.lines] == [(200, 0), (400, 2)]


def test_beat_that_comes_late_tells_of_a_turn_that_nobody_measured(
    dog: Watchdog, lines: Lines, hands: Hands
) -> None:
    due = hands.time + 1
    hands.time = due + 0.5
    dog.beat(due)
    assert [line["what"] for line in lines.lines] == [UNKNOWN]


def test_beat_that_is_late_for_a_known_turn_tells_nothing(dog: Watchdog, lines: Lines, hands: Hands) -> None:
    due = hands.time + 0.1
    dog.run(taking(hands, 0.5))
    dog.beat(due)
    assert dog.slow_turns == 1


def test_slow_garbage_collection_is_told_once(dog: Watchdog, lines: Lines, hands: Hands) -> None:
    def turn() -> None:
        dog._collects("start", {"generation": 2})
        hands.time += 0.5
        dog._collects("stop", {"generation": 2})

    dog.run(turn)
    assert [line["what"] for line in lines.lines] == ["garbage collection of generation 2"]


def test_job_that_stood_in_line_is_named(hands: Hands) -> None:
    world = FakeWorld()
    turns = Turns(world, Budget(), lambda: None, world.report)
    turns.later(taking(hands, 1))
    world.run()
    assert "taking" in describe(turns._turn)


def test_job_that_is_spread_over_turns_is_named_once(hands: Hands) -> None:
    """Such a job is a method of the turns themselves, whose jobs must not be named again for it."""
    world = FakeWorld()
    turns = Turns(world, Budget(), lambda: None, world.report)

    def removing_bindings() -> Iterator[int]:
        for _ in range(3):
            yield WORK_A_TURN_MAX

    turns.spread(removing_bindings())
    world.turn()
    described = describe(turns._turn)
    assert described.count("removing_bindings") == 1, described


def test_a_compiled_generator_that_has_ended_has_no_name_but_is_described() -> None:
    class Ended:
        __qualname__ = "Ended"

    ended = Ended()
    ended.__qualname__ = None  # type: ignore[assignment]
    assert "Ended" in describe(partial(print, ended))
