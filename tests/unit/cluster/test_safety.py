"""Who waits for an index is called when it is committed, in order, and never after the term."""

from __future__ import annotations

from collections.abc import Callable

from warren.broker.safety import Safety, when_all_safe
from warren.cluster.safety import ShardSafety


def append(safety: ShardSafety) -> int:
    index = safety.gathering
    safety.appended(index)
    return index


def test_it_is_a_safety_as_the_model_knows_it() -> None:
    safety: Safety = ShardSafety()
    assert (safety.gathering, safety.behind) == (1, False)


def test_callbacks_come_with_their_index_and_in_order() -> None:
    safety = ShardSafety()
    told: list[int] = []
    safety.when_safe(told.append)
    safety.when_safe(lambda number: told.append(-number))
    append(safety)
    safety.when_safe(told.append)
    append(safety)
    safety.commit(0)
    assert told == []
    safety.commit(1)
    assert told == [1, -1]
    safety.commit(2)
    assert told == [1, -1, 2]


def test_several_batches_may_be_on_their_way() -> None:
    safety = ShardSafety()
    told: list[int] = []
    for _ in range(3):
        safety.when_safe(told.append)
        append(safety)
    safety.commit(3)
    assert told == [1, 2, 3]


def test_a_batch_is_under_way_until_it_is_committed() -> None:
    safety = ShardSafety()
    told = [safety.is_under_way]
    for _ in range(2):
        append(safety)
        told.append(safety.is_under_way)
    for index in (1, 2):
        safety.commit(index)
        told.append(safety.is_under_way)
    assert told == [False, True, True, True, False]


def test_a_callback_that_waits_again_waits_for_the_next_batch() -> None:
    safety = ShardSafety()
    told: list[int] = []

    def again(number: int) -> None:
        told.append(number)
        if number == 1:
            safety.when_safe(again)

    safety.when_safe(again)
    append(safety)
    safety.commit(1)
    assert told == [1]
    assert safety.wants_batch
    append(safety)
    safety.commit(2)
    assert told == [1, 2]


def test_a_batch_is_wanted_when_somebody_waits_for_it() -> None:
    safety = ShardSafety()
    assert not safety.wants_batch
    safety.when_safe(lambda _: None)
    assert safety.wants_batch
    append(safety)
    assert not safety.wants_batch


def test_nobody_is_called_after_the_term() -> None:
    safety = ShardSafety()
    told: list[int] = []
    safety.when_safe(told.append)
    append(safety)
    assert safety.end() == 1
    safety.when_safe(told.append)
    safety.commit(1)
    assert told == []
    assert safety.end() == 0


def test_a_callback_that_ends_the_term_is_the_last_one() -> None:
    safety = ShardSafety()
    told: list[int] = []

    def end(number: int) -> None:
        told.append(number)
        safety.end()

    safety.when_safe(end)
    safety.when_safe(told.append)
    append(safety)
    safety.commit(1)
    assert told == [1]


def test_it_can_be_waited_for_together_with_others() -> None:
    one, other = ShardSafety(), ShardSafety()
    told: list[str] = []
    when_all_safe([(one, False), (other, False)], lambda: told.append("both"), told.clear)
    append(one)
    append(other)
    one.commit(1)
    assert told == []
    other.commit(1)
    assert told == ["both"]


def test_publishers_that_had_to_wait_go_on_when_their_batch_is_committed() -> None:
    safety = ShardSafety()
    told: list[str] = []
    safety.owes = True
    assert safety.behind
    safety.when_ready(lambda: told.append("first"))
    assert safety.wants_batch
    append(safety)
    safety.when_ready(lambda: told.append("second"))
    append(safety)
    safety.commit(1)
    assert told == ["first"]
    safety.commit(2)
    assert told == ["first", "second"]


def test_publishers_that_are_held_wait_until_the_term_goes_on_or_ends() -> None:
    safety = ShardSafety()
    told: list[str] = []
    safety.hold(is_held=True)
    assert safety.behind
    safety.when_ready(lambda: told.append("held"))
    append(safety)
    safety.commit(1)
    assert told == []
    safety.hold(is_held=False)
    assert told == ["held"]
    assert not safety.behind

    safety.hold(is_held=True)
    safety.when_ready(lambda: told.append("until the end"))
    safety.end()
    assert told == ["held", "until the end"]
    assert not safety.behind, "whoever publishes now finds the next leader"


def test_those_who_wait_are_told_of_the_end_of_the_term_in_a_turn_to_come() -> None:
    later: list[Callable[[], None]] = []
    safety = ShardSafety(later.append)
    told: list[str] = []
    safety.when_safe(lambda _: told.append("safe"), lambda: told.append("ended"))
    append(safety)
    assert safety.end() == 1
    safety.when_safe(lambda _: told.append("safe"), lambda: told.append("too late"))
    assert told == []
    for tell in later:
        tell()
    assert told == ["ended", "too late"]


def test_who_waits_for_several_is_told_once_that_one_has_ended() -> None:
    one, other, third = ShardSafety(), ShardSafety(), ShardSafety()
    told: list[str] = []
    points = [(one, False), (other, False), (third, False)]
    when_all_safe(points, lambda: told.append("safe"), lambda: told.append("ended"))
    append(third)
    third.commit(1)
    one.end()
    other.end()
    assert told == ["ended"]
