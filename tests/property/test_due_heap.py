"""A heap of what is due gives it back by time and position, whatever was pushed and forgotten."""

from __future__ import annotations

import heapq
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from warren.broker.due_heap import DueHeap
from warren.broker.entry import Entry

NEVER = 2**64 - 1
times = st.integers(0, 2**63) | st.integers(0, 20)
steps = st.lists(st.one_of(st.none(), times, st.just("keep")), max_size=200)


@given(steps)
def test_due_heap_against_heapq(steps: list[int | str | None]) -> None:
    """A time is pushed with the next position, None pops, "keep" forgets all below a position, and some."""
    heap = DueHeap()
    model: list[tuple[int, int, int]] = []
    position = 0
    for step in steps:
        if isinstance(step, int):
            position += 1
            heap.push(step, position, position * 3)
            heapq.heappush(model, (step, position, position * 3))
        elif step == "keep":
            least = position // 2
            known = dict.fromkeys(range(0, position, 3), cast("Entry", None))
            heap.keep(least, known)
            model = [item for item in model if item[1] >= least and item[1] not in known]
            heapq.heapify(model)
        elif model:
            _, expected, location = heapq.heappop(model)
            heap.pop()
            assert (heap.position, heap.location) == (expected, location)
        assert heap.count == len(model)
        assert heap.next_due() == (model[0][0] if model else NEVER)


def test_cleared_heap_is_empty_and_can_be_used_again() -> None:
    heap = DueHeap()
    for position in range(1, 1_000):
        heap.push(1_000 - position, position, 0)
    heap.clear()
    assert (heap.count, heap.next_due()) == (0, NEVER)
    heap.push(5, 1, 2)
    heap.pop()
    assert (heap.position, heap.location) == (1, 2)
