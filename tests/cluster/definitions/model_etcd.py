"""A model of etcd, and nodes around it, between which a test decides what happens when, and what is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.fakes import EXCHANGE_TYPES, FakeWorld
from warren.broker.changes import Applied
from warren.broker.commands import Command
from warren.broker.node import Limits, Node
from warren.cluster.definitions.definition import LAST, Home
from warren.cluster.definitions.definition_copy import DefinitionCopy
from warren.cluster.definitions.gateway import LastRead
from warren.cluster.definitions.metadata import Metadata
from warren.cluster.transactions import (
    OPERATIONS_MAX,
    Answer,
    Changed,
    Compare,
    KeyValue,
    Outcome,
    Put,
    Transaction,
)

PREFIX = "/warren/test/d/"
STEPS_MAX = 2_000  # until everything that is wanted has happened


class ModelEtcd:
    """Keys with revisions, as etcd has them; and what was alive at each revision, to judge answers by."""

    def __init__(self) -> None:
        self.revision = 1
        self.kvs: dict[str, KeyValue] = {}
        self.history: list[list[Changed]] = []  # of each revision that changed something
        self.truth: list[dict[str, bytes]] = [{}, {}]  # by revision: what is alive, by path

    def txn(self, wanted: Transaction) -> Answer:
        assert max(len(wanted.compares), len(wanted.writes)) <= OPERATIONS_MAX
        if not all(self._holds(compare) for compare in wanted.compares):
            return Answer(Outcome.FAILED, self.revision, tuple(self.kvs.get(key) for key in wanted.reads))
        self.revision += 1
        changed: list[Changed] = []
        for write in wanted.writes:
            assert all(each.key != write.key for each in changed), "etcd refuses to write a key twice"
            old = self.kvs.pop(write.key, None)
            if isinstance(write, Put):
                created = self.revision if old is None else old.create_revision
                version = 1 if old is None else old.version + 1
                now = KeyValue(write.key, write.value, created, self.revision, version)
                self.kvs[write.key] = now
                changed.append(Changed(write.key, self.revision, now))
            elif old is not None:
                changed.append(Changed(write.key, self.revision, None))
        self.history.append(changed)
        self.truth.append(self._alive())
        return Answer(Outcome.SUCCEEDED, self.revision)

    def _holds(self, compare: object) -> bool:
        assert isinstance(compare, tuple)
        kv = self.kvs.get(compare[0])
        found = 0 if kv is None else kv.mod_revision if isinstance(compare, Compare) else kv.create_revision
        return bool(found == compare[1])

    def _alive(self) -> dict[str, bytes]:
        copy = DefinitionCopy()
        copy.load(
            (key.removeprefix(PREFIX), kv) for key, kv in self.kvs.items() if not key.endswith("/" + LAST)
        )
        assert not copy.unreadable
        return {path: self.kvs[PREFIX + path].value for path, record in copy.records.items() if record.alive}


class Request(NamedTuple):
    transaction: Transaction | None  # None: a read of `LAST`
    done: Callable[[object], None]


@dataclass
class Asked:
    """A client's request, and its answer."""

    command: Command
    since: int  # etcd's revision when it was asked
    applied: Applied | None = None
    until: int = 0  # etcd's revision when it was answered


@dataclass(eq=False)
class Member:
    """A node, and its way to etcd, on which nothing happens by itself."""

    etcd: ModelEtcd
    name: str
    run: str = "1"
    requests: list[Request] = field(default_factory=list)  # that etcd has not seen
    late: list[Transaction] = field(default_factory=list)  # given up here, and may still reach etcd
    wants_load: bool = True
    seen: int = 0  # how much of etcd's history the watch has told, or lost
    asked: list[Asked] = field(default_factory=list)
    was_cut_off: bool = False  # whether a read ever failed: then an answer may be older

    def __post_init__(self) -> None:
        self.world = FakeWorld()
        self.node = Node(self.world, Limits(), EXCHANGE_TYPES, "test")
        self.metadata = Metadata(self.node, self, PREFIX, Home(self.name, self.run))
        self.node.proposer = self.metadata

    # --- the gateway ---

    def send(self, transaction: Transaction, done: Callable[[Answer], None]) -> None:
        self.requests.append(Request(transaction, done))  # type: ignore[arg-type]

    def read_last(self, done: Callable[[LastRead], None]) -> None:
        self.requests.append(Request(None, done))  # type: ignore[arg-type]

    def load_again(self, reason: str) -> None:
        assert reason
        self.wants_load = True

    # --- what the test decides ---

    def ask(self, command: Command) -> Asked:
        asked = Asked(command, self.etcd.revision)
        self.asked.append(asked)

        def answered(applied: Applied) -> None:
            assert asked.applied is None, "one answer for each request"
            asked.applied, asked.until = applied, self.etcd.revision

        self.node.change(command, answered)
        self.world.run()
        return asked

    def run_request(self, fate: str = "done") -> None:
        """Have the first request reach etcd; or not; or lose its answer."""
        if not self.requests:
            return
        request = self.requests.pop(0)
        if request.transaction is None:
            self._run_read(request, fate)
        elif fate == "done":
            request.done(self.etcd.txn(request.transaction))
        elif fate == "refused":
            request.done(Answer(Outcome.NOT_SENT, reason="refused"))
        else:
            if fate == "answer lost":
                self.etcd.txn(request.transaction)
            elif fate == "late":
                self.late.append(request.transaction)
            reason = fate if fate == "no space" else "no answer"
            request.done(Answer(Outcome.UNKNOWN, reason=reason))
        self.world.run()

    def _run_read(self, request: Request, fate: str) -> None:
        if fate == "done":
            request.done(LastRead(reached=True, kv=self.etcd.kvs.get(PREFIX + LAST)))
        else:
            self.was_cut_off = True
            request.done(LastRead(reached=False, reason="no answer"))

    def run_late(self) -> None:
        """A transaction reaches etcd, long after its sender has given up waiting for the answer."""
        if self.late:
            self.etcd.txn(self.late.pop(0))

    def watch(self, fate: str = "done") -> None:
        """Tell the next revision; or lose it; or a part of it."""
        if self.wants_load or self.seen >= len(self.etcd.history):
            return
        changes = self.etcd.history[self.seen]
        self.seen += 1
        if fate == "lost":
            return
        if not self.metadata.told(changes if fate == "done" else changes[1:]):
            self.wants_load = True
        self.world.run()

    def load(self) -> None:
        if self.wants_load:
            self.wants_load = False
            self.metadata.load(self.etcd.revision, list(self.etcd.kvs.values()))
            self.seen = len(self.etcd.history)
            self.world.run()

    def pass_time(self, seconds: float) -> None:
        self.world.advance(seconds)
        self.metadata.check_times()
        self.world.run()

    def is_settled(self) -> bool:
        open_ = self.metadata.proposals.open
        return not (self.requests or self.wants_load or open_ or self.seen < len(self.etcd.history))

    def step(self) -> None:
        """Let everything happen that should."""
        self.load()
        self.run_request()
        self.watch()
        self.metadata.look_at(self.etcd.kvs.get(PREFIX + LAST))
        self.pass_time(0.3)


def settle(*members: Member) -> None:
    """All goes well from now on."""
    for _ in range(STEPS_MAX):
        for member in members:
            member.step()
        if all(member.is_settled() for member in members):
            return
    raise AssertionError("the nodes do not come to an end")


def topology(node: Node) -> dict[str, object]:
    """All definitions as a node's model has them, apart from where a queue lives."""
    return {
        "users": {
            user.name: (user.tags, dict(user.permissions), dict(user.topic_permissions))
            for user in node.users.values()
        },
        "global": dict(node.parameters.of_node),
        **{f"vhost {vhost.name}": _of_vhost(node, vhost.name) for vhost in node.vhosts.values()},
    }


def _of_vhost(node: Node, name: str) -> dict[str, object]:
    vhost = node.vhosts[name]
    return {
        "limits": vhost.limits,
        "policies": sorted(
            (policy.name, policy.pattern, repr(policy.definition))
            for policy in vhost.policies.policies.values()
        ),
        "parameters": dict(node.parameters.of_vhost(name)),
        "exchanges": {
            each.name: (each.type, each.durable, each.arguments) for each in vhost.exchanges.values()
        },
        "queues": {
            each.name: (each.durable, each.auto_delete, each.owner is not None, each.arguments, each.paused)
            for each in vhost.all_queues()
        },
        "bindings": sorted(
            (each.source.name, each.destination.name, each.destination.is_queue, each.routing_key)
            for exchange in vhost.exchanges.values()
            for each in exchange.bindings.values()
        ),
    }
