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
from tests.support.frames import published
from tests.support.machine import Machine, give_up_ready
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.broker import commands
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


def held_count(queue: Queue) -> int:
    return sum(lane.ready.count + lane.strays.count for lane in classic(queue).lanes)


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


RULES: dict[str, Table] = {
    "priorities": {"x-max-priority": 2},
    "a length limit": {"x-max-length": 1_000_000},
    "a TTL": {"x-message-ttl": 3_600_000},
    "a delivery limit": {"x-delivery-limit": 10},
    "a quorum queue": {"x-queue-type": "quorum"},
    "a single active consumer": {"x-single-active-consumer": True},
}


@pytest.mark.parametrize("arguments", RULES.values(), ids=RULES)
def test_what_was_returned_to_a_queue_with_rules_is_given_up_as_well(
    machine: Machine, arguments: Table
) -> None:
    client = machine.connect()
    queue = declare(machine, client, "q", arguments)
    fill(client, "q", 300)
    for count in (1, 2, 3):
        taker = machine.connect()
        taker.consume("q")
        machine.run()
        found = taker.contents()
        assert [int(content.body[:6]) for content in found] == list(range(300))
        assert {content.method.redelivered for content in found} == {count > 1}  # type: ignore[attr-defined]
        taker.hang_up()
        machine.run()
        assert ready_count(queue) <= READY_FREE_MAX + READY_SLACK
        assert queue.message_count == 300
    taker = machine.connect()
    taker.consume("q")
    machine.run()
    counts = [entry.delivery_count for entry in taker.channel.deliveries.entries()]
    assert counts == [3] * 300


def test_what_others_still_have_keeps_nothing_from_being_given_up(machine: Machine) -> None:
    """Two consumers have every other message each, and some are acked."""
    client = machine.connect()
    queue = declare(machine, client, "q")
    takers = [machine.connect(), machine.connect()]
    for taker in takers:
        taker.consume("q")
    fill(client, "q", 1_000)
    machine.run()
    for tag in (1, 100, 101, 500):
        takers[0].send(m.BasicAck(delivery_tag=tag))
    acked = {0, 198, 200, 998}
    for taker in takers:
        taker.send(m.BasicCancel(consumer_tag="c"))
    for taker, left in zip(takers, (496, 996), strict=True):
        taker.hang_up()
        machine.run()
        assert queue.message_count == left
        assert held_count(queue) <= READY_FREE_MAX + READY_SLACK
    last = machine.connect()
    last.consume("q", no_ack=True)
    machine.run()
    assert numbers(last) == [number for number in range(1_000) if number not in acked]


def test_transient_messages_between_those_that_are_given_up_keep_their_place(machine: Machine) -> None:
    client, taker = machine.connect(), machine.connect()
    queue = declare(machine, client, "q")
    taker.consume("q")
    for number in range(600):
        properties = BasicProperties(delivery_mode=PERSISTENT if number % 2 else None)
        client.publish("", "q", b"%06d" % number, properties)
    machine.run()
    taker.hang_up()
    machine.run()
    assert queue.message_count == 600
    assert held_count(queue) <= 300 + 1, "the transient ones, and the head"
    last = machine.connect()
    last.consume("q", no_ack=True)
    machine.run()
    assert numbers(last) == list(range(600))


def test_messages_taken_from_the_middle_that_come_back_are_given_up(machine: Machine) -> None:
    client = machine.connect()
    queue = declare(machine, client, "q")
    for number in range(1_000):
        properties = BasicProperties(delivery_mode=PERSISTENT, headers={"odd": bool(number % 2)})
        client.publish("", "q", b"%06d" % number, properties)
    choosy = machine.connect()
    choosy.send(m.BasicConsume(queue="q", consumer_tag="c", arguments={"x-selector": "odd = TRUE"}))
    machine.run()
    assert numbers(choosy) == list(range(1, 1_000, 2))
    choosy.hang_up()
    machine.run()
    assert queue.message_count == 1_000
    assert held_count(queue) <= READY_FREE_MAX + READY_SLACK
    last = machine.connect()
    last.consume("q", no_ack=True)
    machine.run()
    assert numbers(last) == list(range(1_000))


def test_ready_bytes_are_told_though_nobody_consumes_and_nothing_can_be_given_up(machine: Machine) -> None:
    client, taker = machine.connect(), machine.connect()
    client.declare("q")
    taker.consume("q")
    for _ in range(100):
        client.publish("", "q", bytes(1_000))
    machine.run()
    assert machine.node.memory.ready_bytes() == 0, "they are with the consumer"
    taker.hang_up()
    machine.run()
    assert machine.node.memory.ready_bytes() == 100_000
    client.call(m.QueuePurge(queue="q"), m.QueuePurgeOk)
    assert machine.node.memory.ready_bytes() == 0


def set_policy(machine: Machine, definition: Table) -> None:
    machine.node.execute(
        commands.PutPolicy(
            vhost="/",
            name="rules",
            pattern="",
            definition=definition,
            priority=0,
            apply_to="all",
            operator=False,
        )
    )
    machine.run()


def take_and_return(machine: Machine) -> None:
    """Have a consumer take all messages and die."""
    taker = machine.connect()
    taker.consume("q")
    machine.run()
    taker.hang_up()
    machine.run()


def test_lower_delivery_limit_does_not_bury_what_was_returned_and_given_up(machine: Machine) -> None:
    """It holds when a message is returned once more, as for those that were not given up."""
    client = machine.connect()
    queue = declare(machine, client, "q")
    set_policy(machine, {"delivery-limit": 5})
    fill(client, "q", 200)
    for _ in range(3):
        take_and_return(machine)
    assert ready_count(queue) < 200
    set_policy(machine, {"delivery-limit": 2})
    taker = machine.connect()
    taker.consume("q")
    machine.run()
    assert numbers(taker) == list(range(200))
    taker.hang_up()
    machine.run()
    assert queue.message_count == 0


def test_what_was_returned_without_a_delay_and_given_up_does_not_wait_later(machine: Machine) -> None:
    """Only what was delivered in an earlier run waits for its retry after a start."""
    client = machine.connect()
    declare(machine, client, "q", {"x-max-length": 1_000})
    fill(client, "q", 200)
    machine.run()
    machine.stop()
    machine.start()
    take_and_return(machine)
    assert ready_count(machine.queues["q"]) < 200
    set_policy(machine, {"retry-delay-min": 3_600_000, "retry-delay-max": 3_600_000})
    taker = machine.connect()
    taker.consume("q")
    machine.run()
    assert numbers(taker) == list(range(200))


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

    def holds_too_much(self) -> bool:
        return False


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


def test_giving_up_costs_nothing_where_only_transient_messages_are_held(machine: Machine) -> None:
    client = machine.connect()
    queue = declare(machine, client, "q")
    for _ in range(100):
        client.feed(100 * published("", "q", b"transient"))
    client.consume("q")
    machine.run()
    client.hang_up()
    machine.run()
    lane = classic(queue).lane
    assert lane.holds_too_much()
    budget = machine.node.turns.budget
    before = budget.left
    for _ in range(10):
        assert lane.give_up(10_000) == 0
    assert before == budget.left
    assert lane.strays.count + lane.ready.count == queue.message_count == 10_000


def test_stored_messages_among_very_many_transient_ones_are_given_up(machine: Machine) -> None:
    client = machine.connect()
    queue = declare(machine, client, "q")
    fill(client, "q", 100)
    for _ in range(20):
        client.feed(100 * published("", "q", b"transient"))
    fill(client, "q", 100)
    client.consume("q")
    machine.run()
    client.hang_up()
    machine.run()
    lane = classic(queue).lane
    assert lane.stored_strays == 0
    assert lane.strays.count == 2_000
    taker = machine.connect()
    taker.consume("q", no_ack=True)
    machine.run()
    bodies = taker.bodies()
    assert [int(body[:6]) for body in bodies if body != b"transient"] == 2 * list(range(100))
    assert len(bodies) == 2_200


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
