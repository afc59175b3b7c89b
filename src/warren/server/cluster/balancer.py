"""Where the shards of a cluster are: any node looks after it, and etcd decides whose proposal is written.

What should change is worked out by `placement` from the records of shards and of nodes. It is a change of a
shard's record, so what is under way is in that record, and goes on whoever ends: a store that joins gets
everything from the shard's leader, which then writes that it has joined, and who leaves for it.

All nodes come to the same proposals. The first of those that see each other writes them at once, the next one
only if the first has not, and so on, so that they seldom compete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from structlog.stdlib import BoundLogger

from warren.cluster import config
from warren.cluster.config import Known, ShardRecord, StoreId
from warren.cluster.effects import CasAnswer
from warren.cluster.known_stores import KnownStores, NodeFacts
from warren.cluster.participant import Participant
from warren.cluster.placement import Stores, changes, first_replicas, preferred
from warren.server.cluster.settings import ClusterSettings
from warren.server.cluster.shard_records import ShardRecords

LOOK_SECONDS = 1.0  # between looks, if nothing changes
GATHER_SECONDS = 0.1  # changes often come together
RANK_SECONDS = 3.0  # that a node leaves to the one before it


class Balancer:
    def __init__(
        self,
        participant: Participant,
        records: ShardRecords,
        settings: ClusterSettings,
        log: BoundLogger,
        *,
        learn: Callable[[int, Known], None],
        clock: Callable[[], float],
    ) -> None:
        self.participant = participant
        self.records = records
        self.settings = settings
        self.log = log
        self.learn = learn  # told of a record that was written here
        self.clock = clock
        self.stores = KnownStores(
            participant.node.me.store,
            min_in_sync=settings.min_in_sync,
            replace_after=settings.replace_after_seconds,
        )
        self.wanted: dict[int, tuple[int, ShardRecord, float]] = {}  # proposals: revision, record, since when
        self.writing: set[int] = set()  # shards whose proposals are on their way to etcd
        self.has_news = asyncio.Event()
        self.placed: tuple[object, ...] = ()  # for which it was worked out who should lead

    # --- what happens ---

    def node_is_at(self, name: str, facts: dict[str, str]) -> None:
        """A node's record, as a watch tells it."""
        former = frozenset(StoreId(store) for store in facts.get("former", "").split())
        self.stores.nodes[name] = NodeFacts(StoreId(facts.get("store", "")), facts.get("state", ""), former)
        self.has_news.set()

    def changed(self) -> None:
        """A shard's record has changed."""
        self.has_news.set()

    async def look_when_due(self) -> None:
        """Look after the shards when something has changed, or after a while."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self.has_news.wait()
        except TimeoutError:
            pass  # time alone changes something, too
        else:
            await asyncio.sleep(GATHER_SECONDS)
        self.has_news.clear()
        await self.look()

    async def look(self) -> None:
        """See what is to be done now, and do it."""
        known = self._known()
        records = {shard: each.record for shard, each in known.items()}
        links = self.participant.node.links
        stores = self.stores.look(links, records.values(), self.clock())
        if len(known) < self.settings.shards:
            await self._create(stores)
            return
        self._prefer(records, stores)
        self._propose(known, changes(records, stores, min_in_sync=self.settings.min_in_sync), stores)

    def _known(self) -> dict[int, Known]:
        shards = self.participant.shards.items()
        return {number: shard.known for number, shard in shards if shard.known is not None}

    # --- what should change ---

    async def _create(self, stores: Stores) -> None:
        """Write the first records of the shards, as soon as there are enough nodes."""
        settings = self.settings
        if len(stores.staying) < settings.replicas:
            return
        replicas = first_replicas(stores.staying, shards=settings.shards, replicas=settings.replicas)
        await self.records.create(
            [config.create(each, min_in_sync=settings.min_in_sync) for each in replicas]
        )

    def _prefer(self, records: dict[int, ShardRecord], stores: Stores) -> None:
        """Have leaderships spread over the stores that are there."""
        placed = (
            stores,
            *self.stores.avoided,
            *((record.replicas, record.leaving) for record in records.values()),
        )
        if placed == self.placed:
            return
        self.placed = placed
        self.participant.prefer(preferred(records, sorted(stores.able)), avoid=self.stores.avoided)

    def _propose(self, known: dict[int, Known], made: dict[int, ShardRecord], stores: Stores) -> None:
        now = self.clock()
        able = sorted(stores.able)
        me = self.stores.me
        rank = able.index(me) if me in able else len(able)
        wanted: dict[int, tuple[int, ShardRecord, float]] = {}
        for shard, record in made.items():
            revision, proposal, since = self.wanted.get(shard, (0, None, now))
            if (revision, proposal) != (known[shard].revision, record):
                since = now
            wanted[shard] = known[shard].revision, record, since
            if now - since >= rank * RANK_SECONDS and shard not in self.writing:
                self.writing.add(shard)
                tell = partial(self._written, shard, record)
                self.records.swap(shard, known[shard].revision, record, tell)
        self.wanted = wanted

    def _written(self, shard: int, record: ShardRecord, answer: CasAnswer) -> None:
        """The proposal was written, or another change was faster. If nobody knows, the next look sees."""
        self.writing.discard(shard)
        if not isinstance(answer, Known):
            return
        if answer.record == record:
            self.log.info(
                "a shard's copies change",
                shard=shard,
                replicas=self._names(record.replicas),
                joining=self._names(record.joining),
                leaving=self._names(record.leaving),
            )
        self.learn(shard, answer)
        self.has_news.set()

    def _names(self, stores: Iterable[StoreId]) -> list[str]:
        """Nodes, for the log. A store that no node has any more stands for itself."""
        names = {facts.store: name for name, facts in self.stores.nodes.items()}
        return [names.get(store, store) for store in stores]
