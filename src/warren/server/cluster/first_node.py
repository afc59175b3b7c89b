"""Which node does what one node of a cluster does for all: the first by name of those that are there."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from warren.cluster.config import StoreId
from warren.cluster.known_stores import IN, REMOVED, NodeFacts


def first_node(nodes: Mapping[str, NodeFacts], there: Collection[StoreId]) -> str:
    """Its name, as a node knows it that can speak to these stores, one of which is its own. Nodes that are
    being drained come last. Empty if less than half of the nodes are there: the rest may be somewhere else.
    """
    members = {name: facts for name, facts in nodes.items() if facts.state != REMOVED}
    found = [(facts.state != IN, name) for name, facts in members.items() if facts.store in there]
    if not found or 2 * len(found) < len(members):
        return ""
    _, name = min(found)
    return name
