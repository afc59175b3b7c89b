"""The definitions of a cluster, as one node has them: etcd's changes come into the model, and what the model
and clients want to change goes to etcd (`proposals.py`).

What always holds:
- The model changes only by revisions of etcd, each as a whole, in order, none twice.
- Every transaction also puts `LAST`, whose version counts the changes, and whose value says how many keys
  the transaction has changed. So a change that a watch has lost is noticed; then everything is loaded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter

from warren.amqp.errors import AmqpError
from warren.broker.changes import Applied
from warren.broker.commands import Command
from warren.broker.node import Node
from warren.cluster.definitions.definition import LAST, Home, removal_of
from warren.cluster.definitions.definition_copy import DefinitionCopy, Difference
from warren.cluster.definitions.gateway import Gateway
from warren.cluster.definitions.model_changes import SHARD, ModelChanges
from warren.cluster.definitions.proposal import Asker
from warren.cluster.definitions.proposals import Proposals
from warren.cluster.transactions import Changed, KeyValue


class Metadata:
    """Is the `Proposer` of a node."""

    def __init__(self, node: Node, gateway: Gateway, prefix: str, me: Home) -> None:
        self.prefix = prefix  # of all keys of definitions
        self.me = me  # this node, and its run
        self.gateway = gateway
        self.copy = DefinitionCopy()
        self.model = ModelChanges(node, me)
        self.proposals = Proposals(node, gateway, prefix, self.copy, me)
        self.addresses: dict[str, str] = {}  # of all nodes, by name: where clients connect
        self.leader_of: Callable[[int], str] = lambda _shard: ""  # the name of the node that leads a shard

    def propose(self, command: Command, then: Callable[[Applied], None] | None) -> None:
        self.proposals.propose(command, then)

    def catch_up(self, then: Callable[[AmqpError | None], None]) -> None:
        self.proposals.catch_up(then)

    def where_is(self, node: str) -> str:
        if node.startswith(SHARD):
            node = self.leader_of(int(node.removeprefix(SHARD)))
            if not node or node == self.me.node:  # or this one has not taken over yet
                return ""
        return f"node '{node}' at {self.addresses[node]}" if node in self.addresses else f"node '{node}'"

    # --- changes that come from etcd ---

    def assume(self, commands: Iterable[tuple[Command, int]]) -> None:
        """What the node's own disk has made of the model, with the numbers of queues."""
        self.copy.assume(commands)

    def load(self, revision: int, kvs: Iterable[KeyValue]) -> None:
        """All definitions at one revision. ValueError if that is before what this node has seen."""
        if revision < self.copy.revision:
            raise ValueError(
                f"etcd is at revision {revision}, but was at {self.copy.revision} before. Was it restored "
                "from a backup? Restart this node, if what etcd has now is to hold"
            )
        found = {kv.key.removeprefix(self.prefix): kv for kv in kvs}
        last = found.pop(LAST, None)
        difference = self.copy.load(found.items())
        self.copy.revision, self.copy.count = revision, 0 if last is None else last.version
        self._apply(difference, is_one_revision=False)

    def told(self, changes: list[Changed]) -> bool:
        """What a watch tells. False if something was lost: everything has to be loaded anew."""
        for revision, group in groupby(changes, attrgetter("revision")):
            if revision > self.copy.revision and not self._take(revision, list(group)):
                return False
        return True

    def _take(self, revision: int, changes: list[Changed]) -> bool:
        """The changes of one revision, if they are all there, and none is missing before them."""
        found = {each.key.removeprefix(self.prefix): each.now for each in changes}
        last = found.pop(LAST, None)
        if last is None or last.version != self.copy.count + 1 or last.value != str(len(found)).encode():
            return False
        difference = self.copy.take(found.items())
        self.copy.revision, self.copy.count = revision, last.version
        self._apply(difference, is_one_revision=True)
        return True

    def _apply(self, difference: Difference, *, is_one_revision: bool) -> None:
        results = self.model.apply(difference)
        for record in difference.put:
            if self.model.is_ownerless(record):  # its connection has ended while it was declared
                self.proposals.ask(removal_of(record.definition.command), Asker.KEEPER)
        removed = {record.path for record in difference.removed}
        self.proposals.have_revision(
            self.copy.revision, results if is_one_revision else {}, removed, difference.died
        )

    # --- from time to time ---

    def clear_up(self) -> None:
        """When the node has started: remove what its earlier runs have left, and what is dead."""
        for record in list(self.copy.records.values()):
            home = record.definition.home
            if not record.alive:
                self.proposals.to_sweep[record.path] = None
            elif home is not None and home.node == self.me.node and home.run not in {"", self.me.run}:
                self.proposals.ask(removal_of(record.definition.command), Asker.KEEPER)
        self.proposals.pump_soon()

    def look_at(self, last: KeyValue | None) -> None:
        """What etcd says of `LAST`, some seconds after a watch should have told the change before."""
        self.proposals.compare_count(last)
        if last is not None and last.mod_revision > self.copy.revision:
            self.gateway.load_again("the watch of definitions is behind")

    def check_times(self) -> None:
        """Answer clients who have waited for too long; notice changes that do not come."""
        self.proposals.check_times()
