"""A node of a cluster whose effects a test carries out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TypeVar

from warren.cluster.config import Known, Leadership, RunId, ShardRecord, StoreId
from warren.cluster.effects import Apply, Cas, Effect, ReadRecord, Role, Send, TakeInventory
from warren.cluster.messages import Ack, Acks, Batch, Echo, Inventory, Message
from warren.cluster.participant import Participant
from warren.cluster.settings import Settings
from warren.cluster.shard import Shard
from warren.storage.replication import LogId, NamedOffset, SegmentState

A, B, C, D = map(StoreId, "abcd")
RUNS = {store: RunId(f"run-{store}") for store in (A, B, C, D)}
RECORD = ShardRecord(0, None, (A, B, C), (A, B, C))
LOG = LogId(1)

T = TypeVar("T")


class NoLogs:
    """A store that has nothing."""

    def __init__(self) -> None:
        self.news = False

    def logs(self) -> Sequence[LogId]:
        return ()

    def has(self, log: LogId) -> bool:
        return False

    def has_news(self) -> bool:
        return self.news

    def segments(self, log: LogId) -> Sequence[SegmentState]:
        return ()

    def offsets(self, log: LogId) -> Sequence[NamedOffset]:
        return ()


class Alone:
    """One node with one shard; the test plays all others."""

    def __init__(self, store: StoreId = A, *, epoch: int = 0, settings: Settings | None = None) -> None:
        numbers = count(1)
        self.me = Leadership(store, RUNS[store])
        self.participant = Participant(self.me, lambda: next(numbers), settings=settings)
        self.logs = NoLogs()
        self.shard: Shard = self.participant.add_shard(0, self.logs, epoch=epoch, now=0.0)
        self.revision = 0
        self.effects: list[Effect] = []

    def role(self) -> Role:
        return self.shard.role

    def others(self) -> tuple[StoreId, ...]:
        """The members that this leader counts, besides itself."""
        assert self.shard.leader is not None
        return self.shard.leader.others

    def take(self, kind: type[T]) -> list[T]:
        """All effects of a kind since they were last taken."""
        self.effects += self.participant.take_effects()
        found: list[T] = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return found

    def sent(self, kind: type[T]) -> list[tuple[StoreId, T]]:
        """All messages of a kind since they were last taken."""
        self.effects += self.participant.take_effects()
        found: list[tuple[StoreId, T]] = [
            (effect.to, effect.message)
            for effect in self.effects
            if isinstance(effect, Send) and isinstance(effect.message, kind)
        ]
        self.effects = [
            effect
            for effect in self.effects
            if not (isinstance(effect, Send) and isinstance(effect.message, kind))
        ]
        return found

    def learn(self, record: ShardRecord, now: float = 0.0) -> None:
        self.revision += 1
        self.shard.learn(Known(self.revision, record), now)

    def read(self, now: float) -> None:
        """Etcd answers all reads of the record: it is what the node knows."""
        assert self.shard.known is not None
        for asked in self.take(ReadRecord):
            self.shard.record_read(asked.number, self.shard.known, now)

    def write(self, now: float) -> ShardRecord:
        """Etcd carries out the compare-and-swap that the node has sent. Return what was written."""
        (cas,) = self.take(Cas)
        assert cas.revision == self.revision
        self.revision += 1
        self.shard.cas_answered(cas.revision, Known(self.revision, cas.record), now)
        return cas.record

    def link(self, *stores: StoreId, now: float = 0.0) -> None:
        for store in stores:
            self.participant.link_up(store, RUNS[store], now)

    def hear(self, sender: StoreId, message: Message, now: float = 0.0) -> None:
        self.participant.received(sender, message, now)

    def sync(self, now: float = 0.0) -> None:
        """All that was applied is synced."""
        for apply in self.take(Apply):
            self.shard.synced(apply.token, now)

    # --- a leader, and the followers that the test plays ---

    def lead(self, now: float = 0.0, record: ShardRecord = RECORD) -> None:
        """The record says that this node leads; its disk has synced what it has."""
        self.learn(record._replace(epoch=record.epoch + 1, leader=self.me), now)
        self.sync(now)

    def follow(self, store: StoreId, session: int, now: float = 0.0) -> None:
        """A follower opens a session, gets in step, and echoes a beacon."""
        epoch = self.shard.epoch
        self.hear(store, Inventory(0, epoch, session, (), is_last=True), now)
        (in_step,) = [batch for to, batch in self.sent(Batch) if to == store and batch.in_step]
        self.ack(store, session, in_step.number, now)
        self.echo(store, now)

    def ack(self, store: StoreId, session: int, number: int, now: float = 0.0) -> None:
        self.hear(store, Acks((Ack(0, self.shard.epoch, session, number),)), now)

    def echo(self, store: StoreId, now: float) -> None:
        self.hear(store, Echo(now, ((0, self.shard.epoch),)), now)

    def open(self, now: float = 0.0) -> None:
        """This node leads, with two followers in step."""
        self.link(B, C, now=now)
        self.lead(now)
        self.follow(B, 101, now)
        self.follow(C, 102, now)
        self.participant.tick(now)

    # --- a follower, and the leader that the test plays ---

    def session(self) -> int:
        """The session that this node has opened, after its inventory was taken."""
        (taken,) = self.take(TakeInventory)
        self.shard.inventory_taken(taken.session, [], 0.0)
        return taken.session
