"""How much a queue notes of messages that have an expiration of their own, and looks at in a turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from tests.support.frames import published
from tests.support.machine import Machine
from tests.support.queues import classic
from tests.unit.broker.test_bounded_turns import expire_silently
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.broker.due_heap import DueHeap
from warren.broker.expiry import STALE_AT_A_TIME_MAX
from warren.broker.queue import Queue
from warren.broker.timetable import LOOK_SECONDS_MAX

FEW, MANY = 300, 30_000
TIMES = 5
GONE_AT_A_TIME_MAX = 200  # in rulebook.py, where it is a C number


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    yield broker
    assert broker.world.errors == []
    broker.stop()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, memory_bytes=64 * 1024 * 1024, segment_bytes=100_000)
    yield machine
    machine.stop()
    machine.platter.close()


def heap_of(queue: Queue) -> DueHeap:
    """When each message of the queue expires."""
    expiry = classic(queue).lane.expiry
    assert expiry is not None, "a message with an expiration has come"
    return expiry.heap


def short(milliseconds: int, delivery_mode: int | None = None) -> BasicProperties:
    return BasicProperties(expiration=str(milliseconds), delivery_mode=delivery_mode)


def durable_queue(machine: Machine, client: FakeClient) -> Queue:
    client.send(m.QueueDeclare(queue="q", durable=True, arguments={}))
    machine.run()
    client.frames()
    return machine.queues["q"]


def take_all_and_hang_up(machine: Machine) -> None:
    taker = machine.connect()
    taker.consume("q")
    machine.run()
    assert len(taker.bodies()) == FEW
    taker.hang_up()
    machine.run()


def test_message_that_returns_again_and_again_is_noted_once(broker: FakeBroker) -> None:
    client = broker.connect().open()
    queue = client.declare("q")
    client.feed(FEW * published("", "q", b"x", short(60_000)))
    client.consume("q")
    for time in range(TIMES):
        assert len(client.bodies()) == FEW
        client.send(m.BasicNack(delivery_tag=(time + 1) * FEW, multiple=True, requeue=True))
        broker.world.run()
    assert heap_of(queue).count == FEW
    client.send(m.BasicCancel(consumer_tag="c"))
    client.send(m.BasicNack(delivery_tag=0, multiple=True, requeue=True))
    broker.world.run()
    assert (heap_of(queue).count, queue.message_count) == (FEW, FEW)
    broker.advance(61)
    assert queue.message_count == 0


def test_message_that_is_out_during_a_purge_expires_when_it_comes_back(broker: FakeBroker) -> None:
    client = broker.connect().open()
    queue = client.declare("q")
    client.feed(FEW * published("", "q", b"x", short(60_000)))
    broker.world.run()
    client.consume("q")
    client.send(m.BasicCancel(consumer_tag="c"))
    client.send(m.QueuePurge(queue="q"))
    client.send(m.BasicNack(delivery_tag=0, multiple=True, requeue=True))
    broker.world.run()
    assert (queue.message_count, heap_of(queue).count) == (FEW, FEW)
    broker.advance(61)
    assert queue.message_count == 0


def test_message_that_is_given_up_again_and_again_is_noted_once(machine: Machine) -> None:
    client = machine.connect()
    queue = durable_queue(machine, client)
    for _ in range(FEW):
        client.publish("", "q", b"x", short(60_000, PERSISTENT))
    machine.run()
    for _ in range(TIMES):
        take_all_and_hang_up(machine)
        assert classic(queue).lane.ready.count < FEW, "the others were given up"
    assert heap_of(queue).count == FEW
    machine.world.advance(61)
    machine.run()
    assert queue.message_count == 0


def test_message_that_a_selector_takes_from_behind_again_and_again_is_noted_once(machine: Machine) -> None:
    client = machine.connect()
    queue = durable_queue(machine, client)
    for _ in range(FEW):
        client.publish("", "q", b"x", short(60_000, PERSISTENT))
    machine.run()
    for _ in range(TIMES):
        taker = machine.connect()
        taker.consume("q", arguments={"x-selector": "TRUE"})
        machine.run()
        assert len(taker.bodies()) == FEW
        taker.hang_up()
        machine.run()
    assert heap_of(queue).count == FEW
    machine.world.advance(61)
    machine.run()
    assert queue.message_count == 0


def test_notes_of_very_many_messages_that_are_gone_are_passed_over_several_turns(broker: FakeBroker) -> None:
    """Of as many messages as are still there, all with the same deadline."""
    client = broker.connect().open()
    queue = client.declare("q")
    for _ in range(2 * MANY // 100):
        client.feed(100 * published("", "q", b"x", short(60_000)))
    taker = broker.connect("taker").open()
    taker.send(m.BasicQos(prefetch_count=MANY))
    taker.consume("q")
    broker.world.run()
    taker.send(m.BasicCancel(consumer_tag="c"))
    taker.send(m.BasicAck(delivery_tag=0, multiple=True))
    broker.world.run()
    heap = heap_of(queue)
    assert (queue.message_count, heap.count) == (MANY, 2 * MANY)
    expire_silently(broker)
    queue.touch()
    broker.node.end_turn()
    assert 0 < 2 * MANY - heap.count <= STALE_AT_A_TIME_MAX + GONE_AT_A_TIME_MAX
    broker.advance(LOOK_SECONDS_MAX)
    while heap.count:
        before = heap.count
        broker.advance(0.001)
        assert heap.count < before
    assert queue.message_count == 0
