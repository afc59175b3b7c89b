"""A queue that another node leads from now on, or this one: another object stands for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_client import FakeClient
from tests.support.machine import Machine
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.broker.commands import DeclareQueue, PauseQueue
from warren.broker.making import make_queue
from warren.broker.queue import Queue

ELSEWHERE = "other"
PUBLISHED = BasicProperties(delivery_mode=PERSISTENT)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.stop()
    machine.platter.close()


def replace(machine: Machine, name: str, *, home: str = "") -> Queue:
    """From now on the queue lives on the node of this name; empty for this one."""
    node = machine.node
    vhost = node.vhosts["/"]
    wanted = DeclareQueue(vhost="/", name=name, durable=True, home=home)
    new = vhost.replace_queue(vhost.find_queue(name), lambda: make_queue(node, wanted))
    node.end_turn()
    machine.run()
    return new


def declare(machine: Machine, client: FakeClient) -> Queue:
    client.send(m.QueueDeclare(queue="q", durable=True, arguments={}))
    client.send(m.QueueBind(queue="q", exchange="amq.topic", routing_key="a.#", arguments={}))
    machine.run()
    client.frames()
    return machine.queues["q"]


def test_queue_that_leaves_keeps_its_bindings_and_its_log(machine: Machine) -> None:
    client = machine.connect()
    queue = declare(machine, client)
    client.publish("amq.topic", "a.b", b"1", PUBLISHED)
    machine.run()
    log = classic(queue).lane.log
    assert log is not None
    replace(machine, "q", home=ELSEWHERE)
    assert machine.node.vhosts["/"].elsewhere == 1
    client.publish("amq.topic", "a.b", b"2", PUBLISHED)
    assert client.expect_close(405).reply_text.startswith("RESOURCE_LOCKED - queue 'q' in vhost '/' is on")
    assert machine.safe_messages("q"), "its messages are still on disk"


def test_queue_that_comes_takes_messages_by_its_old_bindings(machine: Machine) -> None:
    client = machine.connect()
    declare(machine, client)
    replace(machine, "q", home=ELSEWHERE)
    here = replace(machine, "q")
    assert machine.node.vhosts["/"].elsewhere == 0
    client.publish("amq.topic", "a.b", b"1", PUBLISHED)
    client.publish("", "q", b"2", PUBLISHED)
    assert here.message_count == 2


def test_consumers_are_told_and_late_acks_harm_nobody(machine: Machine) -> None:
    client = machine.connect()
    declare(machine, client)
    client.consume("q")
    client.publish("", "q", b"1", PUBLISHED)
    machine.run()
    client.frames()
    replace(machine, "q", home=ELSEWHERE)
    assert [type(method) for method in client.methods()] == [m.BasicCancel]
    client.send(m.BasicAck(delivery_tag=1))
    machine.run()
    assert client.methods() == []


def test_paused_queue_stays_paused(machine: Machine) -> None:
    client = machine.connect()
    declare(machine, client)
    machine.node.execute(PauseQueue(vhost="/", name="q"))
    assert replace(machine, "q", home=ELSEWHERE).paused
    assert replace(machine, "q").paused


def test_queue_of_an_exchange_is_replaced_in_its_exchange(machine: Machine) -> None:
    client = machine.connect()
    arguments: Table = {"x-delayed-type": "fanout"}
    client.send(m.ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True, arguments=arguments))
    machine.run()
    client.frames()
    replace(machine, "amq.delayed.x", home=ELSEWHERE)
    here = replace(machine, "amq.delayed.x")
    delayed = BasicProperties(delivery_mode=PERSISTENT, headers={"x-delay": 10_000})
    client.publish("x", "", b"later", delayed)
    assert here.message_count == 1
