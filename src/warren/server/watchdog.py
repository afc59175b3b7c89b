"""Measures the turns of the event loop, and logs those that were slow, with what they did.

A turn is one call that the event loop makes: a read of a socket, a timer, a job from the line of jobs, the
end of a disk round, a step of an HTTP request or of another task (`measured.py`). They are measured one by
one, and so are the runs of Python's garbage collector. For what else may hold up the loop, such as the
application that a broker is embedded in, there is a beat every `BEAT_SECONDS`: if it comes late, and no
measured turn explains that, something else was slow.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from warren.server.metrics import Histogram, Metric, Metrics
from warren.storage.problems import Logger

SLOW_SECONDS = 0.1
BEAT_SECONDS = 0.25
LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)  # the bounds of `lag`
SILENCE_SECONDS = 1.0  # at least this long between two log lines
UNKNOWN = "unknown: something that is not measured, or a machine busy with other processes"


class Watchdog:
    """Counts slow turns. At most once in `SILENCE_SECONDS` it logs the longest one since the last log line.

    `benchmarks/flood.py` watches how long turns get; `warren perf throughput` what measuring them costs.
    """

    def __init__(self, log: Logger, now: Callable[[], float] = time.monotonic) -> None:
        self.log = log
        self.now = now
        self.slow_turns = 0
        self.lag = Histogram(*LAG_SECONDS)  # by how much beats were late
        self.longest_seconds = 0.0
        self.known_until = now()  # the end of the last slow turn that was noted: time before it is explained
        self.collecting_since = 0.0  # when the garbage collector's run began
        self.told_at = -SILENCE_SECONDS  # when the last log line was written
        self.untold: list[tuple[float, dict[str, Any]]] = []  # slow turns since then: seconds, log fields

    def start(self) -> None:
        gc.callbacks.append(self._collects)

    def stop(self) -> None:
        gc.callbacks.remove(self._collects)

    def run(self, callback: Callable[[], None]) -> None:
        """Call the callback, and measure how long it takes."""
        started = self.now()
        try:
            callback()
        finally:
            self.ended(started, lambda: {"what": describe(callback)})

    def ended(self, started: float, what: Callable[[], dict[str, Any]]) -> None:
        """A turn is over. `what` makes the fields for the log, and is only called if the turn was slow."""
        ended = self.now()
        if ended - started >= SLOW_SECONDS:
            if started >= self.known_until:  # else a run of the collector in this turn was noted already
                self._note(ended - started, what())
            self.known_until = ended

    def beat(self, due: float) -> None:
        """Called when the beat that was due at `due` comes. If it is late, and no slow turn was noted since,
        an unmeasured turn was slow.
        """
        late = self.now() - due
        self.lag.observe(max(0.0, late))
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
        text = "By how much the event loop was late, four times a second"
        metrics.add(
            Metric(name="warren_loop_lag_seconds", text=text, read=lambda: self.lag, kind="histogram")
        )

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
    """The name of a function and of its object, and the jobs that the object says it has done."""
    did = getattr(getattr(callback, "__self__", None), "done_this_turn", None)
    name = _name_of(callback)
    return f"{name}: {', '.join(map(_name_of, did))}" if did else name


def _name_of(callback: object) -> str:
    """Without the jobs: a job that is spread over turns belongs to the object that has done it, and so on
    without an end.
    """
    if isinstance(callback, partial):
        return " ".join(map(_name_of, (callback.func, *callback.args)))
    name: str = getattr(callback, "__qualname__", None) or type(callback).__qualname__  # None: it has ended
    subject = getattr(getattr(callback, "__self__", None), "name", None)
    return f"{name} of {subject}" if isinstance(subject, str) else name
