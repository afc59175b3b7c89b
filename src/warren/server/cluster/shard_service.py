"""A broker's part in the shards of its cluster: its links, its disk's copies, and its queues."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from structlog.stdlib import BoundLogger

from warren.broker.node import Node
from warren.cluster.config import Known, Leadership, RunId, StoreId
from warren.cluster.known_stores import IN
from warren.cluster.letters import Way
from warren.cluster.messages import Hello, Message
from warren.cluster.settings import Settings
from warren.cluster.wire import VERSION
from warren.server.address import Address, address_text, is_port, split_address
from warren.server.cluster.balancer import Balancer
from warren.server.cluster.definitions import ClusterDefinitions
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.figure_service import FigureService
from warren.server.cluster.first_node import first_node
from warren.server.cluster.letter_service import LetterService
from warren.server.cluster.peers import NodeCredentials, Peers
from warren.server.cluster.settings import ClusterSettings
from warren.server.cluster.shard_queues import ShardQueues
from warren.server.cluster.shard_records import ShardRecords
from warren.server.cluster.shard_runner import ShardRunner
from warren.server.cluster.switchboard import Switchboard
from warren.server.cluster.tasks import Tasks
from warren.server.cluster.waiting_shard import NO_LEADER
from warren.server.world import LoopWorld
from warren.storage.directory import stream_identity
from warren.storage.replication import LogId
from warren.storage.segment_copies import ReplicaMismatch
from warren.storage.shards import SHARDS
from warren.storage.store import DiskStore

HAND_OVER_SECONDS_MAX = 5.0
FAREWELL_SECONDS_MAX = 1.0


class PeerAt(NamedTuple):
    """Where another node is called."""

    host: str
    port: int


class ShardService:
    def __init__(
        self,
        node: Node,
        definitions: ClusterDefinitions,
        etcd: Etcd,
        settings: ClusterSettings,
        cluster: str,
        run: str,
        store: DiskStore,
        log: BoundLogger,
    ) -> None:
        self.node = node
        self.definitions = definitions
        self.etcd = etcd
        self.settings = settings
        self.cluster = cluster  # its id
        self.log = log
        self.loop = asyncio.get_running_loop()
        assert isinstance(node.world, LoopWorld)
        self.watchdog = node.world.watchdog
        self.queues = ShardQueues(node, definitions.metadata, self._leaders, settings.replicate)
        self.shards = store.open_shards(
            call_from_thread=self._call_from_thread,
            is_stream=self.queues.is_stream,
            spread=node.turns.spread,
        )
        self.store_id = StoreId(self.shards.store_id)
        self.me = Leadership(self.store_id, RunId(run))
        self.queues.me = self.store_id
        self.queues.why_waiting = self._why_waiting
        times = Settings(
            min_in_sync=settings.min_in_sync, lease=settings.lease_seconds, grace=settings.grace_seconds
        )
        self.runner = ShardRunner(self.me, self.shards, node.world, self.queues, log, settings=times)
        self.queues.hand_over = self.runner.hand_over
        self.runner.terms.on_committed = node.end_turn
        store.after_marks = self.runner.end_turn
        node.before_draining = self.runner.before_draining
        store.problems.on_damage = lambda path: self._call_from_thread(partial(self._is_damaged, path))
        store.shared_stream_id = self._stream_id
        self.records = ShardRecords(etcd, settings.prefix, log, learn=self._learn, report=node.world.report)
        self.balancer = Balancer(
            self.runner.participant,
            self.records,
            settings,
            log,
            learn=self.runner.learn,
            clock=self.runner.clock,
        )
        self.tasks = Tasks(node.world.report)
        self.nodes: dict[StoreId, tuple[str, str]] = {}  # the name of each node, and where it is called
        self.has_moved = asyncio.Event()  # a shard is not led here any more, or a record has changed
        self.is_stopping = False  # what this node leads is handed over, whatever its record says
        definitions.metadata.leader_of = self._leader_name
        definitions.on_node = self._node_is_at
        self.peers: Peers | None = None
        self.letters = LetterService(
            node, definitions.metadata, self._way_to, self._store_named, self._send, self.runner.clock
        )
        self.figures = FigureService(node, lambda: self.runner.participant.node.links, self._send)

    def _call_from_thread(self, work: Callable[[], None]) -> None:
        self.loop.call_soon_threadsafe(self.watchdog.run, work)

    def _stream_id(self, vhost: str, name: str) -> str:
        """The id of a stream, which is the same on all nodes."""
        number = self.queues.stream_number(vhost, name)
        return "" if number is None else stream_identity(self.cluster, number)

    # --- start and end ---

    async def recover(self) -> None:
        """See what this store has of each shard."""
        for number in range(self.settings.shards):
            found = await self.loop.run_in_executor(None, self.shards.find, number)
            copies = self.shards.follow(number, found, on_mismatch=partial(self._mismatch, number))
            self.runner.add(number, copies)

    def _mismatch(self, number: int, found: ReplicaMismatch) -> None:
        self.runner.mismatch(found, number)

    def _is_damaged(self, path: str) -> None:
        """A segment was met of which something is missing: if it is a shard's, others have it."""
        parts = Path(path).relative_to(self.shards.root).parts
        if parts[0] == SHARDS:
            _, number, queue, *part, base = parts
            self.runner.damaged(int(number), LogId(int(queue), "/".join(part)), int(base))

    def credentials(self, secret: bytes) -> NodeCredentials:
        """What this node shows to others. `secret` is that of the cluster."""
        hello = Hello(self.cluster, self.store_id, self.me.run, VERSION, VERSION)
        return NodeCredentials(hello=hello, secret=secret, random_bytes=os.urandom)

    async def listen(self, at: Address, credentials: NodeCredentials) -> str:
        """Let other nodes call. Return where."""
        switchboard = Switchboard(self.runner, self.letters, self.figures)
        self.peers = Peers(credentials, switchboard, self.watchdog.run, self.log)
        try:
            port = await self.peers.listen(at.host, at.port)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {at} for other nodes: {error.strerror}") from error
        return address_text(at.host, port)

    def start(self) -> None:
        """Take part. The other nodes know of this one."""
        assert self.peers is not None
        self.runner.start(self.peers, self.records)
        self.letters.start()
        self._set_peers()
        self.tasks.repeat(self.balancer.look_when_due)
        self.tasks.repeat(self.figures.round)

    async def hand_over(self) -> None:
        """Have other nodes lead what this one leads, and wait for it no more, if they can in time."""
        self.is_stopping = True
        self.node.end_turn()  # what was published until now is on its way to the followers
        self.runner.terms.on_let_go = self.has_moved.set
        self.runner.leave()
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS_MAX):
                await self._until(lambda: not self.runner.terms.led)
        except TimeoutError:
            self.log.warning("not all shards were handed over", shards=len(self.runner.terms.led))
        self.runner.say_farewell()
        try:
            async with asyncio.timeout(FAREWELL_SECONDS_MAX):
                await self._until(lambda: not self.runner.participant.is_waited_for)
        except TimeoutError:
            self.log.info("some leaders wait for this node until they find that it is gone")

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that comes with a change of who leads, or who is in sync."""
        while not holds():
            self.has_moved.clear()
            await self.has_moved.wait()

    async def stop(self) -> None:
        await self.tasks.stop()
        self.letters.stop()
        await self.runner.stop()
        if self.peers is not None:  # the runner does not have them if the start has failed
            await self.peers.stop()
        await self.queues.stop()

    # --- other nodes ---

    def _node_is_at(self, name: str, facts: dict[str, str]) -> None:
        store = StoreId(facts.get("store", ""))
        for other in [other for other, (known, _) in self.nodes.items() if known == name]:
            del self.nodes[other]
        if store:  # else the node keeps no shards
            self.nodes[store] = name, facts.get("peers", "")
        self.balancer.node_is_at(name, facts)
        if name == self.settings.node and not self.is_stopping:
            self._take_state(facts.get("state", IN))
        self._set_peers()

    def _set_peers(self) -> None:
        if self.peers is None:
            return
        addresses = {}
        for store, (_, address) in self.nodes.items():
            host, port = split_address(address)
            if host and is_port(port):
                addresses[store] = PeerAt(host, int(port))
        self.peers.set_peers(addresses)

    def _take_state(self, state: str) -> None:
        """An operator has this node drained, or not any more."""
        if state == IN:
            self.runner.participant.undrain()
        else:
            self.runner.drain()

    def _learn(self, shard: int, known: Known) -> None:
        self.runner.learn(shard, known)
        self.balancer.changed()
        self.has_moved.set()

    def first_node(self) -> str:
        there = {*self.runner.participant.node.links, self.store_id}
        return first_node(self.balancer.stores.nodes, there)

    # --- who leads ---

    def _leaders(self) -> dict[int, StoreId | None]:
        """Of all shards that have a record."""
        return {
            number: None if shard.known.record.leader is None else shard.known.record.leader.store
            for number, shard in self.runner.participant.shards.items()
            if shard.known is not None
        }

    def _way_to(self, shard: int) -> Way | None:
        """Who leads a shard; None if nobody does, or this node itself."""
        found = self.runner.participant.shards.get(shard)
        record = None if found is None or found.known is None else found.known.record
        if record is None or record.leader is None or record.leader.store == self.store_id:
            return None
        return Way(record.leader.store, record.epoch)

    def _store_named(self, name: str) -> StoreId | None:
        return next((store for store, (known, _) in self.nodes.items() if known == name), None)

    def _send(self, store: StoreId, message: Message) -> None:
        if self.peers is not None:
            self.peers.send(store, message)

    def _leader_name(self, shard: int) -> str:
        leader = self._leaders().get(shard)
        return self.nodes[leader][0] if leader in self.nodes and leader is not None else ""

    def _why_waiting(self, shard: int) -> str:
        """Of a queue in a shard that this node leads."""
        there, replicas = self.runner.participant.shards[shard].copies_there(self.runner.clock())
        return f"{NO_LEADER}: {there} of {replicas} replicas {'is' if there == 1 else 'are'} there"
