"""A segment goes from one state to another only as the table says, and only by `Segment.enter`."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import warren.storage
from warren.storage.segment import Segment
from warren.storage.segment_life import TRANSITIONS, Life, OnDisk, State

STATES: list[State] = [*Life, *OnDisk]
WAYS: dict[State, tuple[State, ...]] = {
    Life.OPEN: (),
    Life.CLOSED: (Life.CLOSED,),
    Life.COMPLETE: (Life.CLOSED, Life.COMPLETE),
    Life.DROPPED: (Life.DROPPED,),
    Life.REMOVED: (Life.DROPPED, Life.REMOVED),
    OnDisk.ABSENT: (),
    OnDisk.MADE: (OnDisk.MADE,),
    OnDisk.NAMED: (OnDisk.MADE, OnDisk.NAMED),
}
PAIRS: list[tuple[State, State]] = [*product(Life, Life), *product(OnDisk, OnDisk)]


def segment_in(state: State) -> Segment:
    segment = Segment("log/1", 1)
    for step in WAYS[state]:
        segment.enter(step)
    return segment


def test_table_has_a_row_for_each_state() -> None:
    assert list(TRANSITIONS) == STATES


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair[1] in TRANSITIONS[pair[0]]])
def test_transition_in_the_table_is_made(before: State, after: State) -> None:
    segment = segment_in(before)
    segment.enter(after)
    assert after in {segment.life, segment.on_disk}


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair[1] not in TRANSITIONS[pair[0]]])
def test_any_other_transition_is_refused_with_both_states(before: State, after: State) -> None:
    segment = segment_in(before)
    with pytest.raises(AssertionError, match=rf"from {before} to {after}: log/1"):
        segment.enter(after)
    assert before in {segment.life, segment.on_disk}


@pytest.mark.parametrize("state", STATES)
def test_questions_about_a_state_agree_with_it(state: State) -> None:
    segment = segment_in(state)
    assert segment.is_closed() == (segment.life is not Life.OPEN)
    assert segment.is_dropped() == (segment.life in {Life.DROPPED, Life.REMOVED})
    assert segment.is_removed() == (segment.life is Life.REMOVED)
    assert segment.is_made() == (segment.on_disk is not OnDisk.ABSENT)
    assert segment.is_named() == (segment.on_disk is OnDisk.NAMED)


def test_state_cannot_be_assigned_from_python() -> None:
    segment = Segment("log/1", 1)
    with pytest.raises(AttributeError):
        segment.life = Life.DROPPED
    with pytest.raises(AttributeError):
        segment.on_disk = OnDisk.NAMED


def test_no_compiled_code_assigns_a_state_but_the_segment_itself() -> None:
    """C code could, since attributes that are readonly in Python are not in Cython."""
    assigns = re.compile(r"\.(?:life|on_disk)\b[^=\n]*(?<![=!<>])=(?!=)")
    sources = [path for path in Path(warren.storage.__path__[0]).iterdir() if path.suffix in {".py", ".pyx"}]
    found = {path.name: assigns.findall(path.read_text()) for path in sources}
    assert [name for name, places in found.items() if places] == ["segment.pyx"]
    assert len(found["segment.pyx"]) == 4  # two when it begins, and two in `enter`
