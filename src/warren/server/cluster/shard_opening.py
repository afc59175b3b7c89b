"""How the queues of a shard are opened when this node begins to lead it.

While the shard still waits for its followers, a thread reads the logs of its queues back. When the shard is
open, its queues are opened over several turns, so that the first ones serve at once and nobody else has to
wait. A queue that is not opened yet is still elsewhere: whoever uses it gets 405, and asks again.

A queue may fail to open for a reason that passes, such as too many open files: it is opened again later. But
a log is opened once in a term. If some log of the queue is open, another node should lead the shard; that is
asked for until one does, since perhaps none can now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from warren.broker.commands import COMMAND_WORK, DeclareQueue
from warren.broker.node import Node, World
from warren.broker.rules import STREAM, queue_type
from warren.cluster.definitions.definition_copy import Record
from warren.storage.led_shard import LedShard, Recovered

AGAIN_SECONDS = 5.0  # until a queue is opened again, or a hand-over asked for again


class ReadingThread:
    """Reads logs back for one shard after the other. Each reading uses several threads by itself."""

    def __init__(self, world: World) -> None:
        self.loop = asyncio.get_running_loop()
        self.world = world
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="warren-opening")
        self.is_stopped = False

    def read(self, work: Callable[[], Recovered], then: Callable[[Recovered | None], None]) -> None:
        """Call back with what was read; with None if that has failed."""
        self.loop.run_in_executor(self.thread, work).add_done_callback(partial(self._is_read, then))

    def _is_read(self, then: Callable[[Recovered | None], None], reading: asyncio.Future[Recovered]) -> None:
        if reading.cancelled() or self.is_stopped:
            return
        error = reading.exception()
        if isinstance(error, Exception):
            self.world.report(error)
        self.world.call_soon(partial(then, None if error is not None else reading.result()))

    async def stop(self) -> None:
        """Nothing is read any more."""
        self.is_stopped = True
        await self.loop.run_in_executor(None, partial(self.thread.shutdown, cancel_futures=True))


class ShardOpening:
    """Of one shard, in one term."""

    def __init__(
        self,
        node: Node,
        led: LedShard,
        open_queue: Callable[[int], None],
        then: Callable[[], None],
        hand_over: Callable[[int], None],
    ) -> None:
        self.node = node
        self.led = led
        self.open_queue = open_queue  # opens the queue of a number
        self.then = then  # called when all queues are open
        self.hand_over = hand_over  # has another node lead the shard of the queue of a number, if one can
        self.pending: dict[int, None] = {}  # the numbers of queues that are not open yet, in order
        self.failed: set[int] = set()  # of queues that `open_queue` could not open, as it has noted here
        self.is_read = False  # whether the thread has read what it was to read
        self.is_open = False  # whether queues may be opened
        self.has_ended = False  # whether the term has

    def may_be_open(self, number: int) -> bool:
        """Whether the queue of this number is open, or just being opened."""
        return number not in self.pending and number not in self.failed

    def read(self, records: Iterable[Record], thread: ReadingThread) -> None:
        """Read the logs of these queues back."""
        there = {log.queue for log in self.led.replica.logs}
        wanted = [record for record in records if record.number in there]
        if not wanted:
            self.is_read = True
            return
        streams = {record.number for record in wanted if is_stream(record)}
        thread.read(self.led.recovery({record.number for record in wanted}, streams), self._have_read)

    def _have_read(self, found: Recovered | None) -> None:
        """If nothing was found, each log is read when it is opened."""
        self.is_read = True
        self.led.are_recovered(found)
        self._begin()

    def open(self, records: Iterable[Record]) -> None:
        """The shard is open, and these are its queues."""
        self.is_open = True
        self.pending = dict.fromkeys(record.number for record in records)
        self._begin()

    def _begin(self) -> None:
        if self.is_read and self.is_open and not self.has_ended:
            self.node.turns.spread(self._opening(), self._is_over)

    def _opening(self) -> Iterator[int]:
        while self.pending and not self.has_ended:
            number = next(iter(self.pending))
            del self.pending[number]
            self._open(number)
            yield COMMAND_WORK

    def _open(self, number: int) -> None:
        try:
            self.open_queue(number)
        except Exception as error:  # noqa: BLE001 - a queue that fails must not stop the others
            self.node.world.report(error)
            if isinstance(error, OSError):
                self._wait(number)

    def _wait(self, number: int) -> None:
        self.node.world.call_later(AGAIN_SECONDS, partial(self._open_again, number))

    def _open_again(self, number: int) -> None:
        if self.has_ended:
            return
        if self.led.has_opened(number):
            self._wait(number)
            self.hand_over(number)
            return
        self.failed.discard(number)
        self.pending[number] = None
        self._begin()

    def _is_over(self) -> None:
        if not self.has_ended:
            self.then()

    def end(self) -> None:
        """The term has ended: no queue is opened any more."""
        self.has_ended = True


def is_stream(record: Record) -> bool:
    command = record.definition.command
    return isinstance(command, DeclareQueue) and queue_type(command.arguments) == STREAM
