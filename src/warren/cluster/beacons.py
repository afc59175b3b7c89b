"""Lease and grace: beacons keep a deposed leader from delivering. Confirms do not depend on them.

A leader may deliver while each member has echoed a beacon that was sent less than `lease` ago. A follower
stands for election when it has heard no beacon for `grace`, which is longer. So whoever stands has not echoed
for so long that the old leader has stopped, as long as clocks run at rates that differ by less than the ratio
of the two, and whatever the clocks show. What a member promises is for itself alone, and it is enough: a
leader needs the echoes of all members, and only a member can be elected.
"""

from __future__ import annotations

from collections.abc import Iterable

from warren.cluster.config import StoreId

NEVER = float("-inf")


class Lease:
    """A leader's: who has echoed which beacon last, by the leader's own clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.echoed: dict[StoreId, float] = {}

    def echo(self, store: StoreId, sent_at: float, now: float) -> None:
        """A store has echoed a beacon. One of the future is not ours."""
        if self.echoed.get(store, NEVER) < sent_at <= now:
            self.echoed[store] = sent_at

    def has_lapsed(self, store: StoreId, now: float) -> bool:
        return now - self.echoed.get(store, NEVER) >= self.seconds

    def holds(self, others: Iterable[StoreId], now: float) -> bool:
        """Whether the leader may deliver, if these are the other members."""
        echoed, oldest = self.echoed, now - self.seconds
        for store in others:  # noqa: SIM110 - asked for every batch
            if echoed.get(store, NEVER) <= oldest:
                return False
        return True


class Patience:
    """A follower's: since when it has not heard the leader."""

    def __init__(self, seconds: float, now: float) -> None:
        self.seconds = seconds
        self.heard_at = now  # a store that starts may have echoed a beacon just before

    def hear(self, now: float) -> None:
        self.heard_at = max(self.heard_at, now)

    @property
    def ends_at(self) -> float:
        return self.heard_at + self.seconds
