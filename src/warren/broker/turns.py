"""What is too much for one turn of the event loop goes on in the next ones, fairly.

A turn has a budget of work (`Budget` says what a unit is). A client's read takes from it as much as there is;
whatever is left to do stands in line here, and in each turn those in front get a share until the budget of
that turn is used up. Between two turns the event loop sees to sockets and timers, so that however much waits
here, a new client, an HTTP request or an alarm waits for one turn.

    turns.later(callback)        call once, in a turn to come
    turns.spread(steps, then)    go through a generator that yields the cost of each step, now as far as the
                                 turn allows and the rest in turns to come; call `then` at its end

Whoever has to answer at once, and would have to do too much for that, raises `TooMuchForATurn`: it has done a
part, and is to be asked again in a turn to come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from warren.amqp.budget import Budget
from warren.broker.timers import Timers

WORK_A_TURN_MAX = 40_000
SHARE_MAX = 10_000  # of one job in one turn
SHARE_MIN = 1_000  # whoever has little to do gets it done at once, whatever others did in this turn
LOOK_AROUND_WORK = 100_000
DRAINED_MIN = 100  # for each of a thousand clients that could take something again in the same turn
DELIVERED_AT_A_TIME_MAX = 10_000  # by one queue, before others have their turn


class TooMuchForATurn(Exception):
    """A part was done; ask again in a turn to come."""


class Turns:
    """`jobs` stand in line; `done_this_turn` are those that had a share of the last turn. `after` ends a
    turn. `look_around` checks alarms, and is called after every `LOOK_AROUND_WORK` units, since timers come
    late when there is much to do.
    """

    def __init__(
        self, timers: Timers, budget: Budget, after: Callable[[], None], report: Callable[[Exception], None]
    ) -> None:
        self.timers = timers
        self.budget = budget
        self.after = after
        self.report = report
        self.look_around: Callable[[], None] | None = None
        self.jobs: deque[Callable[[], None]] = deque()
        self.done_this_turn: list[Callable[[], None]] = []
        self.turn_is_planned = False
        self.worked = 0
        self.sharing = False
        budget.left = budget.draining = WORK_A_TURN_MAX

    # --- the present turn ---

    def begin_share(self) -> None:
        """Somebody begins to work who has not stood in line: that is at least a small share."""
        self.sharing = True
        missing = SHARE_MIN - self.budget.left
        if missing > 0:
            self.worked += missing
            self.budget.left = SHARE_MIN

    def end_share(self) -> None:
        """Have the budget filled again in the next turn, if there is little left of it."""
        self.sharing = False
        if self.budget.left < WORK_A_TURN_MAX // 2:
            self.plan_turn()

    def begin_draining(self) -> None:
        """Queues are about to be drained: at least a very small share, whatever was drained before."""
        self.budget.draining = max(self.budget.draining, DRAINED_MIN)

    def end_draining(self) -> None:
        if self.budget.draining < WORK_A_TURN_MAX // 2:
            self.plan_turn()

    # --- the next ones ---

    def later(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)
        self.plan_turn()

    def spread(self, steps: Iterator[int], then: Callable[[], None] | None = None) -> None:
        if self.sharing:  # it is a part of what somebody does with a share
            self._go_on(steps, then)
            return
        self.begin_share()
        try:
            self._go_on(steps, then)
        finally:
            self.end_share()

    def _go_on(self, steps: Iterator[int], then: Callable[[], None] | None) -> None:
        """One step at least, so that whatever is asked for has begun when this returns."""
        budget = self.budget
        while (cost := next(steps, None)) is not None:
            budget.left -= cost
            if budget.left <= 0:
                break
        else:
            if then is not None:
                then()
            return
        self.later(partial(self._go_on, steps, then))

    def plan_turn(self) -> None:
        if not self.turn_is_planned:
            self.turn_is_planned = True
            self.timers.call_soon(self._turn)

    def _turn(self) -> None:
        """Give those in front their shares, each one share at most. What was done in the turn before, by
        whoever, counts for when to look around.
        """
        self.turn_is_planned = False
        self.worked += WORK_A_TURN_MAX - self.budget.left
        if self.worked >= LOOK_AROUND_WORK and self.look_around is not None:
            self.worked = 0
            self._do(self.look_around)
        left = WORK_A_TURN_MAX
        jobs = len(self.jobs)
        self.done_this_turn.clear()
        while jobs and left > 0:
            jobs -= 1
            share = min(left, SHARE_MAX)
            self.budget.left = share
            job = self.jobs.popleft()
            self.done_this_turn.append(job)
            self._do(job)
            left -= share - self.budget.left
        self.budget.left = left
        self.budget.draining = WORK_A_TURN_MAX
        if self.jobs:
            self.plan_turn()
        self.after()

    def _do(self, job: Callable[[], None]) -> None:
        self.sharing = True
        try:
            job()
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the others from their turn
            self.report(error)
        finally:
            self.sharing = False
