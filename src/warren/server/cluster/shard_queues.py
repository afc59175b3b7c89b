"""The queues of the shards that this node leads: they are here while it does, and elsewhere while another one
does.

When a shard opens, each of its queues gets its logs, and takes the place of the object that stood for it
while it was elsewhere; when the term ends, it is the other way round. Bindings, policies and definitions
stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from warren.amqp.errors import ResourceLocked
from warren.broker.commands import DeclareQueue
from warren.broker.making import make_queue
from warren.broker.node import Node
from warren.broker.queue import Hold, Queue
from warren.broker.rules import QUORUM, STREAM, queue_type
from warren.broker.store import MessageLog, Store
from warren.cluster.config import StoreId
from warren.cluster.definitions.definition_copy import Record
from warren.cluster.definitions.metadata import Metadata
from warren.cluster.definitions.model_changes import shard_home
from warren.cluster.placement import Locator, shard_for_queue
from warren.cluster.safety import ShardSafety
from warren.storage.led_shard import LedShard
from warren.storage.replication import LogId

LOCATOR = "x-queue-leader-locator"
ALL_DURABLE, ONLY_QUORUM = "durable", "quorum"  # which queues are in shards, by the setting


class LedStore(Store):
    """Opens the logs of one queue of a shard that is led here."""

    def __init__(self, led: LedShard, safety: ShardSafety, number: int) -> None:
        self.led = led
        self.shard_safety = safety
        self.number = number  # of the queue

    def open_log(self, vhost: str, queue: str, part: str = "") -> tuple[MessageLog, int]:
        log, position = self.led.open_log(LogId(self.number, part))
        log.holds_back, log.safety = True, self.shard_safety
        return log, position


class ShardQueues:
    """Is the `ShardOwner` of a node's shards, and the `LedShards` of its model."""

    def __init__(
        self, node: Node, metadata: Metadata, leaders: Callable[[], dict[int, StoreId | None]], replicate: str
    ) -> None:
        self.node = node
        self.metadata = metadata
        self.leaders = leaders  # who leads which shard, as this node knows it
        self.replicate = replicate  # which queues are in shards
        self.me = StoreId("")  # this node's store
        self.open: dict[int, tuple[LedShard, ShardSafety]] = {}  # the shards that are open here
        self.holds: dict[int, Hold] = {}  # of shards that may not deliver now
        self.numbers: set[int] = set()  # of all queues that are in shards,
        self.numbers_at = -1  # at this revision
        metadata.model.shards = self
        metadata.proposals.planner.shard_of = self.shard_of
        metadata.proposals.leads = self.open.__contains__

    # --- where queues are ---

    def home_of(self, shard: int) -> str:
        return "" if shard in self.open else shard_home(shard)

    def store_of(self, shard: int, number: int) -> Store:
        return LedStore(*self.open[shard], number)

    def shard_of(self, command: DeclareQueue) -> int | None:
        """The shard of a new queue; None if it is to live on this node alone. 405 if there are no shards."""
        kind = queue_type(command.arguments)
        is_wanted = self.replicate == ALL_DURABLE or (self.replicate == ONLY_QUORUM and kind == QUORUM)
        if not is_wanted or not command.durable or command.owner is not None or kind == STREAM:
            return None
        leaders = self.leaders()
        if not leaders:
            raise ResourceLocked(
                f"queue '{command.name}' in vhost '{command.vhost}' cannot be made yet: "
                "the cluster has no shards, since too few of its nodes have ever been there"
            )
        locator = Locator(command.arguments.get(LOCATOR, Locator.CLIENT_LOCAL.value))
        queues = Counter(record.definition.shard for record in self.metadata.copy.records.values())
        return shard_for_queue(locator, self.me, leaders, {shard: queues[shard] for shard in leaders})

    def has_queue(self, number: int) -> bool:
        copy = self.metadata.copy
        if self.numbers_at != copy.revision:
            self.numbers_at = copy.revision
            self.numbers = {
                record.number
                for record in copy.records.values()
                if record.alive and record.definition.shard is not None
            }
        return number in self.numbers

    def _records(self, shard: int) -> Iterator[Record]:
        for record in list(self.metadata.copy.records.values()):
            if record.alive and record.definition.shard == shard:
                yield record

    # --- roles ---

    def shard_opened(self, shard: int, led: LedShard, safety: ShardSafety) -> None:
        self.open[shard] = led, safety
        self._replace_all(shard)

    def shard_ended(self, shard: int) -> None:
        _, safety = self.open.pop(shard)
        self._end_hold(shard)
        for client in list(self.node.clients.values()):
            client.safety_ended(safety)
        self._replace_all(shard)

    def shard_may_deliver(self, shard: int, *, may: bool) -> None:
        self._end_hold(shard)
        if not may:
            self.holds[shard] = Hold([self._queue(record) for record in self._records(shard)])
        self.node.end_turn()

    def _end_hold(self, shard: int) -> None:
        hold = self.holds.pop(shard, None)
        if hold is not None:
            hold.end()

    def _queue(self, record: Record) -> Queue:
        command = record.definition.command
        assert isinstance(command, DeclareQueue)
        return self.node.vhosts[command.vhost].find_queue(command.name)

    def _replace_all(self, shard: int) -> None:
        for record in self._records(shard):
            command = self.metadata.model.command_of(record)
            assert isinstance(command, DeclareQueue)
            self._replace(command, shard, record.number)
        self.node.end_turn()

    def _replace(self, command: DeclareQueue, shard: int, number: int) -> None:
        vhost = self.node.vhosts[command.vhost]
        old = vhost.find_queue(command.name)
        new = vhost.replace_queue(old, lambda: make_queue(self.node, command))
        if new.is_here:
            new.open(self.store_of(shard, number))
