"""The balancer of a simulated node: it proposes moves from what the node knows, which may be old.

Nodes register with their stores, as in etcd; a node whose disk was wiped says which stores it had. What a
node proposes is a request to etcd as any other: it may be lost, late, or carried out without an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.simulation.etcd import BALANCER, Request
from warren.cluster.known_stores import DRAINING, IN, REMOVED, KnownStores, NodeFacts
from warren.cluster.placement import Stores, changes, preferred

if TYPE_CHECKING:
    from tests.cluster.simulation.node import Node
    from tests.cluster.simulation.world import World

REPLACE_AFTER = 8.0  # seconds
OLD_NEWS = 0.2  # the chance that a node has not heard how the others have registered


class Registry:
    """What etcd has of nodes."""

    def __init__(self) -> None:
        self.stores: list[str] = []  # the store of each node, by its place
        self.former: list[set[str]] = []
        self.states: list[str] = []

    def register(self, node: Node) -> None:
        if node.place == len(self.stores):
            self.stores.append(node.store)
            self.former.append(set())
            self.states.append(IN)
        elif self.stores[node.place] != node.store:
            self.former[node.place].add(self.stores[node.place])
            self.stores[node.place] = node.store
            self.former[node.place].discard(node.store)

    def facts(self, place: int) -> NodeFacts:
        former = frozenset(self.former[place])
        return NodeFacts(self.stores[place], self.states[place], former)  # type: ignore[arg-type] # ids are texts


def known_stores(world: World, node: Node) -> KnownStores:
    return KnownStores(node.store, min_in_sync=world.settings.min_in_sync, replace_after=REPLACE_AFTER)


def tell(world: World, node: Node) -> None:
    """A node hears how all nodes have registered."""
    for place in range(len(world.registry.stores)):
        node.stores.nodes[str(place)] = world.registry.facts(place)


def propose(world: World, node: Node) -> None:
    """A node looks at what it knows, and asks etcd for what should change."""
    if world.is_calm or not node.stores.nodes or world.chance.random() >= OLD_NEWS:
        tell(world, node)
    known = {number: shard.known for number, shard in node.participant.shards.items()}
    records = {number: each.record for number, each in known.items() if each is not None}
    stores = node.stores.look(node.participant.node.links, records.values(), node.now())
    if len(records) < world.shards:
        return
    node.participant.prefer(preferred(records, sorted(stores.able)), avoid=node.stores.avoided)
    least = world.settings.min_in_sync
    for shard, record in changes(records, stores, min_in_sync=least).items():
        each = known[shard]
        assert each is not None
        request = Request(node.place, node.life, shard, each.revision, record, BALANCER)
        world.etcd.requests.append(request)


def true_stores(world: World) -> Stores:
    """The stores as they are, for an operator who sees everything."""
    facts = [world.registry.facts(node.place) for node in world.nodes]
    here = {node.store for node in world.nodes}
    gone = {store for each in facts for store in each.former} - here
    gone |= {each.store for each in facts if each.state == REMOVED}
    staying = tuple(sorted(here - gone))
    able = frozenset(each.store for each in facts if each.store in staying and each.state != DRAINING)
    return Stores(staying, able, frozenset(gone))
