"""The time of day, in milliseconds since 1970, as it was when somebody last called `refresh`.

Messages get the time that was read last, since reading the clock for each would cost too much. `refresh` is
called when a read from a socket begins, when a timer ends, when a queue with rules is drained, and once a
second by the check for late acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable

STEP_BACK_MS_MAX = 10_000


class Clock:
    def __init__(self, read: Callable[[], int]) -> None:
        self.read = read  # the system's clock
        self.time_ms = 0
        self.refresh()

    def refresh(self) -> int:
        self.time_ms = follow(self.time_ms, self.read())
        return self.time_ms


def follow(time_ms: int, now_ms: int) -> int:
    """The time to use after `time_ms`, when the system's clock reads `now_ms`.

    If the clock was set back by up to `STEP_BACK_MS_MAX`, `time_ms` stays until the clock has passed it, so
    that later messages do not seem older. A longer step back is followed.
    """
    if now_ms > time_ms or time_ms - now_ms > STEP_BACK_MS_MAX:
        return now_ms
    return time_ms
