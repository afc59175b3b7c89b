"""A broker's part in the shards of its cluster: its links, its disk's copies, and its queues, put together.

<prefix>secret    what nodes prove to each other that they know, unless a file has it
"""

from __future__ import annotations

import asyncio
import os
import secrets
from functools import partial
from pathlib import Path
from typing import NamedTuple

from structlog.stdlib import BoundLogger

from warren.broker.node import Node
from warren.cluster.config import Leadership, RunId, StoreId, create
from warren.cluster.handshake import SECRET_BYTES_MIN
from warren.cluster.messages import Hello
from warren.cluster.placement import first_replicas
from warren.cluster.settings import Settings
from warren.cluster.transactions import ABSENT, Compare, Put, Transaction
from warren.cluster.wire import VERSION
from warren.server.cluster.definitions import ClusterDefinitions
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.peers import NodeCredentials, Peers
from warren.server.cluster.settings import ClusterSettings
from warren.server.cluster.shard_queues import ShardQueues
from warren.server.cluster.shard_records import ShardRecords
from warren.server.cluster.shard_runner import ShardRunner
from warren.server.config_error import ConfigError
from warren.server.world import LoopWorld
from warren.storage.segment_copies import ReplicaMismatch
from warren.storage.store import DiskStore

SECRET_BYTES = 32
HAND_OVER_SECONDS_MAX = 5.0
LOOK_SECONDS = 0.02  # between looks whether all is handed over
LOOPBACK = "127.0.0.1"


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
        self.shards = store.open_shards(
            call_from_thread=self._call_from_thread, is_stream=lambda _queue: False
        )
        self.store_id = StoreId(self.shards.store_id)
        self.me = Leadership(self.store_id, RunId(run))
        self.queues = ShardQueues(node, definitions.metadata, self._leaders, settings.replicate)
        self.queues.me = self.store_id
        times = Settings(
            min_in_sync=settings.min_in_sync, lease=settings.lease_seconds, grace=settings.grace_seconds
        )
        self.runner = ShardRunner(self.me, self.shards, node.world, self.queues, log, settings=times)
        self.runner.on_committed = node.end_turn
        store.after_marks = self.runner.end_turn
        self.records = ShardRecords(
            etcd, settings.prefix, log, learn=self.runner.learn, report=node.world.report
        )
        self.nodes: dict[StoreId, tuple[str, str]] = {}  # the name of each node, and where it is called
        self.creating: asyncio.Task[None] | None = None  # writes the first records
        definitions.metadata.leader_of = self._leader_name
        definitions.on_node = self._node_is_at
        self.peers: Peers | None = None

    def _call_from_thread(self, work: object) -> None:
        self.loop.call_soon_threadsafe(work)  # type: ignore[arg-type]

    # --- start and end ---

    async def recover(self) -> None:
        """See what this store has of each shard."""
        for number in range(self.settings.shards):
            found = await self.loop.run_in_executor(None, self.shards.find, number)
            copies = self.shards.follow(number, found, on_mismatch=partial(self._mismatch, number))
            self.runner.add(number, copies)

    def _mismatch(self, number: int, found: ReplicaMismatch) -> None:
        self.runner.mismatch(found, number)

    async def listen(self) -> str:
        """Let other nodes call. Return where."""
        host, _, port = self.settings.peers_bind.rpartition(":")
        hello = Hello(self.cluster, self.store_id, self.me.run, VERSION, VERSION)
        credentials = NodeCredentials(hello=hello, secret=await self._secret(), random_bytes=os.urandom)
        world = self.node.world
        assert isinstance(world, LoopWorld)
        self.peers = Peers(credentials, self.runner, world.watchdog.run, self.log)
        host = host or LOOPBACK
        number = await self.peers.listen(host, int(port or 0))
        return f"{host}:{number}"

    async def _secret(self) -> bytes:
        if self.settings.secret_file:
            return _read_secret(Path(self.settings.secret_file))
        key = self.settings.prefix + "secret"
        made = Put(key, secrets.token_hex(SECRET_BYTES).encode())
        await self.etcd.txn(Transaction((Compare(key, ABSENT),), (made,)))
        found = await self.etcd.get(key)
        if found is None:
            raise ConfigError(f"etcd does not keep {key}")
        return found.value

    def start(self) -> None:
        """Take part. The other nodes know of this one."""
        assert self.peers is not None
        self.runner.start(self.peers, self.records)
        self._set_peers()

    async def hand_over(self) -> None:
        """Have other nodes lead what this one leads, if they can in time."""
        self.runner.participant.drain()
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS_MAX):
                while self.runner.led:  # noqa: ASYNC110 - at the end, and not for long
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            self.log.warning("not all shards were handed over", shards=len(self.runner.led))

    async def stop(self) -> None:
        if self.creating is not None:
            self.creating.cancel()
        await self.runner.stop()

    # --- other nodes ---

    def _node_is_at(self, name: str, facts: dict[str, str]) -> None:
        store = StoreId(facts.get("store", ""))
        for other in [other for other, (known, _) in self.nodes.items() if known == name]:
            del self.nodes[other]
        self.nodes[store] = name, facts.get("peers", "")
        self._set_peers()

    def _set_peers(self) -> None:
        if self.peers is None:
            return
        addresses = {}
        for store, (_, address) in self.nodes.items():
            host, _, port = address.rpartition(":")
            if host and port.isdecimal():
                addresses[store] = PeerAt(host, int(port))
        self.peers.set_peers(addresses)
        if len(self.nodes) >= self.settings.replicas and self.creating is None:
            self.creating = self.loop.create_task(self._create())

    async def _create(self) -> None:
        """Write the first records of the shards, unless another node has."""
        stores = sorted(self.nodes)
        replicas = first_replicas(stores, shards=self.settings.shards, replicas=self.settings.replicas)
        await self.records.create([create(each, min_in_sync=self.settings.min_in_sync) for each in replicas])

    def _leaders(self) -> dict[int, StoreId | None]:
        """Of all shards that have a record."""
        return {
            number: None if shard.known.record.leader is None else shard.known.record.leader.store
            for number, shard in self.runner.participant.shards.items()
            if shard.known is not None
        }

    def _leader_name(self, shard: int) -> str:
        leader = self._leaders().get(shard)
        return self.nodes[leader][0] if leader in self.nodes and leader is not None else ""


def _read_secret(path: Path) -> bytes:
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cluster_secret_file: {error}") from error
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(f"cluster_secret_file: at least {SECRET_BYTES_MIN} bytes are needed")
    return secret
