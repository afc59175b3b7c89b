"""What this node knows of its cluster, for operators, and what they can have it do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict

from warren.broker.commands import DeclareQueue
from warren.cluster import config
from warren.cluster.beacons import NEVER
from warren.cluster.config import Known, ShardRecord, StoreId
from warren.cluster.definitions.definition import path_of
from warren.cluster.effects import CasAnswer
from warren.cluster.known_stores import DRAINING, IN, REMOVED
from warren.cluster.leader import Leader
from warren.cluster.session import Session
from warren.cluster.shard import Shard
from warren.cluster.transactions import Outcome
from warren.server.cluster.etcd_errors import EtcdError
from warren.server.cluster.settings import ClusterSettings
from warren.server.cluster.shard_service import ShardService
from warren.server.cluster.views import (
    CannotReachEtcd,
    FollowerView,
    ForcedView,
    NodeView,
    OperationRefused,
    PlaceView,
    ShardView,
)
from warren.server.metrics import Metric, Metrics, Number
from warren.storage.definition_keys import QueueKey


class Operations:
    """The `ClusterOperations` of a node."""

    def __init__(
        self,
        settings: ClusterSettings,
        nodes: Mapping[str, dict[str, str]],
        announce: Callable[[str, str], Awaitable[bool]],
    ) -> None:
        self.settings = settings
        self.facts = nodes  # of each node by its name, as etcd has them
        self.announce = announce  # writes the state of a node to etcd, where all see it; False if it cannot
        self.service: ShardService | None = None  # None if no queues are replicated

    # --- nodes ---

    def nodes(self) -> list[NodeView]:
        leads, keeps, in_sync = self._counts()
        told = [
            NodeView(
                name=name,
                is_this=name == self.settings.node,
                is_running=self._is_running(name, facts),
                state=facts.get("state", IN),
                amqp=facts.get("amqp", ""),
                http=facts.get("http", ""),
                version=facts.get("version", ""),
                leads=leads[name],
                keeps=keeps[name],
                in_sync=in_sync[name],
            )
            for name, facts in sorted(self.facts.items())
        ]
        return [each for each in told if each.state != REMOVED or each.is_running or each.keeps]

    def _counts(self) -> tuple[Counter[str], Counter[str], Counter[str]]:
        leads, keeps, in_sync = Counter[str](), Counter[str](), Counter[str]()
        for shard in self.shards():
            if shard.leader is not None:
                leads[shard.leader] += 1
            keeps.update((*shard.replicas, *shard.joining))
            in_sync.update(shard.in_sync)
        return leads, keeps, in_sync

    def _is_running(self, name: str, facts: dict[str, str]) -> bool | None:
        if name == self.settings.node:
            return True
        return None if self.service is None else StoreId(facts.get("store", "")) in self._heard()

    def _heard(self) -> set[StoreId]:
        """The stores that this node is linked to, and has heard, if it should have."""
        service = self.service
        assert service is not None
        participant, now = service.runner.participant, service.runner.clock()
        heard: dict[StoreId, float] = {}
        for shard in participant.shards.values():
            for store, at in _heard_in(shard):
                heard[store] = max(at, heard.get(store, NEVER))
        patience = participant.node.settings.grace
        return {store for store in participant.node.links if now - heard.get(store, now) <= patience}

    # --- shards ---

    def shards(self) -> list[ShardView]:
        if self.service is None:
            return []
        there = {*self._heard(), self.service.store_id}
        shards = self.service.runner.participant.shards
        return [
            self._shard(number, shard, shard.known.record, there)
            for number, shard in sorted(shards.items())
            if shard.known is not None
        ]

    def _shard(self, number: int, shard: Shard, record: ShardRecord, there: set[StoreId]) -> ShardView:
        return ShardView(
            number=number,
            epoch=record.epoch,
            leader=self._leader(record, there),
            replicas=self._names(record.replicas),
            in_sync=self._names(record.isr),
            joining=self._names(record.joining),
            leaving=self._names(record.leaving),
            role=shard.role.value,
            is_older_in_etcd=shard.reads.is_lost,
            followers=() if shard.leader is None else self._followers(shard.leader),
        )

    def _leader(self, record: ShardRecord, there: set[StoreId]) -> str | None:
        """The leader is gone if its node is, or if that runs again and does not lead."""
        leader, service = record.leader, self.service
        assert service is not None
        if leader is None or leader.store not in there:
            return None
        runs = {**service.runner.participant.node.links, service.me.store: service.me.run}
        return self._name(leader.store) if runs[leader.store] == leader.run else None

    def _followers(self, leader: Leader) -> tuple[FollowerView, ...]:
        service = self.service
        assert service is not None
        now = service.runner.clock()
        record = leader.record
        return tuple(
            self._follower(store, leader.sessions.get(store), now)
            for store in (*record.replicas, *record.joining)
            if store != service.store_id
        )

    def _follower(self, store: StoreId, session: Session | None, now: float) -> FollowerView:
        since = None if session is None else session.in_step_since
        return FollowerView(
            node=self._name(store),
            is_in_step=since is not None,
            in_step_seconds=None if since is None else now - since,
            batches_unacked=0 if session is None else len(session.unacked),
            bytes_in_flight=0 if session is None else session.in_flight,
        )

    def _names(self, stores: Iterable[StoreId]) -> tuple[str, ...]:
        return tuple(map(self._name, stores))

    def _name(self, store: StoreId) -> str:
        assert self.service is not None
        known = self.service.nodes.get(store)
        return store if known is None else known[0]

    # --- queues ---

    def places(self) -> dict[int, PlaceView]:
        if self.service is None:
            return {}
        there = {*self._heard(), self.service.store_id}
        online = set(self._names(there))
        return {
            shard.number: PlaceView(
                leader=shard.leader,
                members=shard.replicas,
                online=tuple(name for name in shard.replicas if name in online),
            )
            for shard in self.shards()
        }

    def shard_of(self, vhost: str, queue: str) -> int | None:
        if self.service is None:
            return None
        record = self.service.definitions.metadata.copy.find(path_of(QueueKey(vhost, queue)))
        return None if record is None else record.definition.shard

    def critical_queues(self) -> list[tuple[str, str]]:
        if self.service is None:
            return []
        mine, least = self.settings.node, self.settings.min_in_sync
        places = self.places()
        critical = {
            shard.number
            for shard in self.shards()
            if mine in shard.in_sync and len(set(shard.in_sync) & set(places[shard.number].online)) <= least
        }
        return sorted(
            (command.vhost, command.name)
            for record in self.service.definitions.metadata.copy.records.values()
            if record.alive and record.definition.shard in critical
            if isinstance(command := record.definition.command, DeclareQueue)
        )

    # --- metrics ---

    def add_metrics(self, metrics: Metrics) -> None:
        def add(name: str, text: str, read: Callable[[], Number]) -> None:
            metrics.add(Metric(name=name, text=text, read=read))

        text = "Number of peers in the cluster the current node cannot reach"
        add("rabbitmq_unreachable_cluster_peers_count", text, self._unreachable)
        mine = self.settings.node
        add("warren_cluster_shards", "Shards of the cluster", lambda: len(self.shards()))
        add("warren_cluster_shards_led", "Shards that this node leads", lambda: self._counts()[0][mine])
        add("warren_cluster_shards_kept", "Shards that this node keeps", lambda: self._counts()[1][mine])
        add(
            "warren_cluster_shards_in_sync",
            "Shards of which this node has all that is confirmed",
            lambda: self._counts()[2][mine],
        )
        add("warren_cluster_shards_without_leader", "Shards that no node leads", self._without_leader)
        add(
            "warren_cluster_shards_older_in_etcd",
            "Shards of which etcd has lost what was written to it",
            lambda: sum(shard.is_older_in_etcd for shard in self.shards()),
        )
        add(
            "warren_cluster_in_flight_bytes",
            "Bytes that followers have not said that they have",
            lambda: sum(each.bytes_in_flight for shard in self.shards() for each in shard.followers),
        )
        metrics.add(
            Metric(
                name="warren_cluster_leader_changes_total",
                text="Terms of leaders that shards have had",
                read=lambda: sum(shard.epoch for shard in self.shards()),
                kind="counter",
            )
        )

    def _unreachable(self) -> int:
        return sum(node.is_running is False and node.state != REMOVED for node in self.nodes())

    def _without_leader(self) -> int:
        return sum(shard.leader is None for shard in self.shards())

    # --- what operators have it do ---

    async def drain(self) -> None:
        """The others are told first, so that nobody hands this node anything."""
        service = self._replicating()
        await self._tell(self.settings.node, DRAINING)
        service.runner.drain()

    async def undrain(self) -> None:
        service = self._replicating()
        await self._tell(self.settings.node, IN)
        service.runner.participant.undrain()

    async def remove(self, node: str) -> None:
        """A node is to keep nothing: its copies go to others, if these have room. It may be gone already."""
        self._replicating()
        if node not in self.facts:
            raise OperationRefused(f"there is no node '{node}'")
        await self._tell(node, REMOVED)

    async def _tell(self, node: str, state: str) -> None:
        try:
            is_told = await self.announce(node, state)
        except EtcdError as error:
            raise CannotReachEtcd(f"etcd does not say that it took it down: {error}") from error
        if not is_told:
            raise CannotReachEtcd("etcd does not take it down: others change it at the same time")

    def move(self, shard: int, node: str) -> None:
        service = self._replicating()
        found, known = self._shard_known(shard)
        to = StoreId(self.facts.get(node, {}).get("store", ""))
        if to not in service.nodes:
            raise OperationRefused(f"there is no node '{node}'")
        if found.leader is None:
            raise OperationRefused(f"shard {shard} is led by {self._who_leads(known.record)}")
        if to == service.store_id:
            return
        if not found.move(to, service.runner.clock()):
            why = _why_not(found, to)
            raise OperationRefused(f"shard {shard} cannot be handed to node '{node}' now: {why}")
        service.runner.carry_out()

    async def force_leader(self, shard: int, node: str) -> ForcedView:
        service = self._replicating()
        found, (revision, record) = self._shard_known(shard)
        if node != self.settings.node:
            raise OperationRefused(f"this is not node '{node}'{self._address(node)}")
        self._check_force(found, record)
        made = config.force(record, service.me)
        written: asyncio.Future[CasAnswer] = asyncio.get_running_loop().create_future()
        service.records.swap(shard, revision, made, written.set_result)
        now = await written
        if now is Outcome.NOT_SENT:
            raise CannotReachEtcd("etcd cannot be reached, so nothing has changed")
        if now is Outcome.UNKNOWN:
            raise CannotReachEtcd(
                f"etcd does not say whether it took it down: look whether shard {shard} is led"
            )
        if now.record != made:
            raise OperationRefused(f"the record of shard {shard} has changed at the same time")
        forced = ForcedView(
            node=node,
            epoch=made.epoch,
            were_in_sync=self._names(record.isr),
            queues=service.definitions.metadata.copy.in_shards.count(shard),
        )
        text = "this node was made to lead a shard: what it lacks of all that was confirmed is lost"
        service.log.warning(text, shard=shard, **asdict(forced))
        return forced

    def _check_force(self, shard: Shard, record: ShardRecord) -> None:
        service = self._replicating()
        there = {*service.runner.participant.node.links, service.store_id}
        in_sync = self._names(store for store in record.isr if store in there)
        if in_sync:
            raise OperationRefused(f"node '{in_sync[0]}' is there, and has all that was confirmed")
        if service.store_id not in record.replicas:
            raise OperationRefused(f"this node has no copy of shard {shard.number}")
        if shard.epoch > record.epoch:  # no term may be numbered like another one
            raise OperationRefused(f"this node knows a later term of shard {shard.number} than etcd tells")
        if not shard.follower.is_whole:
            raise OperationRefused(f"the copy that this node has of shard {shard.number} is damaged")
        if not service.runner.participant.node.can_lead:
            raise OperationRefused("this node can lead nothing: it is being drained, or its disk fails")

    def _shard_known(self, number: int) -> tuple[Shard, Known]:
        shard = self._replicating().runner.participant.shards.get(number)
        if shard is None or shard.known is None:
            raise OperationRefused(f"there is no shard {number}")
        return shard, shard.known

    def _who_leads(self, record: ShardRecord) -> str:
        if record.leader is None:
            return "nobody"
        name = self._name(record.leader.store)
        return f"node '{name}'{self._address(name)}"

    def _address(self, name: str) -> str:
        http = self.facts.get(name, {}).get("http")
        return ": ask there" + (f", at http://{http}" if http else "")

    def _replicating(self) -> ShardService:
        if self.service is None:
            raise OperationRefused("this cluster replicates no queues: there is nothing to lead")
        return self.service


def _heard_in(shard: Shard) -> list[tuple[StoreId, float]]:
    """Which stores this node has heard as it leads or follows, and when."""
    if shard.leader is not None:
        return list(shard.leader.lease.echoed.items())
    follower = shard.follower
    return [] if follower.leader is None else [(follower.leader, follower.patience.heard_at)]


def _why_not(shard: Shard, to: StoreId) -> str:
    leader = shard.leader
    assert leader is not None
    if not shard.takes_publishes:
        return "it is being handed over, or waits for other nodes"
    if to not in leader.record.replicas:
        return "that node does not keep it"
    if to in leader.node.avoided:
        return "that node is being drained"
    return "that node is not in sync"
