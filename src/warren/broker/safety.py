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

    def when_safe(self, callback: Callable[[int], None]) -> None:
        """When the round that gathers now is over, call back with its number; never before this returns."""


class NeverAsked:
    """The safety of a broker without a data directory: nothing is written, so nobody may wait for it."""

    gathering = 1
    behind = False

    def when_safe(self, callback: Callable[[int], None]) -> None:
        raise AssertionError("nothing is on its way to disk")


def when_all_safe(points: Iterable[tuple[Safety, int]], callback: Callable[[], None]) -> None:
    """Call back once, when at each of these safeties the round of the number beside it is over."""
    waiting = _Waiting(callback)
    for safety, number in points:
        waiting.wait_for(safety, number)


class _Waiting:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.left = 0  # safeties whose round is not over yet

    def wait_for(self, safety: Safety, number: int) -> None:
        self.left += 1
        safety.when_safe(partial(self._is_over, safety, number))

    def _is_over(self, safety: Safety, number: int, over: int) -> None:
        self.left -= 1
        if over < number:
            self.wait_for(safety, number)
        elif not self.left:
            self.callback()
