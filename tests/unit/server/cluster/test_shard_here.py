"""Steps with the files of a shard: one after the other, whatever one of them fails with."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from warren.server.cluster.shard_here import Finish, ShardHere
from warren.storage.replica import Replica


class Steps:
    """A shard that has steps to take, and notes what was done."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.done: list[str] = []
        self.here = ShardHere(
            3, cast("Replica", None), lambda _number: True, lambda error: self.failures.append(str(error))
        )

    def do(self, what: str) -> Callable[[], None]:
        return lambda: self.done.append(what)

    def fail(self) -> None:
        raise RuntimeError("it cannot be done")


def test_steps_are_taken_in_order_and_one_at_a_time() -> None:
    steps = Steps()
    waiting: list[Finish] = []
    steps.here.then(waiting.append)
    steps.here.then_at_once(steps.do("second"))
    assert steps.done == []
    waiting[0](steps.do("first"))
    steps.here.then_at_once(steps.do("third"))
    assert steps.done == ["first", "second", "third"]


def test_a_step_that_fails_is_told_and_the_next_one_is_taken() -> None:
    steps = Steps()
    steps.here.then_at_once(steps.fail)
    steps.here.then_at_once(steps.do("after it"))
    assert (steps.failures, steps.done) == (["it cannot be done"], ["after it"])


def test_a_step_that_fails_before_or_after_its_wait_is_over() -> None:
    steps = Steps()
    waiting: list[Finish] = []
    steps.here.then(lambda _finish: steps.fail())
    steps.here.then(waiting.append)
    steps.here.then_at_once(steps.do("after them"))
    waiting[0](steps.fail)
    assert steps.failures == ["it cannot be done"] * 2
    assert steps.done == ["after them"]


def test_a_step_that_has_failed_has_no_last_part() -> None:
    steps = Steps()
    kept: list[Finish] = []

    def fail_late(finish: Finish) -> None:
        kept.append(finish)
        steps.fail()

    steps.here.then(fail_late)
    waiting: list[Finish] = []
    steps.here.then(waiting.append)
    kept[0](steps.do("late"))
    steps.here.then_at_once(steps.do("last"))
    assert steps.done == []
    waiting[0](steps.do("first"))
    assert steps.done == ["first", "last"]
