"""Runs the definitions of a cluster: between etcd and `Metadata`, and so the node's model.

One task loads all definitions and follows their changes; if something is lost, it loads them again. If etcd
cannot be reached, the node goes on with what it has, and this goes on trying.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter

from structlog.stdlib import BoundLogger

from warren.broker.node import Node
from warren.cluster.definitions.definition import LAST, Home
from warren.cluster.definitions.gateway import LastRead
from warren.cluster.definitions.metadata import Metadata
from warren.cluster.transactions import Answer, Changed, KeyValue, Transaction
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_errors import EtcdError
from warren.server.cluster.presence import ASKED, answer
from warren.server.cluster.settings import ClusterSettings
from warren.server.cluster.tasks import Tasks

CHANGES_A_TURN = 200
TIMES_SECONDS = 0.25  # between looks at who has waited for too long
COUNT_SECONDS = 10.0  # between looks whether changes were lost
LATE_SECONDS = 1.0  # that a change may be on its way to us
RETRY_SECONDS = 1.0  # after etcd could not be reached
SETTLED_SECONDS = 0.02  # between looks whether all changes are made, at the end
TOLD_SECONDS = 10.0  # between lines of the log about the same trouble


class ClusterDefinitions:
    """Is the `Gateway` of a node's `Metadata`."""

    def __init__(self, node: Node, etcd: Etcd, settings: ClusterSettings, run: str, log: BoundLogger) -> None:
        self.node = node
        self.etcd = etcd
        self.log = log
        self.settings = settings
        self.run_id = run  # of this run of the node
        self.metadata = Metadata(node, self, settings.prefix + "d/", Home(settings.node, run))
        self.tasks = Tasks(node.world.report)  # all that run
        self.following: asyncio.Task[None] | None = None  # follows etcd's changes
        self.is_loading = False  # whether all definitions are being loaded
        self.is_registered = False  # whether other nodes know of this run
        self.loads = 0  # how often all definitions were loaded
        self.told_at = float("-inf")  # when the log told of trouble with etcd
        self.unreadable: set[str] = set()  # paths of definitions that the log has told of
        self.nodes_prefix = f"{settings.prefix}nodes/"
        self.nodes: dict[str, dict[str, str]] = {}  # by name, what each node has said of itself
        self.node_revisions: dict[str, int] = {}  # of the nodes' records, by key
        self.on_node: Callable[[str, dict[str, str]], None] | None = None  # told where a node is, by its name

    # --- start and end ---

    async def start(self) -> None:
        """Load all definitions, however long etcd cannot be reached, and follow them from now on."""
        self.node.proposer = self.metadata
        await self._load_at_last()
        self.metadata.clear_up()
        self._follow(is_loaded=True)
        self.tasks.repeat(self._check_times)
        self.tasks.repeat(self._check_count)
        self.tasks.repeat(self._follow_nodes, pause_seconds=RETRY_SECONDS)
        self.tasks.repeat(self._check_nodes)

    async def settled(self) -> None:
        """Return when nothing is to be changed any more."""
        while self.metadata.proposals.open:  # noqa: ASYNC110 - at the end, and not for long
            await asyncio.sleep(SETTLED_SECONDS)

    async def stop(self) -> None:
        await self.tasks.stop()

    # --- the gateway ---

    def send(self, transaction: Transaction, done: Callable[[Answer], None]) -> None:
        self.tasks.spawn(self._send(transaction, done))

    async def _send(self, transaction: Transaction, done: Callable[[Answer], None]) -> None:
        answer = await self.etcd.txn(transaction)
        if answer.reason:
            self._tell("a change of definitions has to wait for etcd", answer.reason)
        done(answer)
        self.node.end_turn()

    def read_last(self, done: Callable[[LastRead], None]) -> None:
        self.tasks.spawn(self._read_last(done))

    async def _read_last(self, done: Callable[[LastRead], None]) -> None:
        try:
            read = LastRead(reached=True, kv=await self._last())
        except EtcdError as error:
            self._tell("cannot ask etcd for changes of definitions", str(error))
            read = LastRead(reached=False, reason=str(error))
        done(read)
        self.node.end_turn()

    async def _last(self) -> KeyValue | None:
        return await self.etcd.get(self.metadata.prefix + LAST)

    def load_again(self, reason: str) -> None:
        """Unless that is being done. What is lost after that load has begun is noticed again."""
        if self.is_loading or self.following is None:
            return
        self.log.warning("all definitions are loaded again", reason=reason)
        self.following.cancel()
        self._follow(is_loaded=False)

    # --- following etcd ---

    def _follow(self, *, is_loaded: bool) -> None:
        self.following = self.tasks.spawn(self._follow_changes(is_loaded=is_loaded))

    async def _follow_changes(self, *, is_loaded: bool) -> None:
        """Watch until something is lost, and load everything; over and over."""
        if not is_loaded:
            await self._load_at_last()
        while True:
            try:
                await self._watch()
            except EtcdError as error:
                self._tell("etcd's changes cannot be followed", str(error))
                await asyncio.sleep(RETRY_SECONDS)
            await self._load_at_last()

    async def _load_at_last(self) -> None:
        """Load all definitions, however long etcd cannot be reached."""
        self.is_loading = True
        try:
            while not await self._load():  # noqa: ASYNC110 - nobody tells when etcd is back
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self.is_loading = False

    async def _load(self) -> bool:
        began = self.node.world.now()
        try:
            loaded = await self.etcd.load(self.metadata.prefix)
        except EtcdError as error:
            self._tell("definitions cannot be loaded from etcd", str(error))
            return False
        try:
            self.metadata.load(loaded.revision, loaded.kvs)
        except ValueError as error:
            self._tell("definitions are not loaded from etcd", str(error))
            return False
        self.loads += 1
        self.node.end_turn()
        took_ms = round(1000 * (self.node.world.now() - began))
        self.log.info(
            "definitions loaded from etcd", count=len(loaded.kvs), revision=loaded.revision, ms=took_ms
        )
        self._tell_unreadable()
        return True

    async def _watch(self) -> None:
        """Until something is lost."""
        prefix, revision = self.metadata.prefix, self.metadata.copy.revision + 1
        async for changes in self.etcd.watch(prefix, revision):
            for part in parts_of(changes):
                if not self.metadata.told(part):
                    self.log.warning("all definitions are loaded again", reason="changes were lost")
                    return
                self.node.end_turn()
                await asyncio.sleep(0)
            self._tell_unreadable()

    # --- from time to time ---

    async def _check_times(self) -> None:
        await asyncio.sleep(TIMES_SECONDS)
        self.metadata.check_times()
        self.node.end_turn()

    async def _check_count(self) -> None:
        """Look whether a change was lost that no other change has followed."""
        await asyncio.sleep(COUNT_SECONDS)
        try:
            last = await self._last()
        except EtcdError as error:
            self._tell("etcd cannot be reached", str(error))
            return
        await asyncio.sleep(LATE_SECONDS)
        self.metadata.look_at(last)

    # --- nodes ---

    async def _follow_nodes(self) -> None:
        """Know where the nodes of the cluster are, until a watch ends."""
        try:
            revision = await self._read_nodes()
            async for changes in self.etcd.watch(self.nodes_prefix, revision + 1):
                for change in changes:
                    if change.now is not None:
                        self._tell_node(change.now)
        except EtcdError as error:
            self._tell("etcd's nodes cannot be followed", str(error))

    async def _check_nodes(self) -> None:
        """A member of etcd that is cut off from the others tells nothing, and keeps watches open."""
        await asyncio.sleep(COUNT_SECONDS)
        try:
            await self._read_nodes()
        except EtcdError as error:
            self._tell("etcd cannot be reached", str(error))

    async def _read_nodes(self) -> int:
        """Read where all nodes are now. Return the revision of that."""
        loaded = await self.etcd.load(self.nodes_prefix)
        for kv in loaded.kvs:
            self._tell_node(kv)
        return loaded.revision

    def _tell_node(self, kv: KeyValue) -> None:
        """A node's record, as a watch or a read tells it: the other one may have told it before."""
        if kv.mod_revision <= self.node_revisions.get(kv.key, 0):
            return
        self.node_revisions[kv.key] = kv.mod_revision
        try:
            self._node_is_at(kv)
        except Exception as error:  # noqa: BLE001 - the other nodes have to be told
            self.tasks.report(error)

    def _node_is_at(self, kv: KeyValue) -> None:
        name = kv.key.removeprefix(self.nodes_prefix)
        try:
            facts: dict[str, str] = json.loads(kv.value)
            self.metadata.addresses[name] = str(facts["amqp"])
            run = str(facts["run"])
        except (ValueError, KeyError, TypeError) as error:
            self.log.warning("a node's record in etcd is not understood", node=name, error=repr(error))
            return
        self.nodes[name] = facts
        if self.on_node is not None:
            self.on_node(name, facts)
        if (
            name == self.settings.node
            and kv.mod_revision > self.metadata.copy.revision
            and run != self.run_id
        ):
            self.log.error(
                "another process is in the cluster as this node: each needs its own name", node=name
            )
        if name == self.settings.node and run == self.run_id and ASKED in facts:
            self.tasks.spawn(self._answer())

    async def _answer(self) -> None:
        """A node that starts wants to know whether this one runs."""
        try:
            await answer(self.etcd, self.settings.prefix, self.settings.node)
        except EtcdError as error:
            self._tell("a node that asks cannot be answered", str(error))

    # --- the log ---

    def _tell(self, what: str, reason: str) -> None:
        """Not for each attempt while etcd is away."""
        now = self.node.world.now()
        if now - self.told_at >= TOLD_SECONDS:
            self.told_at = now
            self.log.warning(what, reason=reason)

    def _tell_unreadable(self) -> None:
        for path, reason in self.metadata.copy.unreadable.items():
            if path not in self.unreadable:
                self.unreadable.add(path)
                self.log.warning("a definition in etcd is not understood", key=path, reason=reason)


def parts_of(changes: list[Changed]) -> Iterator[list[Changed]]:
    """Changes in parts that are not too much for a turn; a revision is never split."""
    part: list[Changed] = []
    for _, group in groupby(changes, attrgetter("revision")):
        part += group
        if len(part) >= CHANGES_A_TURN:
            yield part
            part = []
    if part:
        yield part
