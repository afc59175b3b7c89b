"""What is to happen at a certain time, in milliseconds since 1970, of all queues together.

One timer of the event loop runs, for whatever comes first; none if there is nothing to wait for. Timers count
seconds, and appointments are by the clock, which may be set, or have gone on while the machine slept. So the
timer looks at the clock every `LOOK_SECONDS_MAX`, however far away the first appointment is.

Appointments that are due at the same time, such as the ends of fifty thousand queues, are kept over as many
turns as that takes; meanwhile no timer runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count

from warren.broker.clock import Clock
from warren.broker.timers import Timer, Timers
from warren.broker.turns import Turns

LOOK_SECONDS_MAX = 10.0
APPOINTMENT_WORK = 3
DROPPED_MAX = 1_000


class Appointment:
    __slots__ = ("callback", "due_ms")

    def __init__(self, due_ms: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback


class Timetable:
    """`keeping`: appointments that are due are being kept."""

    def __init__(
        self, timers: Timers, clock: Clock, turns: Turns, report: Callable[[Exception], None]
    ) -> None:
        self.timers = timers
        self.clock = clock
        self.turns = turns
        self.report = report
        self.keeping = False
        self.heap: list[tuple[int, int, Appointment]] = []
        self.numbers = count()
        self.timer: Timer | None = None
        self.timer_due_ms = 0
        self.dropped = 0

    def at(self, due_ms: int, callback: Callable[[], None]) -> Appointment:
        appointment = Appointment(due_ms, callback)
        heapq.heappush(self.heap, (due_ms, next(self.numbers), appointment))
        self._start_timer()
        return appointment

    def drop(self, appointment: Appointment | None) -> None:
        if appointment is not None and appointment.callback is not None:
            appointment.callback = None
            self.dropped += 1
            if self.dropped > DROPPED_MAX + len(self.heap) // 2:
                self.heap = [item for item in self.heap if item[2].callback is not None]
                heapq.heapify(self.heap)
                self.dropped = 0

    def _start_timer(self) -> None:
        if self.keeping or not self.heap:
            return
        if self.timer is not None and self.timer_due_ms <= self.heap[0][0]:
            return
        if self.timer is not None:
            self.timer.cancel()
        self.timer_due_ms = self.heap[0][0]
        seconds = (self.timer_due_ms - self.clock.refresh()) / 1000
        self.timer = self.timers.call_later(min(max(seconds, 0.0), LOOK_SECONDS_MAX), self._timer_ended)

    def _timer_ended(self) -> None:
        self.timer = None
        if self.heap and self.heap[0][0] <= self.clock.refresh():
            self.keeping = True
            self.turns.spread(self._keep_all(), self._all_kept)
        else:
            self._start_timer()

    def _keep_all(self) -> Iterator[int]:
        """Those that are due now, and were made before now: one that is made anew for the same time has to
        wait until its queue is drained.
        """
        now_ms, number = self.clock.time_ms, next(self.numbers)
        while self.heap and self.heap[0] < (now_ms, number):
            self._keep(heapq.heappop(self.heap)[2])
            yield APPOINTMENT_WORK

    def _all_kept(self) -> None:
        self.keeping = False
        self._start_timer()
        self.turns.after()

    def _keep(self, appointment: Appointment) -> None:
        callback, appointment.callback = appointment.callback, None
        if callback is None:
            self.dropped -= 1
            return
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the others from theirs
            self.report(error)
