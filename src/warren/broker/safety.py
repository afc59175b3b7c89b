"""Says when something that was written is safe: when it would survive a power cut.

Records are not safe as soon as they are written. They gather for a round, which has a number, and are safe
when that round is over. A confirm, a declare-ok, and any other answer that must not be sent too early, waits
on the `Safety` of the log that was written to: not all logs need become safe in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol


class Safety(Protocol):
    """The rounds of one log, or of several logs. They are numbered from 1 on, without a gap, and end in
    order.

    Whoever has called the callbacks of a round ends the node's turn then, so that their answers are sent.
    """

    @property
    def gathering(self) -> int:
        """The number of the round that gathers now. What was written until now is safe when it is over."""

    @property
    def behind(self) -> bool:
        """Whether so much has gathered that publishers should wait."""

    def when_safe(self, callback: Callable[[int], None], ended: Callable[[], None] | None = None) -> None:
        """When the round that gathers now is over, call back with its number; never before this returns.

        Nobody may ever say that it is over: the term of a leader can end before, or the queue. Then `ended`
        is called instead. What was written may be safe all the same, or not.
        """

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call back when publishers that had to wait may go on; never before this returns."""


class NeverAsked:
    """The safety of a broker without a data directory: nothing is written, so nobody may wait for it."""

    gathering = 1
    behind = False

    def when_safe(self, callback: Callable[[int], None], ended: Callable[[], None] | None = None) -> None:
        raise AssertionError("nothing is on its way to disk")

    def when_ready(self, callback: Callable[[], None]) -> None:
        raise AssertionError("nothing is on its way to disk")


def when_all_safe(
    places: Iterable[tuple[Safety, bool]], callback: Callable[[], None], ended: Callable[[], None]
) -> None:
    """Call back once, when at each of these safeties the round that gathers now is over; and if true stands
    beside it, also the round that gathers when that is. Or call `ended` once, when one of them will not say
    that any more.
    """
    waiting = _Waiting(callback, ended)
    for safety, longer in places:
        waiting.wait_for(safety, longer=longer)


class _Waiting:
    def __init__(self, callback: Callable[[], None], ended: Callable[[], None]) -> None:
        self.callback = callback
        self.ended = ended
        self.left = 0  # safeties whose round is not over yet
        self.is_in_vain = False  # whether one of them has ended

    def wait_for(self, safety: Safety, *, longer: bool) -> None:
        self.left += 1
        safety.when_safe(partial(self._is_over, safety, longer), self._has_ended)

    def _is_over(self, safety: Safety, longer: bool, _round: int) -> None:
        self.left -= 1
        if longer:
            self.wait_for(safety, longer=False)
        elif not self.left and not self.is_in_vain:
            self.callback()

    def _has_ended(self) -> None:
        if not self.is_in_vain:
            self.is_in_vain = True
            self.ended()
