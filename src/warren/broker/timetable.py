"""Appointments of all queues: functions to be called at a time of day, in milliseconds since 1970.

One timer of the event loop runs, for the first appointment; none if there is no appointment. The timer counts
seconds, but appointments go by the clock, which may be set, or go on while the machine sleeps. So the timer
runs for `LOOK_SECONDS_MAX` at most, and then looks at the clock again.

If very many appointments are due together, such as the ends of fifty thousand queues, they are kept over as
many turns as that takes. Meanwhile no timer runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count

from warren.broker.clock import Clock
from warren.broker.timers import Timer, Timers
from warren.broker.turns import Turns

LOOK_SECONDS_MAX = 10.0
APPOINTMENT_WORK = 3  # units of work
DROPPED_MAX = 1_000  # appointments that may stay in the heap in vain


class Appointment:
    """A function to be called, and when."""

    __slots__ = ("callback", "due_ms")

    def __init__(self, due_ms: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback  # None when the appointment was kept or dropped

    def __repr__(self) -> str:
        return f"<Appointment at {self.due_ms} ms: {self.callback}>"


class Timetable:
    """All appointments, and the timer for the first one."""

    def __init__(
        self, timers: Timers, clock: Clock, turns: Turns, report: Callable[[Exception], None]
    ) -> None:
        self.timers = timers
        self.clock = clock
        self.turns = turns
        self.report = report  # called with errors of callbacks
        self.keeping = False  # whether appointments that are due are being kept
        self.heap: list[tuple[int, int, Appointment]] = []  # with the time and a number
        self.numbers = count()  # appointments for the same time are kept in this order
        self.timer: Timer | None = None  # None while appointments are kept, or if there are none
        self.timer_due_ms = 0  # the appointment that the timer runs for
        self.dropped = 0  # dropped appointments that are still in the heap

    def at(self, due_ms: int, callback: Callable[[], None]) -> Appointment:
        """Call back at this time, or soon if it is over."""
        appointment = Appointment(due_ms, callback)
        heapq.heappush(self.heap, (due_ms, next(self.numbers), appointment))
        self._start_timer()
        return appointment

    def drop(self, appointment: Appointment | None) -> None:
        """Cancel an appointment. It leaves the heap when it would be due, or when most there are dropped."""
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
        """Keep all appointments that are due now and were made before now. A callback may make another one
        for the same time, which has to wait until its queue was drained.
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
        except Exception as error:  # noqa: BLE001 - a callback that fails must not stop the others
            self.report(error)
