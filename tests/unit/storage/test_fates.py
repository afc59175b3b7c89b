"""What the marks of an ack file come to, against the same by hand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.log_files import acks, damaged, done
from warren.storage import ack_file
from warren.storage.ack_file import read_fates
from warren.storage.fates import Fates
from warren.storage.format import ACKED, HEADER_BYTES, MARK_BYTES, encode_mark

BASE = 17
PLACES = 40

Marks = list[tuple[int, int, int]]
deliveries = st.sampled_from([1, 7, 65_534, 65_535, 65_536, 50_000_000, ACKED - 1, ACKED])
marks = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), deliveries), max_size=20)


def encoded(found: Marks) -> bytes:
    return b"".join(encode_mark(BASE, *mark) for mark in found)


def fates_of(data: bytes) -> Fates:
    fates = Fates(BASE)
    fates.add(data)
    return fates


def by_hand(found: Marks) -> dict[int, int]:
    fates: dict[int, int] = {}
    for first, count, fate in found:
        for place in range(first, first + count):
            fates[place] = max(fates.get(place, 0), fate)
    return fates


def told(fates: Fates) -> dict[int, int]:
    return {place: fate for place in range(200) if (fate := fates.of(BASE + place))}


def sound(data: bytes) -> tuple[dict[int, int], int]:
    """What an ack file comes to, and how many marks are bad."""
    fates = Fates(BASE)
    bad = fates.add(data[HEADER_BYTES:])
    return told(fates), bad


@given(marks)
def test_highest_number_holds_and_done_with_is_final(found: Marks) -> None:
    fates = fates_of(encoded(found))
    assert told(fates) == by_hand(found)
    assert fates.places == max((first + count for first, count, _ in found), default=0)


@given(marks)
def test_what_is_written_anew_says_the_same_in_fewer_marks(found: Marks) -> None:
    anew = fates_of(encoded(found)).encode()
    assert told(fates_of(anew)) == by_hand(found)
    runs = [place for place, fate in by_hand(found).items() if by_hand(found).get(place - 1) != fate]
    assert len(anew) == 16 * len(runs)


@given(marks)
def test_runs_are_what_the_marks_cover(found: Marks) -> None:
    covered = {place for place, fate in by_hand(found).items() if fate == ACKED}
    runs = fates_of(encoded(found)).acked_runs(PLACES)
    places = [place for first, count in runs for place in range(first, first + count)]
    assert places == sorted(place for place in covered if place < PLACES)
    assert all(one[0] + one[1] < other[0] for one, other in pairwise(runs))


@given(marks, st.integers(0, 60))
def test_what_is_left_undone_was_delivered_and_not_done_with(found: Marks, start: int) -> None:
    undone = any(place >= start and fate != ACKED for place, fate in by_hand(found).items())
    assert fates_of(encoded(found)).leave_undone(start) is undone


@given(marks)
def test_after_a_power_cut_all_was_delivered_at_least_once(found: Marks) -> None:
    fates = fates_of(encoded(found))
    fates.assume_delivered(PLACES)
    assert told(fates) == dict.fromkeys(range(PLACES), 1) | by_hand(found)


@given(marks, st.sampled_from([16, 32, 48]))
def test_a_file_that_is_read_in_pieces_is_read_whole(
    tmp_path_factory: pytest.TempPathFactory, found: Marks, piece_bytes: int
) -> None:
    file = tmp_path_factory.mktemp("acks") / "1.acks"
    file.write_bytes(acks(BASE) + encoded(found) + b"torn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ack_file, "PIECE_BYTES", piece_bytes)
        fates, bad, size = read_fates(file, BASE)
    assert (told(fates), bad, size) == (by_hand(found), 1, HEADER_BYTES + MARK_BYTES * len(found))


@pytest.mark.parametrize("size", [0, 1, 31])
def test_file_that_ends_before_its_header_does_is_none(tmp_path: Path, size: int) -> None:
    file = tmp_path / "1.acks"
    file.write_bytes(acks(BASE, done(BASE))[:size])
    with pytest.raises(ValueError, match="shorter"):
        read_fates(file, BASE)


def test_positions_that_no_segment_has_take_no_memory() -> None:
    fates = fates_of(encode_mark(BASE, 0, ACKED, ACKED) + encode_mark(BASE, ACKED, 1, 3))
    assert fates.places == ACKED + 1
    assert fates.acked_runs(ACKED) == [[0, 2**22]]


# --- marks that are not sound ---


def test_any_changed_bit_of_a_mark_makes_it_bad_and_only_it() -> None:
    data = acks(BASE, done(BASE), done(BASE + 2), done(BASE + 4))
    for at in range(HEADER_BYTES + MARK_BYTES, HEADER_BYTES + 2 * MARK_BYTES):
        assert sound(damaged(data, at)) == ({0: ACKED, 4: ACKED}, 1)


def test_mark_of_another_segment_is_bad() -> None:
    assert sound(acks(BASE) + encode_mark(BASE + 1, 0, 1, ACKED)) == ({}, 1)


@pytest.mark.parametrize("size", range(1, 16))
def test_mark_that_is_not_whole_is_bad(size: int) -> None:
    data = acks(BASE, done(BASE))
    assert sound(data + encode_mark(BASE, 1, 1, ACKED)[:size]) == ({0: ACKED}, 1)


@pytest.mark.parametrize("base", [1, BASE, 2**32, 2**63])
def test_zeros_are_no_mark(base: int) -> None:
    assert Fates(base).add(bytes(160)) == 10
