"""The queues of a shard that this node leads, as its term begins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.log_machine import message
from tests.support.shard_machine import SHARD, ShardMachine
from warren.amqp.budget import Budget
from warren.amqp.errors import AmqpError
from warren.broker.commands import DeclareQueue
from warren.broker.node import Node
from warren.broker.turns import Turns
from warren.cluster.definitions.definition import Definition, path_of, queue_number
from warren.cluster.definitions.definition_copy import DefinitionCopy, Record
from warren.cluster.definitions.metadata import Metadata
from warren.server.cluster.shard_opening import ReadingThread
from warren.server.cluster.shard_queues import ShardQueues
from warren.storage.definition_keys import key_of
from warren.storage.led_shard import Recovered
from warren.storage.replication import LogId

REVISION = 7  # of the change that has made the queue
NUMBER = queue_number(REVISION, 0)


class Reading:
    """Stands in for the thread that reads logs back. The test says when it is done."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], Recovered], Callable[[Recovered | None], None]]] = []

    def read(self, work: Callable[[], Recovered], then: Callable[[Recovered | None], None]) -> None:
        self.held.append((work, then))

    def finish(self) -> None:
        for work, then in self.held:
            then(work())


class Leading:
    """A node that has just begun to lead a shard with the logs of one queue."""

    def __init__(self, path: Path) -> None:
        self.machine = ShardMachine(path)
        log, position = self.machine.lead(1).open_log(LogId(NUMBER))
        log.append(message(b"body"), position + 1, False)
        self.machine.settle()
        self.machine.follow()
        self.led = self.machine.lead(2)
        self.copy = DefinitionCopy()
        self.copy.revision = REVISION + 1
        command = DeclareQueue(vhost="/", name="q", durable=True)
        key, definition = key_of(command), Definition(command=command, shard=SHARD)
        self.record = Record(path_of(key), key, definition, REVISION, REVISION)
        self.copy.in_shards.add(self.record)
        self.caught_up: list[Callable[[AmqpError | None], None]] = []
        metadata = SimpleNamespace(
            model=SimpleNamespace(),
            proposals=SimpleNamespace(planner=SimpleNamespace()),
            copy=self.copy,
            catch_up=self.caught_up.append,
        )
        world = self.machine.world
        turns = Turns(world, Budget(), lambda: None, world.report)
        node = SimpleNamespace(world=world, turns=turns, end_turn=lambda: None)
        self.queues = ShardQueues(cast("Node", node), cast("Metadata", metadata), dict, "durable")
        self.reading = Reading()
        self.thread = self.queues.thread
        self.queues.thread = cast("ReadingThread", cast("Any", self.reading))
        self.handed_over: list[int] = []
        self.queues.hand_over = self.handed_over.append
        self.queues.shard_is_led(SHARD, self.led)

    def files(self) -> list[str]:
        self.machine.settle()
        return list(self.machine.segments())

    def catch_up(self) -> None:
        """The node knows all definitions that were there when it began to lead."""
        [then] = self.caught_up
        then(None)

    async def stop(self) -> None:
        await self.thread.stop()
        self.machine.close()


@pytest.fixture
async def leading(tmp_path: Path) -> AsyncIterator[Leading]:
    leading = Leading(tmp_path)
    yield leading
    await leading.stop()


def test_the_logs_of_a_deleted_queue_go_when_nobody_reads_them(leading: Leading) -> None:
    leading.copy.in_shards.discard(leading.record)
    leading.catch_up()
    assert leading.files(), "the thread is reading them"
    leading.reading.finish()
    assert leading.files() == []


def test_the_logs_of_a_queue_stay(leading: Leading) -> None:
    leading.catch_up()
    leading.reading.finish()
    assert leading.files()


def test_a_shard_is_not_handed_over_for_a_queue_that_was_deleted(leading: Leading) -> None:
    opening = leading.queues.openings[SHARD]
    opening.hand_over(NUMBER)
    leading.copy.in_shards.discard(leading.record)
    opening.hand_over(NUMBER)
    assert leading.handed_over == [SHARD]
