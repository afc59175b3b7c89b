"""What the shards of one node share: who the node is, whom it is linked to, and the list of effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from warren.cluster.config import Leadership, RunId, StoreId
from warren.cluster.effects import Effect
from warren.cluster.messages import Ack
from warren.cluster.settings import Rules, Settings
from warren.cluster.tries import Tries
from warren.storage.replication import LogId, NamedOffset, SegmentState


class LedLogs(Protocol):
    """The logs of a shard that this node leads, as memory has them: synced or not."""

    def logs(self) -> Iterable[LogId]: ...

    def has(self, log: LogId) -> bool:
        """Whether the log's queue is there. It may have no segment: then its log is empty, not deleted."""

    def has_news(self) -> bool:
        """Whether something has changed of which no batch was made yet."""

    def segments(self, log: LogId) -> Sequence[SegmentState]: ...
    def offsets(self, log: LogId) -> Sequence[NamedOffset]: ...


class ThisNode:
    """One node, as its shards know it."""

    def __init__(
        self, me: Leadership, settings: Settings, rules: Rules, new_session: Callable[[], int]
    ) -> None:
        self.me = me  # this store, in this run
        self.settings = settings  # times and limits
        self.rules = rules  # all of them hold, but in the simulator
        self.new_session = new_session  # makes the number of a session, which is never used again
        self.effects: list[Effect] = []  # to be carried out, in order
        self.etcd = Tries(
            patience=settings.ask_again, first=settings.etcd_wait_first, last=settings.etcd_wait_last
        )
        self.acks: dict[StoreId, dict[int, Ack]] = {}  # of this turn, by store and shard
        self.links: dict[StoreId, RunId] = {}  # the nodes that can be spoken to now, each in its run
        self.refused: set[StoreId] = set()  # nodes whose process was not there when last called
        self.avoided: set[StoreId] = set()  # nodes that must not be handed anything: they are draining
        self.preferred: dict[int, StoreId] = {}  # who should lead a shard, if not its first replica
        self.preferred_at = 0.0  # when a shard was last handed to the one who should lead it
        self.is_draining = False  # it hands over what it leads, and stands for nothing more
        self.is_leaving = False  # it drains, and its process ends then
        self.farewells: set[StoreId] = set()  # nodes that have said farewell
        self.disk_failing_since: float | None = None  # when its disk began to fail
        self.token = 0  # of the last `Apply`

    @property
    def can_lead(self) -> bool:
        return not self.is_draining and self.disk_failing_since is None

    def next_token(self) -> int:
        self.token += 1
        return self.token
