"""Rounds of the group commit, one step at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.fake_client import FakeClient
from tests.support.machine import Machine, small_limits
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties

DURABLE = BasicProperties(delivery_mode=PERSISTENT)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with small_limits():
        machine = Machine(tmp_path)
        machine.run()
        yield machine
        machine.close()


def declare(client: FakeClient, queue: str, *, durable: bool = True) -> None:
    client.send(m.QueueDeclare(queue=queue, durable=durable, arguments={}))


SAME: list[tuple[m.Method, m.Method | None]] = [  # what is said twice, and what must have been before
    (m.QueueDeclare(queue="q", durable=True, arguments={}), None),
    (m.ExchangeDeclare(exchange="x", type="topic", durable=True, arguments={}), None),
    (
        m.QueueBind(queue="q", exchange="amq.topic", routing_key="k", arguments={}),
        m.QueueDeclare(queue="q", durable=True, arguments={}),
    ),
    (m.QueueDelete(queue="q"), m.QueueDeclare(queue="q", durable=True, arguments={})),
]


@pytest.mark.parametrize(("method", "before"), SAME, ids=[type(same).__name__ for same, _ in SAME])
def test_what_another_has_just_changed_is_answered_when_it_is_safe(
    machine: Machine, method: m.Method, before: m.Method | None
) -> None:
    one, other = machine.connect(), machine.connect()
    if before is not None:
        one.send(before)
        machine.run()
        one.methods()
    one.send(method)
    machine.turn()
    assert machine.disk.is_busy
    other.send(method)
    assert (one.methods(), other.methods()) == ([], [])
    machine.run()
    assert len(one.methods()) == len(other.methods()) == 1


def test_queue_that_does_not_survive_is_declared_without_waiting_for_others(machine: Machine) -> None:
    one, other = machine.connect(), machine.connect()
    declare(one, "durable")
    declare(other, "transient", durable=False)
    assert [type(method) for method in other.methods()] == [m.QueueDeclareOk]


def test_confirmed_message_is_synced_however_many_parts_its_round_has(machine: Machine) -> None:
    """With more segments of transient messages than files may be open, which need no sync."""
    client = machine.connect(confirming=True)
    transient = [f"t{number}" for number in range(10)]
    declare(client, "q")
    for queue in transient:
        declare(client, queue, durable=False)
    machine.run()
    client.methods()
    client.publish("", "q", b"at once, with the names of the files", DURABLE)
    client.publish("", "q", b"in the next round", DURABLE)
    for queue in transient:
        for _ in range(5):
            client.publish("", queue, b"x")
    machine.run()
    assert client.methods()[-1] == m.BasicAck(delivery_tag=52, multiple=True)
    machine.cut_power(Random(1))
    machine.platter.replace(machine.platter.least())
    machine.start()
    assert machine.queues["q"].message_count == 2


def test_tail_that_is_dead_while_it_is_written_is_given_back_later(machine: Machine) -> None:
    client = machine.connect()
    declare(client, "q")
    machine.run()
    client.send(m.BasicConsume(queue="q", no_ack=True, arguments={}))
    client.publish("", "q", b"in flight" * 100, DURABLE)
    client.publish("", "q", b"gathered" * 100, DURABLE)
    machine.store.tidy()
    machine.run()
    assert list(machine.data.glob("queues/*/*.seg")) != []
    machine.store.tidy()
    machine.run()
    machine.housekeeping.run()
    assert list(machine.data.glob("queues/*/*.seg")) == []
