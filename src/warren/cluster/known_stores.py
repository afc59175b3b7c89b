"""The stores of a cluster, as one of its nodes knows them: who is there, who is away, who never comes back.

A store is gone for good if its node has another one now (its disk was wiped), if its node was removed, or if
this node has not seen it for `replace_after`, nor does any leader count on it. A node that sees less than
half of the others declares nobody gone: it may be the one that is cut off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from warren.cluster.config import ShardRecord, StoreId
from warren.cluster.placement import Stores, alive_for_others

IN, DRAINING, REMOVED = "in", "draining", "removed"  # states of a node


class NodeFacts(NamedTuple):
    """What a node's record says."""

    store: StoreId
    state: str
    former: frozenset[StoreId]  # stores that the node had, and that never come back


class KnownStores:
    def __init__(self, me: StoreId, *, min_in_sync: int, replace_after: float) -> None:
        self.me = me  # this node's store
        self.min_in_sync = min_in_sync
        self.replace_after = replace_after  # seconds
        self.nodes: dict[str, NodeFacts] = {}  # by name
        self.seen_at: dict[StoreId, float] = {}  # when this node could last speak to a store

    @property
    def avoided(self) -> list[StoreId]:
        """Stores that must not be handed anything."""
        return [facts.store for facts in self.nodes.values() if facts.state != IN]

    def look(self, links: Collection[StoreId], records: Iterable[ShardRecord], now: float) -> Stores:
        """Who is there now. `links` are the stores that this node can speak to."""
        current = {facts.store: facts.state for facts in self.nodes.values()}
        there = {store for store in current if store in links or store == self.me}
        for store in current:
            if store in there:
                self.seen_at[store] = now
            else:
                self.seen_at.setdefault(store, now)
        gone = {store for facts in self.nodes.values() for store in facts.former if store not in current}
        gone.update(store for store, state in current.items() if state == REMOVED)
        members = [store for store in current if store not in gone]
        if 2 * len(there.difference(gone)) > len(members):
            gone |= self._unseen(members, records, now - self.replace_after)
        staying = tuple(sorted(store for store in members if store not in gone))
        able = frozenset(store for store in staying if store in there and current[store] == IN)
        return Stores(staying, able, frozenset(gone))

    def _unseen(
        self, members: Iterable[StoreId], records: Iterable[ShardRecord], since: float
    ) -> set[StoreId]:
        unseen = {store for store in members if self.seen_at[store] < since}
        if not unseen:
            return unseen
        return unseen - alive_for_others(records, min_in_sync=self.min_in_sync)
