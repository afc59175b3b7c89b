"""A queue that another node leads from now on takes and gives nothing, until another object stands for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_client import FakeClient
from tests.support.machine import Machine
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.broker.commands import DeclareQueue
from warren.broker.making import make_queue
from warren.broker.queue import Hold, Queue


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.stop()
    machine.platter.close()


def declare(machine: Machine, client: FakeClient) -> Queue:
    client.send(m.QueueDeclare(queue="q", durable=True, arguments={}))
    machine.run()
    client.frames()
    return machine.queues["q"]


def publish(client: FakeClient, body: bytes) -> None:
    client.publish("", "q", body, BasicProperties(delivery_mode=PERSISTENT))


def retire(machine: Machine) -> None:
    machine.node.vhosts["/"].retire_queue(machine.queues["q"])


def replace(machine: Machine) -> None:
    """Another node's queue stands there from now on."""
    vhost = machine.node.vhosts["/"]
    command = DeclareQueue(vhost="/", name="q", durable=True, home="b")
    vhost.replace_queue(machine.queues["q"], lambda: make_queue(machine.node, command))


def test_channel_that_has_published_to_it_before_is_told(machine: Machine) -> None:
    client = machine.connect(confirming=True)
    declare(machine, client)
    publish(client, b"1")
    machine.run()
    client.frames()
    retire(machine)
    publish(client, b"2")
    machine.run()
    assert "is not led by this node any more" in client.expect_close(405).reply_text
    assert machine.queues["q"].message_count == 1


@pytest.mark.parametrize(("kind", "key"), [("topic", "a.#"), ("fanout", ""), ("x-consistent-hash", "1")])
def test_routes_still_lead_to_it(machine: Machine, kind: str, key: str) -> None:
    """Else a message that no queue has taken would be confirmed."""
    client = machine.connect(confirming=True)
    declare(machine, client)
    client.send(m.ExchangeDeclare(exchange="e", type=kind, arguments={}))
    client.send(m.QueueBind(queue="q", exchange="e", routing_key=key, arguments={}))
    machine.run()
    client.frames()
    retire(machine)
    client.publish("e", "a.b", b"1", BasicProperties(delivery_mode=PERSISTENT))
    machine.run()
    assert "is not led by this node any more" in client.expect_close(405).reply_text


def test_nothing_is_delivered_and_nothing_taken_out(machine: Machine) -> None:
    client, other = machine.connect(), machine.connect()
    queue = declare(machine, client)
    publish(client, b"1")
    machine.run()
    retire(machine)
    other.send(m.BasicGet(queue="q", no_ack=True))
    assert "is not led" in other.expect_close(405).reply_text
    assert queue.logs() == [], "what happens to it changes nothing on disk"


def test_whoever_waits_for_a_message_is_told(machine: Machine) -> None:
    """An answer that the queue is empty would be wrong."""
    client, late = machine.connect(), machine.connect()
    queue = declare(machine, client)
    publish(client, b"1")
    machine.run()
    hold = Hold([queue])
    for each in (client, late):
        each.send(m.BasicGet(queue="q", no_ack=True))
        assert each.methods() == []
    retire(machine)
    hold.end()
    machine.run()
    assert "is not led" in client.expect_close(405).reply_text
    assert "is not led" in late.expect_close(405).reply_text


def test_whoever_waits_for_a_message_gets_it_from_what_stands_for_the_queue(machine: Machine) -> None:
    client = machine.connect()
    queue = declare(machine, client)
    hold = Hold([queue])
    client.send(m.BasicGet(queue="q", no_ack=True))
    command = DeclareQueue(vhost="/", name="q", durable=True)
    machine.node.vhosts["/"].replace_queue(queue, lambda: make_queue(machine.node, command))
    publish(machine.connect(), b"2")
    machine.run()
    (answer,) = client.methods()
    assert isinstance(answer, m.BasicGetOk)
    hold.end()


def test_who_has_messages_of_it_may_ack_and_return_them(machine: Machine) -> None:
    client = machine.connect()
    declare(machine, client)
    client.consume("q")
    publish(client, b"1")
    publish(client, b"2")
    machine.run()
    assert client.bodies() == [b"1", b"2"]
    retire(machine)
    client.send(m.BasicAck(delivery_tag=1))
    client.send(m.BasicNack(delivery_tag=2, requeue=True))
    machine.run()
    assert client.methods() == []
    replace(machine)
    machine.run()
    assert not machine.queues["q"].is_here
    assert not [method for method in client.methods() if isinstance(method, m.ChannelClose)]


def test_places_are_counted_while_queues_come_and_go(machine: Machine) -> None:
    client = machine.connect()
    vhost = machine.node.vhosts["/"]
    declare(machine, client)
    retire(machine)
    retire(machine)
    assert vhost.elsewhere == 1
    replace(machine)
    assert vhost.elsewhere == 1
    vhost.remove_queue(machine.queues["q"])
    assert vhost.elsewhere == 0

    queue = declare(machine, client)
    retire(machine)
    vhost.remove_queue(queue)
    assert (vhost.elsewhere, "q" in machine.queues) == (0, False)
    assert vhost.remove_queue(queue) == 0
    assert vhost.elsewhere == 0
