"""Pushing back on publishers, so that what is published stays close to what is consumed.

Reading one busy publisher after another leaves consumers too little of the event loop; their acks
wait, and the queue grows although they could keep up. So a queue that has consumers and a backlog of
more than `HIGH` holds the connections that publish to it: they are not read. When the backlog is down
to `LOW` they are let go one by one, each for one read.

A queue is also there to absorb a burst that its consumers take long to work off. Every
`LOOK_SECONDS` without relief it is seen how much they took while publishers were held. If it was much,
one publisher goes, for one read, which is less than that, so that the backlog shrinks. If it was little,
it is theirs to be slow: all publishers go free for a while, which doubles from `FREE_SECONDS_MIN` to
`FREE_SECONDS_MAX` while they stay slow, and then it is tried again.
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
    """A connection that can be left unread for a while."""

    def let_go(self) -> None: ...


class Backlog(Protocol):
    """A queue, as far as it decides whether its publishers have to wait."""

    holding: bool
    delivered: int
    delivered_bytes: int

    @property
    def message_count(self) -> int: ...
    @property
    def message_bytes(self) -> int: ...
    @property
    def is_worked_off(self) -> bool: ...


class QueueFlow:
    """The publishers that one queue holds; while it does, the queue says when its backlog is low."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.held: deque[HeldPublisher] = deque()
        self.free_until = 0.0
        self.free_seconds = FREE_SECONDS_MIN
        self.relieved_at = 0.0
        self.delivered_before = (0, 0)
        self.timer_runs = False

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
        """If the backlog is low, or nobody is left to work it off, let one go and look again next turn."""
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
        self.free_seconds = FREE_SECONDS_MIN
        self._start_watching(queue)

    def _start_timer(self, queue: Backlog) -> None:
        self.timer_runs = True
        self.timers.call_later(LOOK_SECONDS, lambda: self._look(queue))

    def _look(self, queue: Backlog) -> None:
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
