"""What has to be written to etcd for a command, by what this node knows: what the command assumes is
compared, so that a transaction changes nothing if this node does not know the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from warren.amqp.errors import NotFound
from warren.broker.changes import UNCHANGED, Applied, carry_out, check, completed, foresee
from warren.broker.commands import (
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteVhost,
)
from warren.broker.node import Node
from warren.cluster.definitions.definition import (
    LAST,
    Definition,
    Home,
    may_be_absent,
    needs_of,
    path_of,
    says_the_same,
)
from warren.cluster.definitions.definition_copy import DefinitionCopy, Record, is_permission
from warren.cluster.transactions import (
    ABSENT,
    Compare,
    CompareCreated,
    Comparison,
    Delete,
    Put,
    Transaction,
    Write,
)
from warren.storage.definition_keys import REMOVING, REPLACING, Key, VhostKey, key_of

WRITES_MAX = 100  # of a transaction, which also puts `LAST`


@dataclass(slots=True)
class Plan:
    """A part of a transaction. Its paths are behind the prefix of all definitions."""

    compares: dict[str, Comparison] = field(default_factory=dict)  # by path; a path is compared in one way
    puts: dict[str, Definition] = field(default_factory=dict)  # by path
    deletes: list[str] = field(default_factory=list)  # paths
    makes_room: bool = False  # it only removes what is dead, where the command is to make something

    @property
    def writes(self) -> int:
        return len(self.puts) + len(self.deletes)

    def written(self) -> Iterable[str]:
        return (*self.puts, *self.deletes)

    def depends_on(self, other: Plan) -> bool:
        """Whether the two cannot be in one transaction."""
        own, theirs = set(self.written()), set(other.written())
        return not (own.isdisjoint(other.compares) and theirs.isdisjoint(self.compares))

    def add(self, other: Plan) -> None:
        self.compares |= other.compares
        self.puts |= other.puts
        self.deletes += other.deletes


def transaction_of(plan: Plan, prefix: str) -> Transaction:
    """The transaction of a plan, whose definitions get their places. `LAST` says how many keys it changes."""
    writes: list[Write] = []
    for place, (path, definition) in enumerate(plan.puts.items()):
        placed = replace(definition, place=place) if place else definition
        writes.append(Put(prefix + path, placed.text()))
    writes += [Delete(prefix + path) for path in plan.deletes]
    writes.append(Put(prefix + LAST, str(len(writes)).encode()))
    compares = tuple(_with_prefix(each, prefix) for each in plan.compares.values())
    return Transaction(compares, tuple(writes), (prefix + LAST,))


def _with_prefix(compare: Comparison, prefix: str) -> Comparison:
    kind = Compare if isinstance(compare, Compare) else CompareCreated
    return kind(prefix + compare[0], compare[1])


class Planner:
    """Plans by one node's model and its copy of the definitions, which are at the same revision."""

    def __init__(self, node: Node, copy: DefinitionCopy, me: Home) -> None:
        self.node = node
        self.copy = copy
        self.me = me  # this node, and its run
        self.shard_of: Callable[[DeclareQueue], int | None] = _in_no_shard  # the shard of a new queue

    def plan(self, command: Command) -> Plan | Applied:
        """What to write; or the result, if there is nothing to change. Raises what the client is told."""
        command = completed(self.node, command)
        check(self.node, command)
        follow_ups = foresee(self.node, command)
        plan = Plan()
        result = self._add(plan, command)
        if result is not None:
            return result
        if plan.makes_room:
            return plan
        for follow_up in follow_ups:
            self._add(plan, follow_up)
            if plan.makes_room:
                return self._room_only(plan)
        return plan

    def _room_only(self, plan: Plan) -> Plan:
        """What a follow-up would make stands in the way of itself, dead: remove that first."""
        path = plan.deletes[-1]
        return Plan({path: plan.compares[path]}, {}, [path], makes_room=True)

    def _add(self, plan: Plan, command: Command) -> Applied | None:
        key = key_of(command)
        path = path_of(key)
        record = self.copy.records.get(path)
        if type(command) in REMOVING:
            return self._add_removal(plan, command, record)
        if self._is_there(command, record):
            return self._unchanged(command)
        if record is not None and not record.alive:
            plan.compares[path] = Compare(path, record.mod_revision)
            plan.deletes.append(path)
            plan.makes_room = True
            return None
        plan.compares[path] = Compare(path, ABSENT if record is None else record.mod_revision)
        on = tuple(self._need(plan, need, key) for need in needs_of(key))
        shard = self.shard_of(command) if isinstance(command, DeclareQueue) else None
        home = self._home_of(command) if shard is None else None
        plan.puts[path] = Definition(command=command, on=on, home=home, shard=shard)
        return None

    def _add_removal(self, plan: Plan, command: Command, record: Record | None) -> Applied | None:
        if record is None or not record.alive:
            return carry_out(self.node, command)  # nothing is there, so that nothing changes
        for each in (record, *self._granted_before(command)):
            plan.compares[each.path] = Compare(each.path, each.mod_revision)
            plan.deletes.append(each.path)
        return None

    def _granted_before(self, command: Command) -> list[Record]:
        """Permissions for a vhost that goes, which were granted before it was there: they do not end by
        themselves. What does not fit into the transaction stays, as it did when there was no vhost.
        """
        if type(command) is not DeleteVhost:
            return []
        vhost = path_of(VhostKey(command.name))
        hanging = (self.copy.records[path] for path in self.copy.hanging.get(vhost, ()))
        granted = [each for each in hanging if each.alive and is_permission(each)]
        return [each for each in granted if not each.definition.on[-1]][: WRITES_MAX - 1]

    def _is_there(self, command: Command, record: Record | None) -> bool:
        """Whether what the command makes is there already, just so; its check has compared a declaration."""
        if isinstance(command, DeclareExchange):
            return command.name in self.node.vhosts[command.vhost].exchanges
        if record is None or not record.alive:
            return False
        return type(command) not in REPLACING or says_the_same(record.definition.command, command)

    def _unchanged(self, command: Command) -> Applied:
        if isinstance(command, DeclareExchange | DeclareQueue):
            return carry_out(self.node, command)  # it returns what is there
        return UNCHANGED

    def _need(self, plan: Plan, need: Key, of: Key) -> int:
        """The revision at which something was made that a definition hangs on; it must still be that."""
        path = path_of(need)
        found = self.copy.records.get(path)
        if found is not None and found.alive:
            plan.compares[path] = CompareCreated(path, found.create_revision)
            return found.create_revision
        if not may_be_absent(need, of):
            raise NotFound(f"no {need}")
        plan.compares[path] = Compare(path, ABSENT if found is None else found.mod_revision)
        return 0

    def _home_of(self, command: Command) -> Home | None:
        node, run = self.me.node, self.me.run
        if isinstance(command, DeclareQueue):
            is_to_stay = command.durable and command.owner is None
            return Home(node, "" if is_to_stay else run, command.owner or 0)
        if isinstance(command, DeclareExchange) and not (command.durable and not command.auto_delete):
            return Home(node, "" if command.durable else run)
        return None


def _in_no_shard(_command: DeclareQueue) -> int | None:
    """The queue lives on this node alone."""
    return None


def still_wanted(node: Node, command: Command) -> bool:
    """Whether a change that the model itself asked for still makes sense. A queue or an exchange that was to
    go since nobody used it may be in use again.
    """
    if not isinstance(command, DeleteExchange | DeleteQueue):
        return True
    vhost = node.vhosts.get(command.vhost)
    if vhost is None:
        return False
    if isinstance(command, DeleteExchange):
        exchange = vhost.exchanges.get(command.name)
        return exchange is not None and not exchange.bindings
    queue = vhost.queues.get(command.name)
    return queue is None or queue.owner is not None or not queue.is_consumed
