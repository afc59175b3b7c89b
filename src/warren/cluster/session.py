"""A leader's side of a session, and how long a store waits that has left the in-sync set."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from warren.cluster.catchup import Catchup
from warren.cluster.config import StoreId

NOTHING = -1  # an index below all others


class Sent(NamedTuple):
    """A batch that a follower has not acked."""

    number: int
    reaches: int  # the index up to which the follower has everything when it acks this batch
    size: int
    sent_at: float


class Session:
    """The line of batches to one follower."""

    def __init__(self, store: StoreId, session: int, now: float, before: Session | None) -> None:
        self.store = store  # the follower
        self.session = session  # its number, chosen by the follower
        self.begun_at = now
        self.trying_since: float | None = None  # when it began the first of several, none of them in step
        if before is not None and before.in_step_since is None:
            self.trying_since = before.begun_at if before.trying_since is None else before.trying_since
        self.number = 0  # of the last batch
        self.unacked: deque[Sent] = deque()  # batches, the oldest first
        self.in_flight = 0  # bytes in these
        self.acked = NOTHING  # the index up to which the follower has everything, synced
        self.catchup: Catchup | None = None  # None: all logs are live
        self.asks_for_turn = False  # `GoOn` was asked for
        self.is_counted = False  # batches have an index from now on: all logs are live
        self.in_step_since: float | None = None  # when it first acked that it has everything
        self.is_damaged = False  # the follower's files were, and it is not in step again yet


class Backoff:
    """How long a store waits that left the in-sync set, so that it does not come and go."""

    __slots__ = ("delay", "until")

    def __init__(self) -> None:
        self.delay = 0.0
        self.until = 0.0

    def leave(self, now: float, *, first: float, last: float) -> None:
        """The store leaves again: it waits twice as long, unless it has stayed for long."""
        steady = now - self.until > last
        self.delay = first if not self.delay or steady else min(2 * self.delay, last)
        self.until = now + self.delay
