"""x-expires: a queue that nobody has used for so long is deleted.

Declaring it, consuming from it and basic.get are using it; to have a consumer is, too.
"""

from __future__ import annotations

from warren.broker.ruled_queue import RuledQueue
from warren.broker.timetable import Appointment

NO_LIMIT = -1


class Lifetime:
    def __init__(self, queue: RuledQueue) -> None:
        self.queue = queue
        self.clock = queue.surroundings.clock
        self.timetable = queue.surroundings.timetable
        self.limit_ms = NO_LIMIT
        self.used_ms = 0
        self.appointment: Appointment | None = None

    def set_limit(self, limit_ms: int) -> None:
        if limit_ms != self.limit_ms:
            self.limit_ms = limit_ms
            self.end()
            self.begin_anew()

    def begin_anew(self) -> None:
        self.used_ms = self.clock.time_ms
        if self.limit_ms >= 0 and self.appointment is None:
            self.appointment = self.timetable.at(self.used_ms + self.limit_ms, self._see)

    def _see(self) -> None:
        """Whether it was used since. Who consumes from it will say when that is over."""
        self.appointment = None
        queue = self.queue
        if queue.is_consumed:
            return
        due_ms = self.used_ms + self.limit_ms
        if due_ms <= self.clock.time_ms:
            queue.surroundings.expire(queue.name)
        else:
            self.appointment = self.timetable.at(due_ms, self._see)

    def end(self) -> None:
        self.timetable.drop(self.appointment)
        self.appointment = None
