"""The time of day, in milliseconds since 1970, as of the last look at it.

A read that begins, a timer that ends, a queue with rules that is drained and, once a second, the check for
consumers that take too long look again (`refresh`). The path of a message takes the time that was read last.
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
        self.time_ms = follow(self.time_ms, self.read())
        return self.time_ms


def follow(time_ms: int, now_ms: int) -> int:
    """The time that holds after `time_ms`, now that a clock says `now_ms`. After a short step back the old
    time holds until the clock is past it, so that what comes later is not older; a long one is followed.
    """
    if now_ms > time_ms or time_ms - now_ms > STEP_BACK_MS_MAX:
        return now_ms
    return time_ms
