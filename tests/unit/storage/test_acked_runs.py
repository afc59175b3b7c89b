"""What an ack file says is done with, against the same by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.storage.acked_runs import acked_runs
from warren.storage.format import ACKED, ACKS_MAGIC, encode_header, encode_mark

BASE = 17
PLACES = 40

marks = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.sampled_from([1, 7, ACKED])), max_size=20
)


def ack_file(found: list[tuple[int, int, int]]) -> bytes:
    return encode_header(ACKS_MAGIC, BASE) + b"".join(encode_mark(BASE, *mark) for mark in found)


@given(marks)
def test_runs_are_what_the_marks_cover(found: list[tuple[int, int, int]]) -> None:
    done = {p for first, count, fate in found if fate == ACKED for p in range(first, first + count)}
    runs = acked_runs(ack_file(found), BASE, PLACES)
    covered = [p for first, count in runs for p in range(first, first + count)]
    assert covered == sorted(p for p in done if p < PLACES)
    assert all(one[0] + one[1] < other[0] for one, other in pairwise(runs))


@pytest.mark.parametrize("size", [0, 1, 32, 40, 47])
def test_file_that_ends_too_early_says_nothing(size: int) -> None:
    assert acked_runs(ack_file([(0, 5, ACKED)])[:size], BASE, PLACES) == []


def test_mark_that_is_not_sound_does_not_count() -> None:
    data = bytearray(ack_file([(0, 1, ACKED), (5, 1, ACKED)]))
    data[36] ^= 1
    assert acked_runs(bytes(data), BASE, PLACES) == [[5, 1]]


def test_of_no_positions_none_is_done_with() -> None:
    assert acked_runs(ack_file([(0, 5, ACKED)]), BASE, 0) == []
