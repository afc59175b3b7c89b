"""How many messages that are on disk queues hold ready as well: few while nobody consumes them; otherwise as
many as one budget for all queues allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.support.fake_client import FakeClient
from tests.support.machine import Machine, give_up_ready
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.broker.lane import READY_FREE_BYTES_MAX, READY_FREE_MAX, READY_SLACK, Lane
from warren.broker.memory import Memory
from warren.broker.queue import Queue

MIB = 1024 * 1024
BUDGET_BYTES = MIB


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, memory_bytes=64 * MIB, segment_bytes=100_000)
    machine.node.memory.ready_limit_bytes = BUDGET_BYTES
    yield machine
    machine.stop()
    machine.platter.close()


def fill(client: FakeClient, name: str, count: int, size: int = 100, priority: int | None = None) -> None:
    properties = BasicProperties(delivery_mode=PERSISTENT, priority=priority)
    for number in range(count):
        client.publish("", name, (b"%06d" % number).ljust(size), properties)


def declare(machine: Machine, client: FakeClient, name: str, arguments: Table | None = None) -> Queue:
    """Declare a durable queue, and wait until that is safe on disk."""
    client.send(m.QueueDeclare(queue=name, durable=True, arguments=arguments or {}))
    machine.run()
    assert m.QueueDeclareOk in {type(method) for method in client.methods()}
    return machine.queues[name]


def ready_bytes(machine: Machine) -> int:
    return sum(lane.ready.bytes for queue in machine.queues.values() for lane in classic(queue).lanes)


def ready_count(queue: Queue) -> int:
    return sum(lane.ready.count for lane in classic(queue).lanes)


def numbers(client: FakeClient) -> list[int]:
    return [int(body[:6]) for body in client.bodies()]


def test_durable_queues_that_nobody_consumes_hold_next_to_nothing(machine: Machine) -> None:
    client = machine.connect()
    for number in range(40):
        declare(machine, client, f"q{number}")
        fill(client, f"q{number}", 200, 1_000)
        machine.run()
    assert ready_bytes(machine) <= 40 * READY_FREE_BYTES_MAX
    assert all(queue.message_count == 200 for queue in machine.queues.values())
    assert machine.node.memory.lent_bytes == 0


def test_a_queue_with_many_priorities_holds_no_more_than_one_without(machine: Machine) -> None:
    client = machine.connect()
    queue = declare(machine, client, "q", {"x-max-priority": 255})
    for priority in range(256):
        fill(client, "q", 20, priority=min(priority, 255))
    assert queue.message_count == 256 * 20
    assert ready_count(queue) <= READY_FREE_MAX


def test_a_large_message_that_nobody_waits_for_is_on_disk_only(machine: Machine) -> None:
    client = machine.connect()
    queue = declare(machine, client, "q")
    fill(client, "q", 3, MIB)
    assert classic(queue).lane.ready.bytes == 0
    assert queue.message_bytes == 3 * MIB


def test_when_the_last_consumer_goes_what_is_on_disk_is_given_up(machine: Machine) -> None:
    publisher, consumer = machine.connect(), machine.connect()
    queue = declare(machine, publisher, "q")
    consumer.call(m.BasicQos(prefetch_count=5), m.BasicQosOk)
    consumer.consume("q")
    fill(publisher, "q", 1_000)
    machine.run()
    assert classic(queue).lane.ready.count == 995, "it holds them ready for its consumer"
    assert numbers(consumer) == [0, 1, 2, 3, 4]
    consumer.hang_up()
    machine.run()
    assert classic(queue).lane.ready.count <= READY_FREE_MAX
    assert machine.node.memory.lent_bytes == 0
    assert queue.message_count == 1_000

    taker = machine.connect()
    taker.consume("q", no_ack=True)
    machine.run()
    found = taker.contents()
    assert [int(content.body[:6]) for content in found] == list(range(1_000))
    redelivered = [content.method.redelivered for content in found]  # type: ignore[attr-defined]
    assert redelivered == [True] * 5 + [False] * 995


def test_what_was_returned_is_redelivered_after_it_was_given_up(machine: Machine) -> None:
    client = machine.connect()
    queue = declare(machine, client, "q")
    client.consume("q")
    fill(client, "q", 300)
    machine.run()
    assert numbers(client) == list(range(300))
    client.hang_up()
    machine.run()
    assert classic(queue).lane.ready.count <= READY_FREE_MAX + READY_SLACK, "those that were out came back"
    taker = machine.connect()
    taker.consume("q", no_ack=True)
    machine.run()
    found = taker.contents()
    assert [int(content.body[:6]) for content in found] == list(range(300))
    assert all(content.method.redelivered for content in found)  # type: ignore[attr-defined]


def test_what_is_returned_to_a_queue_with_other_consumers_is_given_up_beyond_the_budget(
    machine: Machine,
) -> None:
    publisher, greedy, slow = machine.connect(), machine.connect(), machine.connect()
    queue = declare(machine, publisher, "q")
    greedy.consume("q")
    fill(publisher, "q", 3_000, 1_000)
    machine.run()
    assert len(greedy.bodies()) == 3_000
    slow.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    slow.consume("q")
    greedy.hang_up()
    machine.run()
    assert queue.message_count == 2_999
    assert ready_bytes(machine) <= BUDGET_BYTES + READY_FREE_BYTES_MAX
    assert numbers(slow) == [0]
    slow.send(m.BasicCancel(consumer_tag="c"))
    taker = machine.connect()
    taker.consume("q", no_ack=True)
    machine.run()
    found = taker.contents()
    assert [int(content.body[:6]) for content in found] == list(range(1, 3_000))
    assert all(content.method.redelivered for content in found)  # type: ignore[attr-defined]


def test_lane_that_fails_keeps_no_other_from_giving_up() -> None:
    jobs: list[Callable[[], None]] = []
    memory = Memory(1 << 30, 1 << 20, jobs.append)
    bad, good = FakeLane(fails=True), FakeLane(fails=False)
    for lane in (bad, good):
        memory.shrink_soon(cast("Lane", lane))
    with pytest.raises(OSError, match="unreadable"):
        jobs.pop()()
    jobs.pop()()
    assert (bad.asked, good.asked, jobs) == (1, 1, [])


@dataclass(eq=False)
class FakeLane:
    fails: bool
    asked: int = 0

    def give_up(self, _most: int) -> int:
        self.asked += 1
        if self.fails:
            raise OSError("unreadable")
        return 0

    def is_over(self) -> bool:
        return True


def test_queues_with_slow_consumers_share_one_budget(machine: Machine) -> None:
    client = machine.connect()
    client.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    for number in range(20):
        declare(machine, client, f"q{number}")
        client.consume(f"q{number}", tag=f"c{number}")
        fill(client, f"q{number}", 300, 1_000)
        machine.run()
    assert ready_bytes(machine) > BUDGET_BYTES // 2, "it is used"
    assert ready_bytes(machine) <= BUDGET_BYTES + 20 * READY_FREE_BYTES_MAX
    assert machine.node.memory.lent_bytes <= BUDGET_BYTES


def test_a_budget_that_lies_idle_is_lent_to_others(machine: Machine) -> None:
    client = machine.connect()
    for number in range(20):
        queue = declare(machine, client, f"q{number}")
        client.consume(f"q{number}", tag=f"c{number}", no_ack=True)
        fill(client, f"q{number}", 1)
        while classic(queue).lane.borrow():  # as a burst would have it
            pass
        machine.run()
    assert machine.node.memory.lent_bytes <= BUDGET_BYTES
    assert classic(queue).lane.loan > BUDGET_BYTES // 4, "to the last one as well"


def test_memory_alarm_has_what_is_on_disk_given_up(machine: Machine) -> None:
    client = machine.connect()
    client.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    queue = declare(machine, client, "q")
    client.consume("q")
    fill(client, "q", 500, 1_000)
    machine.run()
    assert classic(queue).lane.ready.count > 300
    machine.node.raise_alarm("memory")
    machine.run()
    assert classic(queue).lane.ready.count <= READY_FREE_MAX
    machine.node.clear_alarm("memory")
    tag = 1
    seen: list[int] = numbers(client)
    while len(seen) < 500:
        client.send(m.BasicAck(delivery_tag=tag))
        machine.run()
        seen += numbers(client)
        tag += 1
    assert seen == list(range(500))


def test_messages_that_were_given_up_expire_on_time(machine: Machine) -> None:
    client = machine.connect()
    queue = declare(machine, client, "q")
    client.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    client.consume("q", tag="slow")
    for number in range(200):
        expiration = "1000" if number % 2 else None
        properties = BasicProperties(delivery_mode=PERSISTENT, expiration=expiration)
        client.publish("", "q", b"%06d" % number, properties)
    machine.run()
    assert give_up_ready([queue]) > 100
    assert queue.message_count == 199
    machine.world.advance(2)
    machine.run()
    assert queue.message_count == 99
    client.send(m.BasicCancel(consumer_tag="slow"))
    taker = machine.connect()
    taker.consume("q", no_ack=True)
    machine.run()
    assert numbers(taker) == list(range(2, 200, 2))
