"""What time it is, in milliseconds since 1970, as of the turn that is under way.

Whoever begins a turn (a read, a timer, a round of the disk that is over) refreshes it; the path of a message
only looks at it.
"""

from __future__ import annotations

from collections.abc import Callable

STEP_BACK_MS_MAX = 10_000


class Clock:
    def __init__(self, read: Callable[[], int]) -> None:
        self.read = read
        self.time_ms = 0
        self.refresh()

    def refresh(self) -> int:
        """A step back is waited for, so that what comes later is not older, unless it is a long one."""
        time_ms = self.read()
        if time_ms > self.time_ms or self.time_ms - time_ms > STEP_BACK_MS_MAX:
            self.time_ms = time_ms
        return self.time_ms
