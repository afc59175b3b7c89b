"""Shares out the event loop's time: work that is too much for one turn goes on in the next turns, fairly.

A turn has a budget of work (`Budget` says what a unit is). A client's read may use all that is left of it.
Work beyond that becomes a job, which stands in line here; each turn gives a share to the jobs in front, until
its budget is used up. Between two turns the event loop handles sockets and timers. So a new client, an HTTP
request or an alarm waits for one turn at most, however many jobs are in line.

    turns.later(callback)        call once, in a turn to come
    turns.spread(steps, then)    run a generator that yields the cost of each step: now as far as the turn's
                                 budget allows, the rest in turns to come; call `then` at its end

A function that has to answer at once, but would have to work for longer than a turn, does a part of the work
and raises `TooMuchForATurn`. Its caller asks again in a turn to come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from warren.amqp.budget import Budget
from warren.broker.timers import Timers

WORK_A_TURN_MAX = 40_000
SHARE_MAX = 10_000  # of one job in one turn
SHARE_MIN = 1_000  # work that did not stand in line gets this even if the budget is used up
LOOK_AROUND_WORK = 100_000  # units of work between two calls of `look_around`
DRAINED_MIN = 100  # small, since a thousand clients may become able to take messages in the same turn
DELIVERED_AT_A_TIME_MAX = 10_000  # by one queue, before others have their turn
MARKED_AT_A_TIME_MAX = 10_000  # the same, in units of work for its marks: as much as one file that is made
QUEUES_A_STEP = 20  # a message that takes several turns reaches so many queues at a time


class TooMuchForATurn(Exception):
    """Only a part of the work was done; the caller has to ask again in a turn to come."""


class Turns:
    """The budget of the present turn, and the line of jobs. `benchmarks/flood.py` watches it."""

    def __init__(
        self, timers: Timers, budget: Budget, after: Callable[[], None], report: Callable[[Exception], None]
    ) -> None:
        self.timers = timers
        self.budget = budget  # what is left for the present turn
        self.after = after  # ends a turn: delivers and sends
        self.report = report  # called with errors of jobs
        self.look_around: Callable[[], None] | None = None  # checks alarms, since timers come late under load
        self.jobs: deque[Callable[[], None]] = deque()  # the line
        self.done_this_turn: list[Callable[[], None]] = []  # jobs that had a share of the last turn
        self.turn_is_planned = False  # whether `_turn` will be called
        self.worked = 0  # units of work since the last call of `look_around`
        self.sharing = False  # whether somebody is working who has a share
        budget.left = budget.draining = WORK_A_TURN_MAX

    # --- the present turn ---

    def begin_share(self) -> None:
        """Somebody begins to work who has not stood in line, and gets at least a small share."""
        self.sharing = True
        missing = SHARE_MIN - self.budget.left
        if missing > 0:
            self.worked += missing
            self.budget.left = SHARE_MIN

    def end_share(self) -> None:
        """The work is done. If little is left of the budget, plan a turn, which fills it again."""
        self.sharing = False
        if self.budget.left < WORK_A_TURN_MAX // 2:
            self.plan_turn()

    def begin_draining(self) -> None:
        """Queues are about to be drained, and get at least a very small share."""
        self.budget.draining = max(self.budget.draining, DRAINED_MIN)

    def end_draining(self) -> None:
        if self.budget.draining < WORK_A_TURN_MAX // 2:
            self.plan_turn()

    # --- turns to come ---

    def later(self, job: Callable[[], None]) -> None:
        """Call a job once, in a turn to come."""
        self.jobs.append(job)
        self.plan_turn()

    def spread(self, steps: Iterator[int], then: Callable[[], None] | None = None) -> None:
        """Run a generator that yields the cost of each step, over as many turns as that takes; call `then` at
        its end. The first step is always taken at once.
        """
        if self.sharing:  # the caller has a share already: these steps are a part of its work
            self._go_on(steps, then)
            return
        self.begin_share()
        try:
            self._go_on(steps, then)
        finally:
            self.end_share()

    def _go_on(self, steps: Iterator[int], then: Callable[[], None] | None) -> None:
        """Take one step at least, and more while the budget lasts; the rest is a job."""
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
        """Give the jobs in front a share each, until the budget is used up. All work of the turn before
        counts for when to look around.
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
        except Exception as error:  # noqa: BLE001 - a job that fails must not stop the others
            self.report(error)
        finally:
            self.sharing = False

    def __repr__(self) -> str:
        return f"<Turns: {len(self.jobs or ())} jobs in line>"
