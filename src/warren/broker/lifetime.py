"""x-expires: a queue that was not used for a given time is deleted.

Declaring the queue, consuming from it and basic.get count as use; so does having a consumer.
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
        self.limit_ms = NO_LIMIT  # for how long the queue may be unused
        self.used_ms = 0  # when it was used last
        self.appointment: Appointment | None = None  # to look whether the queue was used since

    def set_limit(self, limit_ms: int) -> None:
        if limit_ms != self.limit_ms:
            self.limit_ms = limit_ms
            self.end()
            self.begin_anew()

    def begin_anew(self) -> None:
        """The queue is used now: its time begins anew."""
        self.used_ms = self.clock.time_ms
        if self.limit_ms >= 0 and self.appointment is None:
            self.appointment = self.timetable.at(self.used_ms + self.limit_ms, self._see)

    def _see(self) -> None:
        """Delete the queue, unless it was used since. With consumers there is nothing to do: `begin_anew` is
        called when one goes.
        """
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
