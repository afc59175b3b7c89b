"""Copies of a shard that a store does not keep any more are removed from its disk, and nothing else ever is.

A store that the record does not name may be named again at any time, catch up, and be in sync before it has
heard of that. If it removed its copies then, what was confirmed would be lost. So it first ends its session,
and opens no other one until the copies are gone. Then it asks etcd, and removes them only if the record, as
it is after that, does not name the store. Whoever makes it a member later needs a new session for that, since
a leader ends the sessions of joining stores when it learns that one was added (`Leader.learn`).

    idle -- `begin` --> asking -- `answered`, not named --> removing -- `removed` --> idle
                          |-- named, or no answer --> idle
"""

from __future__ import annotations

from enum import Enum

from warren.cluster.config import ShardRecord, StoreId
from warren.cluster.effects import ConfirmGone, RemoveCopies
from warren.cluster.this_node import ThisNode


class Phase(Enum):
    IDLE = "idle"
    ASKING = "asking"
    REMOVING = "removing"


class Clearing:
    """Of one shard at one store."""

    __slots__ = ("asked_at", "is_idle", "node", "number", "phase", "shard")

    def __init__(self, node: ThisNode, shard: int) -> None:
        self.node = node
        self.shard = shard  # its number
        self.phase = Phase.IDLE  # changed by `_enter` only
        self.is_idle = True  # that phase: sessions may be opened
        self.number = 0  # of the last attempt
        self.asked_at = 0.0

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.is_idle = phase is Phase.IDLE

    def begin(self, now: float) -> None:
        """The session has ended. Ask whether the copies may go."""
        assert self.phase is Phase.IDLE
        self.number = self.node.next_token()
        self.asked_at = now
        self._enter(Phase.ASKING)
        if self.node.rules.confirm_gone:
            self.node.effects.append(ConfirmGone(self.shard, self.number))
        else:
            self._remove()

    def answered(self, number: int, record: ShardRecord) -> None:
        """The record, as it was read after this attempt has begun."""
        if self.phase is not Phase.ASKING or number != self.number:
            return
        if is_named(self.node.me.store, record):
            self._enter(Phase.IDLE)
        else:
            self._remove()

    def _remove(self) -> None:
        self._enter(Phase.REMOVING)
        self.node.effects.append(RemoveCopies(self.shard, self.number))

    def removed(self, number: int) -> None:
        """All copies are gone, and will not come back."""
        if self.phase is Phase.REMOVING and number == self.number:
            self._enter(Phase.IDLE)

    def tick(self, now: float) -> None:
        """Etcd may not have answered: somebody asks again later."""
        if self.phase is Phase.ASKING and now - self.asked_at > self.node.settings.ask_again:
            self._enter(Phase.IDLE)


def is_named(store: StoreId, record: ShardRecord) -> bool:
    return store in record.replicas or store in record.joining
