"""The remembered offset of a stream's consumer, and what the broker keeps in memory for it."""

from __future__ import annotations

from warren.broker.store import StreamReader
from warren.broker.stream import StreamView


def view_with(count: int) -> StreamView:
    view = StreamView(StreamReader(), "me")
    for position in range(1, count + 1):
        view.sent(position)
    return view


def test_what_is_behind_a_message_that_was_given_back_takes_no_memory() -> None:
    view = view_with(10)
    view.settled(2)
    view.settled(7)
    view.given_back(5)
    for position in range(11, 1000):
        view.sent(position)
        assert view.settled(position) is None
    assert (list(view.out), view.done) == ([1, 2, 3, 4], {2})


def test_what_is_before_a_message_that_was_given_back_still_counts() -> None:
    view = view_with(6)
    view.given_back(5)
    view.given_back(6)
    assert view.settled(1) == 1
    view.given_back(4)
    assert [view.settled(position) for position in (3, 2)] == [None, 3]
    assert (list(view.out), view.done) == ([], set())
