"""Time that only goes up, and calls to come. The time of day is `Clock`'s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Turns of the event loop, and seconds that only ever go up."""

    def now(self) -> float: ...
    def call_soon(self, callback: Callable[[], None]) -> None: ...
    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...
