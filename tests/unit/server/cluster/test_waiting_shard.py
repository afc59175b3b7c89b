"""What clients are told of queues whose shard waits for its members."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_client import FakeClient
from tests.support.frames import ALL_CAPABILITIES
from tests.support.machine import Machine
from tests.support.rounds import Rounds
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.server.cluster.waiting_shard import PATIENCE_SECONDS, WaitingShard

WHY = "has no leader now: 1 of 3 replicas is there"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """With a queue `q`."""
    machine = Machine(tmp_path)
    client = machine.connect()
    client.send(m.QueueDeclare(queue="q", durable=True, arguments={}))
    machine.run()
    yield machine
    machine.stop()
    machine.platter.close()


def waiting(machine: Machine) -> tuple[WaitingShard, Rounds]:
    """The queue's shard begins to wait."""
    rounds = Rounds()
    queue = machine.queues["q"]
    queue.safety = rounds
    return WaitingShard(machine.node, [queue], rounds, lambda: WHY), rounds


def test_a_publisher_that_waits_for_a_confirm_is_told_after_a_while(machine: Machine) -> None:
    shard, _ = waiting(machine)
    client, idle = machine.connect(confirming=True), machine.connect(confirming=True)
    client.publish("", "q", b"1", BasicProperties(delivery_mode=PERSISTENT))
    machine.run()
    assert client.methods() == [], "most often it is over in a moment"
    machine.pass_time(PATIENCE_SECONDS)
    assert WHY in client.expect_close(405).reply_text
    assert idle.methods() == []
    shard.end()


def test_who_waits_for_a_message_is_told_after_a_while(machine: Machine) -> None:
    shard, _ = waiting(machine)
    client = machine.connect()
    client.send(m.BasicGet(queue="q"))
    assert client.methods() == [], "most often it is over in a moment"
    machine.pass_time(PATIENCE_SECONDS)
    assert WHY in client.expect_close(405).reply_text
    shard.end()


def test_whoever_uses_the_queue_is_told_until_the_shard_goes_on(machine: Machine) -> None:
    shard, _ = waiting(machine)
    machine.pass_time(PATIENCE_SECONDS)
    told = f"queue 'q' in vhost '/' {WHY}"
    for method in (
        m.QueueDeclare(queue="q", passive=True, arguments={}),
        m.BasicGet(queue="q"),
        m.BasicConsume(queue="q", arguments={}),
    ):
        client = machine.connect()
        client.send(method)
        machine.run()
        assert told in client.expect_close(405).reply_text
    client = machine.connect()
    client.publish("", "q", b"1")
    machine.run()
    assert told in client.expect_close(405).reply_text
    shard.end()
    again = machine.connect()
    assert again.call(m.QueueDeclare(queue="q", passive=True, arguments={}), m.QueueDeclareOk).queue == "q"
    assert machine.node.vhosts["/"].elsewhere == 0


def test_a_queue_that_comes_later_waits_as_well(machine: Machine) -> None:
    shard, _ = waiting(machine)
    client = machine.connect()
    client.send(m.QueueDeclare(queue="late", durable=True, arguments={}))
    machine.run()
    machine.pass_time(PATIENCE_SECONDS)
    late = machine.queues["late"]
    shard.add(late)
    assert (late.returning, late.unavailable) == (1, WHY)
    shard.end()
    assert (late.returning, late.unavailable) == (0, "")


def consumer(machine: Machine, tag: str, *, capabilities: tuple[str, ...] = ALL_CAPABILITIES) -> FakeClient:
    """A client that consumes the queue."""
    client = FakeClient(machine.node, buffer=machine.buffer).open(capabilities=capabilities)
    client.call(m.BasicConsume(queue="q", consumer_tag=tag, arguments={}), m.BasicConsumeOk)
    return client


def test_consumers_are_cancelled_after_a_while(machine: Machine) -> None:
    told, elder = consumer(machine, "told"), consumer(machine, "elder", capabilities=())
    shard, _ = waiting(machine)
    machine.run()
    assert told.methods() == elder.methods() == [], "most often it is over in a moment"
    machine.pass_time(PATIENCE_SECONDS)
    assert told.methods() == [m.BasicCancel(consumer_tag="told", no_wait=True)]
    assert f"queue 'q' in vhost '/' {WHY}" in elder.expect_close(405).reply_text
    assert machine.queues["q"].consumers == []
    shard.end()
    again = consumer(machine, "told")
    again.publish("", "q", b"1")
    machine.run()
    assert again.bodies() == [b"1"]


def test_what_a_cancelled_consumer_has_may_be_acked_still(machine: Machine) -> None:
    client = consumer(machine, "c")
    client.publish("", "q", b"1")
    client.publish("", "q", b"2")
    machine.run()
    assert client.bodies() == [b"1", b"2"]
    shard, _ = waiting(machine)
    machine.pass_time(PATIENCE_SECONDS)
    assert client.methods() == [m.BasicCancel(consumer_tag="c", no_wait=True)]
    client.send(m.BasicAck(delivery_tag=1))
    machine.run()
    assert client.methods() == []
    shard.end()
    client.hang_up()
    machine.run()
    assert machine.queues["q"].message_count == 1
    again = machine.connect()
    again.send(m.BasicGet(queue="q"))
    machine.run()
    (got,) = again.contents()
    assert isinstance(got.method, m.BasicGetOk)
    assert (got.body, got.method.redelivered) == (b"2", True)


@pytest.mark.parametrize("capabilities", [ALL_CAPABILITIES, ()], ids=["cancelled", "closed"])
def test_an_auto_delete_queue_stays_though_its_consumers_are_sent_away(
    machine: Machine, capabilities: tuple[str, ...]
) -> None:
    queue = machine.queues["q"]
    queue.auto_delete = True
    client = consumer(machine, "c", capabilities=capabilities)
    shard, _ = waiting(machine)
    machine.pass_time(PATIENCE_SECONDS)
    client.hang_up()
    machine.run()
    assert queue.had_consumer
    assert not queue.is_consumed
    assert machine.queues["q"] is queue
    shard.end()


def test_nobody_is_told_if_the_wait_is_short(machine: Machine) -> None:
    idle = consumer(machine, "c")
    shard, _ = waiting(machine)
    shard.end()
    machine.pass_time(PATIENCE_SECONDS)
    assert idle.methods() == []
    client = machine.connect()
    assert client.call(m.QueueDeclare(queue="q", passive=True, arguments={}), m.QueueDeclareOk).queue == "q"
