"""Quorum queues keep every message on disk, as RabbitMQ's do, whatever its delivery mode is."""

from __future__ import annotations

import pytest

from tests.rules.stage import Stage, numbers
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, TRANSIENT, BasicProperties
from warren.amqp.table import Table

QUORUM: Table = {"x-queue-type": "quorum"}


@pytest.mark.parametrize("arguments", [QUORUM, QUORUM | {"x-delivery-limit": -1}], ids=["limit", "no limit"])
def test_transient_messages_of_a_quorum_queue_survive_a_restart(durable: Stage, arguments: Table) -> None:
    client = durable.client
    client.queue("q", arguments)
    for body in numbers(50):
        client.publish("", "q", body, BasicProperties(delivery_mode=TRANSIENT))
    durable.restart()
    taken = [durable.client.take("q") for _ in range(50)]
    assert [content.body for content in taken] == numbers(50)
    assert {content.properties.delivery_mode for content in taken} == {TRANSIENT}, (
        "it says what was published"
    )


def test_transient_message_of_a_quorum_queue_is_confirmed_when_it_is_safe(durable: Stage) -> None:
    client = durable.client
    client.queue("q", QUORUM)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("", "q", b"m", BasicProperties(delivery_mode=TRANSIENT))
    assert client.methods() == []
    durable.machine.run()
    assert [type(method) for method in client.methods()] == [m.BasicAck]


def test_classic_queue_beside_it_forgets_the_same_transient_message(durable: Stage) -> None:
    client = durable.client
    client.queue("quorum", QUORUM)
    client.queue("classic")
    for queue in ("quorum", "classic"):
        client.send(m.QueueBind(queue=queue, exchange="amq.fanout", arguments={}))
    durable.machine.run()
    client.publish("amq.fanout", "", b"transient", BasicProperties(delivery_mode=TRANSIENT))
    client.publish("amq.fanout", "", b"persistent", BasicProperties(delivery_mode=PERSISTENT))
    durable.restart()
    assert durable.machine.queues["quorum"].message_count == 2
    assert durable.machine.queues["classic"].message_count == 1
