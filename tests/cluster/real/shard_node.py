"""A node of a cluster without clients: real disk, real links, real etcd. In place of the broker it has one
log in each shard, to which the test appends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from warren.amqp.budget import Budget
from warren.broker.message import Message
from warren.broker.store import NOTHING_TO_READ
from warren.broker.turns import Turns
from warren.cluster.config import Leadership, RunId, ShardRecord, StoreId, create
from warren.cluster.known_stores import IN
from warren.cluster.messages import Hello
from warren.cluster.placement import first_replicas
from warren.cluster.safety import ShardSafety
from warren.cluster.settings import Settings
from warren.cluster.wire import VERSION
from warren.server.cluster.balancer import Balancer
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.peers import NodeCredentials, Peers
from warren.server.cluster.settings import ClusterSettings
from warren.server.cluster.shard_records import ShardRecords
from warren.server.cluster.shard_runner import ShardRunner
from warren.server.cluster.tasks import Tasks
from warren.server.log import get_logger
from warren.server.store_runner import StoreRunner
from warren.server.world import LoopWorld
from warren.storage.led_shard import LedShard
from warren.storage.queue_log import QueueLog
from warren.storage.replication import LogId
from warren.storage.segment_copies import ReplicaMismatch
from warren.storage.store import StorageSettings

PREFIX = "/warren/test/"
SECRET = b"known to all nodes of the cluster"
HOST = "127.0.0.1"
LOG = LogId(7)
SECONDS_MAX = 60
SHARDS = 4
CLUSTER = ClusterSettings(
    name="test",
    node="",
    etcd=None,
    advertise=None,
    http_advertise=None,
    peers_bind=None,
    peers_advertise=None,
    secret_file="",
    shards=SHARDS,
    replicas=3,
    min_in_sync=2,
    lease_seconds=1.5,
    grace_seconds=2.5,
    replace_after_seconds=600.0,
    replicate="durable",
)
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class At:
    host: str
    port: int


class LedLog:
    """The one log of a shard, while this node leads it."""

    def __init__(self, led: LedShard, safety: ShardSafety) -> None:
        self.led = led
        self.safety = safety
        self.log: QueueLog
        self.log, self.position = led.open_log(LOG)
        self.may_deliver = False

    def append(self, body: bytes, then: Callable[[], None]) -> None:
        """Call back when the message is safe everywhere."""
        self.position += 1
        self.log.append(Message(b"\0", b"\1q", b"\0\0", body, True, 1), self.position, False)
        self.safety.when_safe(lambda _index: then())

    def bodies(self) -> list[bytes]:
        browser, found, above = self.log.browse(), list[bytes](), 0
        while (position := browser.next_position(above)) != NOTHING_TO_READ:
            found.append(browser.read().body)
            above = position
        return found


class ShardNode:
    def __init__(self, path: Path, etcd: Etcd, run: int = 1, *, port: int = 0) -> None:
        self.path = path
        self.etcd = etcd
        self.run = run
        self.port = port
        self.log = get_logger()
        self.disk_alarms = 0
        self.jobs: list[Callable[[], None]] = []  # it has none in line
        self.state = IN  # as its record says
        self.former: list[StoreId] = []  # stores that a node of this name had
        self.tasks: Tasks | None = None  # that look after the shards
        self.led: dict[int, LedLog] = {}
        self.changed = asyncio.Event()  # something about `led`

    @property
    def turns(self) -> ShardNode:
        return self

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.world = LoopWorld(loop, self.log)
        self.disk = StoreRunner(StorageSettings(path=self.path), self.world, self.log)
        self.disk.attach(self, self)  # type: ignore[arg-type]  # of node and resources it needs what is below
        await self.disk.recover()
        self.disk.start()
        store = self.disk.store
        shards = store.open_shards(
            call_from_thread=self._call_from_thread,
            is_stream=lambda _queue: False,
            spread=Turns(self.world, Budget(), lambda: None, self.world.report).spread,
        )
        self.store_id = StoreId(shards.store_id)
        me = Leadership(self.store_id, RunId(f"{self.store_id}.{self.run}"))
        self.runner = ShardRunner(me, shards, self.world, self, self.log, settings=Settings())
        for number in range(SHARDS):
            copies = shards.follow(
                number,
                shards.find(number),
                on_mismatch=partial(self._mismatch, number),
            )
            self.runner.add(number, copies)
        credentials = NodeCredentials(
            hello=Hello("test", self.store_id, me.run, VERSION, VERSION),
            secret=SECRET,
            random_bytes=os.urandom,
        )
        self.peers = Peers(credentials, self.runner, self.world.watchdog.run, self.log)
        self.port = await self.peers.listen(HOST, self.port)
        self.records = ShardRecords(
            self.etcd, PREFIX, self.log, learn=self.runner.learn, report=self.world.report
        )

    def _call_from_thread(self, work: Callable[[], None]) -> None:
        self.world.loop.call_soon_threadsafe(work)

    def _mismatch(self, number: int, found: ReplicaMismatch) -> None:
        self.runner.mismatch(found, number)

    def join(self, nodes: list[ShardNode]) -> None:
        self.peers.set_peers({node.store_id: At(HOST, node.port) for node in nodes})
        self.runner.start(self.peers, self.records)

    def know(self, nodes: list[ShardNode]) -> None:
        """These are the nodes of the cluster from now on; the shards are placed on them."""
        self.peers.set_peers({node.store_id: At(HOST, node.port) for node in nodes})
        if self.tasks is None:
            self.balancer = Balancer(
                self.runner.participant,
                self.records,
                CLUSTER,
                self.log,
                learn=self.runner.learn,
                clock=self.runner.clock,
            )
            self.tasks = Tasks(self.world.report)
            self.tasks.repeat(self.balancer.look_when_due)
        for node in nodes:
            facts = {"store": node.store_id, "state": node.state, "former": " ".join(node.former)}
            self.balancer.node_is_at(node.path.name, facts)

    async def stop(self) -> None:
        if self.tasks is not None:
            await self.tasks.stop()
        await self.runner.stop()
        await self.disk.close()
        self.world.threads.shutdown()

    # --- what a broker's node does ---

    def end_turn(self) -> None:
        self.disk.store.write_marks()
        self.runner.end_turn()

    def check_disk_space(self, _written: int) -> None:
        """There is room enough."""

    def raise_disk_alarm(self) -> None:
        self.disk_alarms += 1

    def has_queue(self, number: int) -> bool:
        return number == LOG.queue

    def shard_is_led(self, shard: int, led: LedShard) -> None:
        """Its one log is read back when it is opened."""

    def shard_opened(self, shard: int, led: LedShard, safety: ShardSafety) -> None:
        self.led[shard] = LedLog(led, safety)

    def shard_may_deliver(self, shard: int, *, may: bool) -> None:
        self.led[shard].may_deliver = may
        self.changed.set()

    def shard_ended(self, shard: int) -> None:
        self.led.pop(shard, None)
        self.changed.set()

    # --- what a test does ---

    async def publish(self, shard: int, *bodies: bytes) -> None:
        """Return when all of them are safe everywhere."""
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[None]] = []
        for body in bodies:
            safe: asyncio.Future[None] = loop.create_future()
            waiting.append(safe)
            self.led[shard].append(body, lambda safe=safe: safe.set_result(None))  # type: ignore[misc]
        self.end_turn()
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(*waiting)

    def record(self, shard: int) -> ShardRecord | None:
        """A shard's record, as this node knows it."""
        known = self.runner.participant.shards[shard].known
        return None if known is None else known.record

    async def until_in_sync(self, shard: int, count: int) -> None:
        """Return when so many stores have all that is confirmed, as the record says that the leader knows."""
        await until(lambda: len(record.isr) >= count if (record := self.record(shard)) else False)


async def create_shards(nodes: list[ShardNode]) -> None:
    """Write the first records: each node keeps each shard."""
    replicas = first_replicas([node.store_id for node in nodes], shards=SHARDS, replicas=len(nodes))
    await nodes[0].records.create([create(stores, min_in_sync=2) for stores in replicas])


async def until(what: Callable[[], bool]) -> None:
    """Return when something holds that no event tells us of."""
    async with asyncio.timeout(SECONDS_MAX):
        while not what():  # noqa: ASYNC110 - etcd tells nobody
            await asyncio.sleep(LOOK_SECONDS)


async def leader_of(nodes: list[ShardNode], shard: int) -> ShardNode:
    """The node that leads a shard and may deliver, as soon as there is one."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            for node in nodes:
                led = node.led.get(shard)
                if led is not None and led.may_deliver:
                    return node
            waiting = [asyncio.create_task(node.changed.wait()) for node in nodes]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            for node in nodes:
                node.changed.clear()
