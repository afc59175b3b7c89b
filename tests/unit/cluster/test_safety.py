"""Who waits for an index is called when it is committed, in order, and never after the term."""

from __future__ import annotations

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
    when_all_safe([(one, 1), (other, 1)], lambda: told.append("both"))
    append(one)
    append(other)
    one.commit(1)
    assert told == []
    other.commit(1)
    assert told == ["both"]
