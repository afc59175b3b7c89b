"""Moves the messages of queues from one broker to another, in order.

A batch is taken there, published here, and acked there when all of it is confirmed here. So a message is in
one of the two brokers at any time, and if the move is killed, at most one batch is in both. Nothing is
written down: another run goes on with what is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from warren.client.errors import ClientError
from warren.client.uri import Uri
from warren.moving.outage import is_outage
from warren.moving.outlet import Outlet
from warren.moving.queues import QueueInfo
from warren.moving.tap import Stalled, Tap
from warren.pipeline.publisher import PublishError

BATCH = 1000


@dataclass
class Moved:
    """How far the move of a queue came."""

    moved: int = 0
    left: int = 0
    """Ready messages that are still there."""
    rerouted: int = 0
    """Of the moved ones, those that now name our exchange as theirs."""
    others: int = 0
    """Other consumers that the queue has there."""
    problem: str = ""
    """Why messages are left; empty if all is well."""
    is_cut_off: bool = False
    """Whether the problem is that a broker went away."""

    def add(self, again: Moved) -> None:
        """Add what another move of the same queue has come to."""
        self.moved += again.moved
        self.rerouted += again.rerouted
        self.left, self.others = again.left, again.others
        self.problem, self.is_cut_off = again.problem, again.is_cut_off

    def fail(self, side: str, error: Exception) -> None:
        """Note an error of the broker there, or of ours here."""
        reason = error.__cause__ if isinstance(error, PublishError) else None
        self.problem, self.is_cut_off = f"{side}: {reason or error}", is_outage(error)


class Drain:
    """Moves queues of one vhost, one by one. `progress` is told how many messages each batch had."""

    def __init__(
        self, source: Uri, outlet: Outlet, progress: Callable[[int], None], *, batch: int = BATCH
    ) -> None:
        self._source = source  # where the messages are
        self._outlet = outlet  # where they go
        self._progress = progress
        self._batch = batch  # how many messages are in flight at most

    def move(self, queue: QueueInfo, *, has_old_way: bool = False) -> Moved:
        """Move all messages of the queue. Errors of either broker end the move of this queue only.
        `has_old_way` says that an earlier run has left its exchange here.
        """
        result = Moved()
        try:
            with closing(Tap(self._source, queue, batch=self._batch)) as tap:
                try:
                    self._pump(tap, queue, result)
                except Stalled as error:
                    result.problem = str(error)
                result.left, result.others = tap.left(), tap.others()
        except ClientError as error:
            result.fail("there", error)
        self._tidy(queue, result, has_old_way=has_old_way)
        return result

    def _pump(self, tap: Tap, queue: QueueInfo, result: Moved) -> None:
        while held := tap.take():
            try:
                done = self._outlet.publish([delivery.message for delivery in held], queue.name)
            except (ClientError, PublishError) as error:
                result.fail("here", error)
                self._outlet.drop()
                return
            tap.settle(done.safe)
            result.moved += done.safe
            result.rerouted += done.rerouted
            self._progress(done.safe)
            if done.refusal:
                result.problem = f"refused here: {done.refusal}"
                return

    def _tidy(self, queue: QueueInfo, result: Moved, *, has_old_way: bool) -> None:
        if result.is_cut_off:
            return  # the next attempt does it
        try:
            self._outlet.close_way(queue.name, always=has_old_way)
        except ClientError as error:
            self._outlet.drop()
            if not result.problem:
                result.fail("here", error)
