"""Holds publishers back while their queue has a high backlog and consumers that could work it off.

If one busy publisher is read after another, consumers get too little of the event loop: their acks wait, and
the queue grows although they could keep up. So a queue that has consumers and a backlog above `HIGH` holds
the connections that publish to it: they are not read. When the backlog is down to `LOW`, they are let go one
by one, each for one read.

But a queue is also there to absorb a burst for consumers that are slow. So every `LOOK_SECONDS` in which the
backlog did not become low, the queue looks how much its consumers took while publishers were held:

    much      the consumers are fast: one publisher is let go for one read, which brings less than they took
    little    the consumers are slow: holding publishers does not help, and all of them go free for a while.
              That while doubles from `FREE_SECONDS_MIN` to `FREE_SECONDS_MAX` as long as consumers stay slow

`warren perf throughput` watches this.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from warren.broker.timers import Timers

HIGH_MESSAGES, HIGH_BYTES = 4_000, 16 * 1024 * 1024
LOW_MESSAGES, LOW_BYTES = 1_000, 4 * 1024 * 1024
MUCH_MESSAGES, MUCH_BYTES = 5_000, 5 * 1024 * 1024
LOOK_SECONDS = 0.1
FREE_SECONDS_MIN, FREE_SECONDS_MAX = 0.1, 2.0


class HeldPublisher(Protocol):
    """A connection that is not read until the queue lets it go."""

    def let_go(self) -> None: ...


class Backlog(Protocol):
    """What decides whether a queue's publishers have to wait."""

    holding: bool  # whether publishers are held, so that the queue has to call `relieve`
    delivered_bytes: int

    @property
    def delivered(self) -> int:
        """How many messages were ever delivered."""

    @property
    def message_count(self) -> int: ...
    @property
    def message_bytes(self) -> int: ...
    @property
    def is_worked_off(self) -> bool: ...


class QueueFlow:
    """The publishers that one queue holds. While there are any, each drain of the queue calls `relieve`."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.held: deque[HeldPublisher] = deque()  # in the order in which they are let go
        self.free_until = 0.0  # before this time nobody is held, since consumers were slow
        self.free_seconds = FREE_SECONDS_MIN  # for how long publishers go free the next time
        self.relieved_at = 0.0  # when watching the consumers began: the first hold, or the last relief
        self.delivered_before = (0, 0)  # the messages and bytes that were delivered by then
        self.timer_runs = False  # whether `_look` will be called

    def pushes_back(self, queue: Backlog) -> bool:
        if queue.message_count <= HIGH_MESSAGES and queue.message_bytes <= HIGH_BYTES:
            return False
        return queue.is_worked_off and self.timers.now() >= self.free_until

    def hold_back(self, publisher: HeldPublisher, queue: Backlog) -> None:
        if not self.held:
            self._start_watching(queue)
        self.held.append(publisher)
        queue.holding = True
        if not self.timer_runs:
            self._start_timer(queue)

    def relieve(self, queue: Backlog) -> None:
        """If the backlog is low, or nobody works it off, let one publisher go, and look again next turn."""
        if self.held and (is_low(queue) or not queue.is_worked_off):
            self._keeping_up(queue)
            self.held.popleft().let_go()
            if self.held:
                self.timers.call_soon(lambda: self.relieve(queue))
        queue.holding = bool(self.held)

    def forget(self, publisher: HeldPublisher) -> None:
        """The publisher is gone."""
        if publisher in self.held:
            self.held.remove(publisher)

    def _start_watching(self, queue: Backlog) -> None:
        self.relieved_at = self.timers.now()
        self.delivered_before = (queue.delivered, queue.delivered_bytes)

    def _keeping_up(self, queue: Backlog) -> None:
        """The consumers are fast enough: begin to watch them anew."""
        self.free_seconds = FREE_SECONDS_MIN
        self._start_watching(queue)

    def _start_timer(self, queue: Backlog) -> None:
        self.timer_runs = True
        self.timers.call_later(LOOK_SECONDS, lambda: self._look(queue))

    def _look(self, queue: Backlog) -> None:
        """If there was no relief for `LOOK_SECONDS`, let one publisher go, or all if consumers are slow."""
        self.timer_runs = False
        now = self.timers.now()
        if self.held and now - self.relieved_at >= LOOK_SECONDS:
            if self._took_much(queue):
                self._keeping_up(queue)
                self.held.popleft().let_go()
            else:
                self.free_until = now + self.free_seconds
                self.free_seconds = min(self.free_seconds * 2, FREE_SECONDS_MAX)
                while self.held:
                    self.held.popleft().let_go()
        queue.holding = bool(self.held)
        if self.held:
            self._start_timer(queue)

    def _took_much(self, queue: Backlog) -> bool:
        messages, octets = self.delivered_before
        return queue.delivered - messages > MUCH_MESSAGES or queue.delivered_bytes - octets > MUCH_BYTES


def is_low(queue: Backlog) -> bool:
    return queue.message_count <= LOW_MESSAGES and queue.message_bytes <= LOW_BYTES
