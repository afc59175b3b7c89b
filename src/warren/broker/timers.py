"""Protocols for the event loop's time and timers. The time of day, which may jump, is in `Clock`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is planned."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """The event loop: `now` is in seconds, and never goes down; `call_soon` calls in the next turn."""

    def now(self) -> float: ...
    def call_soon(self, callback: Callable[[], None]) -> None: ...
    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...
