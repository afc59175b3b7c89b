"""Watches how long each turn of the event loop takes, and tells which ones kept everybody waiting, and why.

A turn is one call that the event loop makes: a read of a socket, a timer, a job that stood in line, a round
of the disk that is over. Those the broker makes itself are measured, and so are rounds of Python's garbage
collector. A beat finds what else may stop the loop, such as an HTTP request: it comes late then.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from warren.server.metrics import Metric, Metrics
from warren.storage.problems import Logger

SLOW_SECONDS = 0.1
BEAT_SECONDS = 0.25
SILENCE_SECONDS = 1.0  # between two lines in the log
UNKNOWN = "unknown: an HTTP request, another task of the loop, or a machine that had no time for us"


class Watchdog:
    """Counts all `slow_turns`; a line in the log, once in `SILENCE_SECONDS`, tells of the longest since."""

    def __init__(self, log: Logger, now: Callable[[], float] = time.monotonic) -> None:
        self.log = log
        self.now = now
        self.slow_turns = 0
        self.longest_seconds = 0.0
        self.known_until = now()
        self.collecting_since = 0.0
        self.told_at = -SILENCE_SECONDS
        self.untold: list[tuple[float, dict[str, Any]]] = []

    def start(self) -> None:
        gc.callbacks.append(self._collects)

    def stop(self) -> None:
        gc.callbacks.remove(self._collects)

    def run(self, callback: Callable[[], None]) -> None:
        """Make a call, and measure it."""
        started = self.now()
        try:
            callback()
        finally:
            self.ended(started, lambda: {"what": describe(callback)})

    def ended(self, started: float, what: Callable[[], dict[str, Any]]) -> None:
        """A turn is over; `what` is only asked if it was a slow one."""
        ended = self.now()
        if ended - started >= SLOW_SECONDS:
            if started >= self.known_until:  # else the collector's part of it has been told
                self._note(ended - started, what())
            self.known_until = ended

    def beat(self, due: float) -> None:
        """To be called at that time. If it comes late, and no turn is known that was slow, another was."""
        late = self.now() - due
        if late >= SLOW_SECONDS and self.known_until <= due:
            self._note(late, {"what": UNKNOWN})
        self._tell()

    def add_metrics(self, metrics: Metrics) -> None:
        text = "Turns of the event loop that took more than 100 ms"
        metrics.add(
            Metric(name="warren_slow_turns_total", text=text, read=lambda: self.slow_turns, kind="counter")
        )
        text = "The longest of the slow turns"
        metrics.add(Metric(name="warren_slow_turn_seconds_max", text=text, read=lambda: self.longest_seconds))

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.collecting_since = self.now()
        else:
            what = f"garbage collection of generation {info['generation']}"
            self.ended(self.collecting_since, lambda: {"what": what})

    def _note(self, seconds: float, what: dict[str, Any]) -> None:
        self.slow_turns += 1
        self.longest_seconds = max(self.longest_seconds, seconds)
        self.untold.append((seconds, what))
        del self.untold[:-100]
        self._tell()

    def _tell(self) -> None:
        if self.untold and self.now() - self.told_at >= SILENCE_SECONDS:
            seconds, what = max(self.untold, key=lambda slow: slow[0])
            self.log.warning(
                "slow turn",
                ms=round(seconds * 1000),
                others=len(self.untold) - 1,
                total=self.slow_turns,
                **what,
            )
            self.told_at = self.now()
            self.untold.clear()


def describe(callback: object) -> str:
    """The names of a function and of the object it belongs to, and what that says it did."""
    if isinstance(callback, partial):
        return " ".join(map(describe, (callback.func, *callback.args)))
    name: str = getattr(callback, "__qualname__", type(callback).__qualname__)
    owner = getattr(callback, "__self__", None)
    subject = getattr(owner, "name", None)
    did = getattr(owner, "done_this_turn", None)
    if isinstance(subject, str):
        name += f" of {subject}"
    if did:
        name += ": " + ", ".join(describe(job) for job in did)
    return name
