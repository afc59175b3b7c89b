"""When something that was written is safe.

What is written is not safe at once. It gathers for a round, which has a number, and is safe when that round
is over. A confirm, a declare-ok, and whatever else must not be sent too early, waits on the `Safety` of the
log that was written to: logs may become safe in different ways, and at different times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol


class Safety(Protocol):
    """The rounds that make safe what is written to one log, or to several."""

    @property
    def gathering(self) -> int:
        """The number of the round that will make safe what is written now."""

    @property
    def behind(self) -> bool:
        """Whether so much has gathered that publishers should wait."""

    def when_safe(self, callback: Callable[[int], None]) -> None:
        """Call back with its number when the round that gathers now is over."""


class NeverAsked:
    """The safety of a broker that has no disk: nothing is written, so that nobody has to wait."""

    gathering = 1
    behind = False

    def when_safe(self, callback: Callable[[int], None]) -> None:
        raise AssertionError("nothing is on its way to disk")


def when_all_safe(points: Iterable[tuple[Safety, int]], callback: Callable[[], None]) -> None:
    """Call back once, when the round of this number is over at each of these safeties."""
    waiting = _Waiting(callback)
    for safety, number in points:
        waiting.wait_for(safety, number)


class _Waiting:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.left = 0  # safeties that have not come so far

    def wait_for(self, safety: Safety, number: int) -> None:
        self.left += 1
        safety.when_safe(partial(self._is_over, safety, number))

    def _is_over(self, safety: Safety, number: int, over: int) -> None:
        self.left -= 1
        if over < number:
            self.wait_for(safety, number)
        elif not self.left:
            self.callback()
