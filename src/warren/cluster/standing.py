"""When a store stands for election: when it knows that the leader is gone, or has lost patience with it.

The stores that may lead stand one after the other, by their place among the replicas, so that they do not
compete. Whoever stands asks nobody: etcd decides.
"""

from __future__ import annotations

from warren.cluster.beacons import Patience
from warren.cluster.config import Leadership, ShardRecord, StoreId
from warren.cluster.this_node import ThisNode


def stands_at(
    record: ShardRecord, mine: StoreId, dead: Leadership | None, patience: Patience, node: ThisNode
) -> float:
    """When this store may stand, if it hears nothing until then. `dead` is a leader whose process is gone."""
    leader = record.leader
    others = [store for store in record.replicas if leader is None or store != leader.store]
    rank = others.index(mine) if mine in others else 0
    delay = rank * node.settings.rank_delay
    since = patience.heard_at if is_gone(record, mine, dead, node) else patience.ends_at
    return since + delay


def is_gone(record: ShardRecord, mine: StoreId, dead: Leadership | None, node: ThisNode) -> bool:
    """Whether nobody leads by this record any more. A leader of this same store was another run of it."""
    leader = record.leader
    return leader is None or leader.store == mine or _is_dead(leader, dead, node)


def _is_dead(leader: Leadership, dead: Leadership | None, node: ThisNode) -> bool:
    if dead is None:
        return False
    if not node.rules.exact_evidence:
        return leader.store == dead.store
    return leader == dead
