"""Dead letters to exchanges that deduplicate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.fake_client import FakeClient
from tests.support.machine import Machine
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.broker.events import MessageDeduplicated

ONCE = BasicProperties(headers={"x-deduplication-header": 1}, delivery_mode=PERSISTENT)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.stop()
    machine.platter.close()


def declare(machine: Machine, client: FakeClient, name: str, arguments: Table | None = None) -> None:
    client.send(m.QueueDeclare(queue=name, durable=True, arguments=arguments or {}))
    machine.run()
    client.frames()


def with_dying_message(machine: Machine, target: Table | None = None) -> FakeClient:
    """The queue `target` behind an exchange that deduplicates, and `dying`, whose dead letters go to it. The
    client has a message of `dying`.
    """
    client = machine.connect()
    arguments: Table = {"x-message-deduplication": True}
    client.send(m.ExchangeDeclare(exchange="once", type="fanout", durable=True, arguments=arguments))
    machine.run()
    client.frames()
    declare(machine, client, "target", target)
    declare(machine, client, "dying", {"x-dead-letter-exchange": "once"})
    client.send(m.QueueBind(queue="target", exchange="once", arguments={}))
    client.publish("", "dying", b"dies", ONCE)
    machine.run()
    client.frames()
    client.call(m.BasicGet(queue="dying"), m.BasicGetOk)
    return client


def counts(machine: Machine) -> tuple[int, int]:
    return machine.queues["dying"].message_count, machine.queues["target"].message_count


@pytest.mark.parametrize("seed", range(8))
def test_duplicate_letter_stays_in_its_queue_until_what_was_seen_is_safe(machine: Machine, seed: int) -> None:
    client = with_dying_message(machine)
    client.publish("once", "", b"first", ONCE)
    client.send(m.BasicReject(delivery_tag=1, requeue=False))
    machine.kill(Random(seed))
    machine.start()
    assert sum(counts(machine)) > 0, "one of the two is there"


def test_duplicate_letter_leaves_its_queue_when_what_was_seen_is_safe(machine: Machine) -> None:
    client = with_dying_message(machine)
    dropped: list[str] = []
    machine.node.events.subscribe(MessageDeduplicated, lambda event: dropped.append(event.place))
    client.publish("once", "", b"first", ONCE)
    client.send(m.BasicReject(delivery_tag=1, requeue=False))
    machine.run()
    assert dropped == ["once"]
    machine.stop()
    machine.start()
    assert counts(machine) == (0, 1)


def test_letter_that_was_refused_is_not_remembered(machine: Machine) -> None:
    client = with_dying_message(machine, {"x-max-length": 1, "x-overflow": "reject-publish"})
    client.publish("", "target", b"full")
    client.send(m.BasicReject(delivery_tag=1, requeue=False))
    machine.run()
    assert counts(machine) == (0, 1)
    client.call(m.QueuePurge(queue="target"), m.QueuePurgeOk)
    client.publish("once", "", b"again", ONCE)
    machine.run()
    assert counts(machine) == (0, 1)
