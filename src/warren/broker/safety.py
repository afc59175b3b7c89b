"""When something that was written is safe.

What is written is not safe at once. It gathers for a round, which has a number, and is safe when that round
is over. A confirm, a declare-ok, and whatever else must not be sent too early, waits on the `Safety` of the
log that was written to: logs may become safe in different ways, and at different times.
"""

from __future__ import annotations

from collections.abc import Callable
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
