"""The queues of the shards that this node leads: they are here while it does, and elsewhere while another one
does.

When a shard opens, each of its queues gets its logs, and takes the place of the object that stood for it
while it was elsewhere (`shard_opening.py`). When the term ends, the queues take and give nothing from that
moment on, and it is the other way round, over several turns. Bindings, policies and definitions stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from warren.amqp.errors import AmqpError, ResourceLocked
from warren.broker.commands import COMMAND_WORK, DeclareQueue
from warren.broker.making import make_queue
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.store import MessageLog, Store, StreamLog
from warren.cluster.config import StoreId
from warren.cluster.definitions.definition import path_of
from warren.cluster.definitions.definition_copy import Record
from warren.cluster.definitions.metadata import Metadata
from warren.cluster.definitions.model_changes import shard_home
from warren.cluster.placement import shard_for_queue
from warren.cluster.safety import ShardSafety
from warren.server.cluster.shard_opening import ReadingThread, ShardOpening, is_stream
from warren.server.cluster.waiting_shard import NO_LEADER, WaitingShard
from warren.server.cluster.which_queues import is_replicated, locator_of
from warren.storage.definition_keys import QueueKey
from warren.storage.led_shard import LedShard
from warren.storage.replication import LogId

SWEEP_AGAIN_SECONDS = 5.0  # if etcd could not be asked what is defined


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

    def open_stream(self, vhost: str, name: str) -> tuple[StreamLog, int]:
        stream, position = self.led.open_stream(self.number)
        stream.hold_back(self.shard_safety)
        return stream, position


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
        self.thread = ReadingThread(node.world)
        self.open: dict[int, tuple[LedShard, ShardSafety]] = {}  # the shards that are open here
        self.openings: dict[int, ShardOpening] = {}  # of all shards that this node leads
        self.waiting: dict[int, WaitingShard] = {}  # shards that are open, and may not deliver now
        self.why_waiting: Callable[[int], str] = lambda _shard: NO_LEADER  # of a shard that waits
        self.hand_over: Callable[[int], None] = lambda _shard: None  # has another node lead a shard
        metadata.model.shards = self
        metadata.proposals.planner.shard_of = self.shard_of
        metadata.proposals.leads = self.open.__contains__

    async def stop(self) -> None:
        """Nothing is opened any more."""
        await self.thread.stop()

    # --- where queues are ---

    def home_of(self, shard: int, number: int) -> str:
        is_here = shard in self.open and self.openings[shard].may_be_open(number)
        return "" if is_here else shard_home(shard)

    def store_of(self, shard: int, number: int) -> Store:
        return LedStore(*self.open[shard], number)

    def shard_of(self, command: DeclareQueue) -> int | None:
        """The shard of a new queue; None if it is to live on this node alone. 405 if there are no shards."""
        policy = self.node.vhosts[command.vhost].policies.settings_for(command)
        if not is_replicated(command, policy, self.replicate):
            return None
        leaders = self.leaders()
        if not leaders:
            raise ResourceLocked(
                f"queue '{command.name}' in vhost '{command.vhost}' cannot be made yet: "
                "the cluster has no shards, since too few of its nodes have ever been there"
            )
        locator = locator_of(command.arguments, policy)
        count = self.metadata.copy.in_shards.count
        return shard_for_queue(locator, self.me, leaders, {shard: count(shard) for shard in leaders})

    def has_queue(self, number: int) -> bool:
        return self.metadata.copy.may_have_queue(number)

    def is_stream(self, number: int) -> bool | None:
        """Whether the queue of this number is a stream; None if there is none. Any thread may ask."""
        record = self.metadata.copy.in_shards.find(number)
        return None if record is None else is_stream(record)

    def stream_number(self, vhost: str, name: str) -> int | None:
        record = self.metadata.copy.find(path_of(QueueKey(vhost, name)))
        return None if record is None else record.number

    def _records(self, shard: int) -> list[Record]:
        return self.metadata.copy.in_shards.of(shard)

    def _queue(self, record: Record) -> Queue:
        command = record.definition.command
        assert isinstance(command, DeclareQueue)
        return self.node.vhosts[command.vhost].find_queue(command.name)

    def _queues(self, shard: int) -> list[tuple[Record, Queue]]:
        """All queues of a shard that the model has: one that could not be made is not there."""
        found = []
        for record in self._records(shard):
            command = record.definition.command
            assert isinstance(command, DeclareQueue)
            vhost = self.node.vhosts.get(command.vhost)
            name = command.name
            queue = None if vhost is None else vhost.queues.get(name) or vhost.internal_queues.get(name)
            if queue is not None:
                found.append((record, queue))
        return found

    # --- a term begins ---

    def shard_is_led(self, shard: int, led: LedShard) -> None:
        opening = ShardOpening(
            self.node,
            led,
            partial(self._open_queue, shard),
            partial(self._all_are_open, shard, led),
            partial(self._hand_over_for, shard),
        )
        self.openings[shard] = opening
        opening.read(self._records(shard), self.thread)
        self._look_for_deleted(shard, led)

    def shard_opened(self, shard: int, led: LedShard, safety: ShardSafety) -> None:
        self.open[shard] = led, safety
        self.openings[shard].open(self._records(shard))

    def _open_queue(self, shard: int, number: int) -> None:
        record = self.metadata.copy.in_shards.find(number)
        if record is None:  # it was deleted since the shard is open
            return
        new = self._replace(record)
        try:
            new.open(self.store_of(shard, number))
        except Exception:  # without its log it must not take anything, so it is nowhere in this term
            self.openings[shard].failed.add(number)
            new.detach()
            self._replace(record)
            raise
        if shard in self.waiting:
            self.waiting[shard].add(new)

    def _hand_over_for(self, shard: int, number: int) -> None:
        """A queue cannot be opened here any more in this term, unless it was deleted."""
        if self.metadata.copy.in_shards.find(number) is not None:
            self.hand_over(shard)

    def _replace(self, record: Record) -> Queue:
        """Another object stands for a queue, by where the queue is now."""
        command = self.metadata.model.command_of(record)
        assert isinstance(command, DeclareQueue)
        return self.node.vhosts[command.vhost].replace_queue(
            self._queue(record), lambda: make_queue(self.node, command)
        )

    # --- logs of queues that are not there any more ---

    def _all_are_open(self, shard: int, led: LedShard) -> None:
        self.node.end_turn()
        self._look_for_deleted(shard, led)

    def _look_for_deleted(self, shard: int, led: LedShard) -> None:
        """Queues may have been deleted while nobody led the shard, or by a leader whose last batches did not
        come here. Their logs go when this node knows all definitions that were there when it began to lead:
        before the shard opens, since a follower that has deleted a log does not take it again. The thread may
        be reading them back, which has to end first.
        """
        if led.unopened():
            self.metadata.catch_up(lambda error: led.after_reading(partial(self._sweep, shard, led, error)))

    def _sweep(self, shard: int, led: LedShard, error: AmqpError | None) -> None:
        if not self._is_led(shard, led):
            return
        if error is not None or self.metadata.copy.has_unreadable_queues:
            self.node.world.call_later(SWEEP_AGAIN_SECONDS, partial(self._look_for_deleted, shard, led))
            return
        self.node.turns.spread(self._sweeping(shard, led), self.node.end_turn)

    def _sweeping(self, shard: int, led: LedShard) -> Iterator[int]:
        for number in led.unopened():
            if not self._is_led(shard, led):
                return
            if not self.has_queue(number):
                led.remove(number)
                yield COMMAND_WORK

    def _is_led(self, shard: int, led: LedShard) -> bool:
        """Whether this term has not ended."""
        opening = self.openings.get(shard)
        return opening is not None and opening.led is led

    # --- a term ends ---

    def shard_ended(self, shard: int) -> None:
        opening, opened = self.openings.pop(shard, None), self.open.pop(shard, None)
        if opening is not None:
            opening.end()
        if opened is None:
            return
        self._end_waiting(shard)
        queues = self._queues(shard)
        for record, queue in queues:
            self._attempt(partial(self._retire, record, queue))
        self.node.turns.spread(self._ending(queues), self.node.end_turn)

    def _retire(self, record: Record, queue: Queue) -> None:
        if queue.internal:  # what it holds back is routed by the time
            self._replace(record)
        else:
            self.node.vhosts[queue.vhost].retire_queue(queue, partial(self._stand_in, record, queue))

    def _ending(self, queues: list[tuple[Record, Queue]]) -> Iterator[int]:
        for record, queue in queues:
            self._attempt(partial(self._stand_in, record, queue))
            yield COMMAND_WORK

    def _attempt(self, work: Callable[[], object]) -> None:
        """A queue that fails must not stop the others."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is
            self.node.world.report(error)

    def _stand_in(self, record: Record, queue: Queue) -> None:
        """Have another object stand for a retired queue, if that has not been deleted or replaced since."""
        vhost = self.node.vhosts.get(queue.vhost)
        if vhost is not None and vhost.queues.get(queue.name) is queue and queue.retired:
            self._replace(record)

    # --- deliveries ---

    def shard_may_deliver(self, shard: int, *, may: bool) -> None:
        self._end_waiting(shard)
        if not may:
            _, safety = self.open[shard]
            queues = [queue for _, queue in self._queues(shard)]
            why = partial(self.why_waiting, shard)
            self.waiting[shard] = WaitingShard(self.node, queues, safety, why)
        self.node.end_turn()

    def _end_waiting(self, shard: int) -> None:
        waiting = self.waiting.pop(shard, None)
        if waiting is not None:
            waiting.end()
