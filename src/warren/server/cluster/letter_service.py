"""A node's letters to queues that other nodes lead, and theirs to its own: the protocol, over the links."""

from __future__ import annotations

from collections.abc import Callable

from warren.broker.node import Node
from warren.broker.post import Postbox
from warren.broker.queue import Queue
from warren.broker.timers import Timer
from warren.cluster.config import RunId, StoreId
from warren.cluster.definitions.definition import path_of
from warren.cluster.definitions.definition_copy import Record
from warren.cluster.definitions.metadata import Metadata
from warren.cluster.letter_inbox import LetterReceiver
from warren.cluster.letters import LetterSender, Line, Way
from warren.cluster.messages import Letters, LettersDone, Message
from warren.storage.definition_keys import QueueKey

TICK_SECONDS = 0.1
LINE_BYTES = 8


class PostToCome:
    """The post of a node that does not know yet which queues there are. Nothing dies, and nothing that is due
    is sent, before it could be routed.
    """

    is_full = True

    def box_for(self, _vhost: str, _queue: str) -> Postbox | None:
        return None


class LetterService:
    """Is the `Post` of its node."""

    def __init__(
        self,
        node: Node,
        metadata: Metadata,
        leader_of: Callable[[int], Way | None],
        store_of: Callable[[str], StoreId | None],
        send: Callable[[StoreId, Message], None],
        clock: Callable[[], float],
    ) -> None:
        self.node = node
        self.metadata = metadata
        self.leader_of = leader_of  # who leads a shard
        self.store_of = store_of  # the store of a node, by its name
        self.send = send  # says something to another node
        self.clock = clock  # seconds that only go up
        self.sender = LetterSender(self._way_of, self._new_line, node.turns.later, self._flush_soon)
        self.receiver = LetterReceiver(self._queue_of, node.clock.refresh)
        self.timer: Timer | None = None
        self.is_stopped = False

    def start(self) -> None:
        self._tick()

    def stop(self) -> None:
        self.is_stopped = True
        if self.timer is not None:
            self.timer.cancel()

    @property
    def is_full(self) -> bool:
        return self.sender.is_full

    def box_for(self, vhost: str, queue: str) -> Postbox | None:
        record = self._record(vhost, queue)
        return None if record is None else self.sender.open(record.number, vhost, queue)

    # --- links ---

    def link_up(self, store: StoreId, run: RunId) -> None:
        self.receiver.link_up(store, run)
        self.sender.link_up(store, self.clock())
        self._send()

    def link_down(self, store: StoreId) -> None:
        self.sender.link_down(store)

    def received(self, store: StoreId, message: Letters | LettersDone) -> None:
        if isinstance(message, Letters):
            self.receiver.received(store, message)
        else:
            self.sender.done(store, message, self.clock())

    def end_turn(self) -> None:
        """All that has come together is dealt with: have it written and copied, and answer."""
        self.node.end_turn()
        self._send()

    def _send(self) -> None:
        for store, letters in self.sender.take_sends():
            self.send(store, letters)
        for store, answer in self.receiver.take_answers():
            self.send(store, answer)

    # --- time ---

    def _tick(self) -> None:
        if not self.is_stopped:
            self.timer = self.node.world.call_later(TICK_SECONDS, self._tick)
            self.receiver.sweep()
            self.sender.tick(self.clock())
            self._send()

    def _flush_soon(self) -> None:
        self.node.world.call_soon(self._flush)

    def _flush(self) -> None:
        if not self.is_stopped:
            self.sender.flush(self.clock())
            self._send()

    def _new_line(self) -> int:
        return int.from_bytes(self.node.world.random_bytes(LINE_BYTES), "big")

    # --- where queues are ---

    def _record(self, vhost: str, queue: str) -> Record | None:
        return self.metadata.copy.find(path_of(QueueKey(vhost, queue)))

    def _way_of(self, line: Line) -> Way | None:
        """Who leads a line's queue; None while nobody does, and if the queue is another one by now."""
        record = self._record(line.vhost, line.name)
        if record is None or record.number != line.queue:
            return None
        definition = record.definition
        if definition.shard is not None:
            return self.leader_of(definition.shard)
        store = None if definition.home is None else self.store_of(definition.home.node)
        return None if store is None else Way(store, 0)

    def _queue_of(self, letters: Letters) -> Queue | None:
        record = self._record(letters.vhost, letters.name)
        vhost = self.node.vhosts.get(letters.vhost)
        if record is None or record.number != letters.queue or vhost is None:
            return None
        queue = vhost.queues.get(letters.name) or vhost.internal_queues.get(letters.name)
        return queue if queue is not None and queue.is_here else None
