"""A paused queue takes messages and delivers none; its other rules go on."""

from __future__ import annotations

import pytest

from tests.rules.stage import Stage, numbers
from warren.amqp.errors import NotFound
from warren.amqp.table import Table
from warren.broker import commands


def pause(stage: Stage, queue: str = "q") -> None:
    stage.node.execute(commands.PauseQueue(vhost="/", name=queue))
    stage.settle()


def resume(stage: Stage, queue: str = "q") -> None:
    stage.node.execute(commands.ResumeQueue(vhost="/", name=queue))
    stage.node.end_turn()
    stage.settle()


RULES: list[Table] = [
    {},
    {"x-max-priority": 2},
    {"x-message-ttl": 3_600_000},
    {"x-group-header": "g"},
    {"x-single-active-consumer": True},
]


@pytest.mark.parametrize("arguments", RULES, ids=lambda arguments: next(iter(arguments), "no rules"))
def test_paused_queue_delivers_nothing_until_it_is_resumed(stage: Stage, arguments: Table) -> None:
    client = stage.client
    client.queue("q", arguments)
    client.start("q", no_ack=True)
    pause(stage)
    client.put("q", *numbers(10))
    assert client.delivered() == []
    assert client.count("q") == 10
    resume(stage)
    assert client.delivered() == numbers(10)


@pytest.mark.parametrize("arguments", [{"x-browse": True}, {"x-selector": "TRUE"}])
def test_consumers_that_choose_get_nothing_either(stage: Stage, arguments: Table) -> None:
    client = stage.client
    client.queue("q")
    pause(stage)
    client.put("q", *numbers(10))
    client.start("q", arguments=arguments)
    assert client.delivered() == []
    resume(stage)
    assert client.delivered() == numbers(10)


def test_get_from_a_paused_queue_is_empty(stage: Stage) -> None:
    stage.client.queue("q")
    stage.client.put("q", b"1")
    pause(stage)
    assert stage.client.get("q") is None
    resume(stage)
    assert stage.client.drain("q") == [b"1"]


def test_messages_of_a_paused_queue_expire_and_are_dropped(stage: Stage) -> None:
    stage.client.queue("q", {"x-message-ttl": 1000, "x-max-length": 3})
    stage.client.start("q")
    pause(stage)
    stage.client.put("q", *numbers(5))
    assert stage.client.delivered() == []
    assert stage.client.count("q") == 3
    stage.pass_ms(1100)
    assert stage.client.count("q") == 0


def test_paused_queue_with_a_waiting_consumer_refuses_what_it_has_no_room_for(plain: Stage) -> None:
    plain.client.queue("q", {"x-max-length": 0, "x-overflow": "reject-publish"})
    plain.client.start("q")
    pause(plain)
    publisher = plain.connect(confirming=True)
    publisher.put("q", b"1")
    assert publisher.nacked() == [1]


def test_publishers_are_not_held_back_for_a_paused_queue(plain: Stage) -> None:
    plain.client.queue("q")
    plain.client.start("q", prefetch=1)
    queue = plain.queues["q"]
    assert queue.is_worked_off
    pause(plain)
    assert not queue.is_worked_off


def test_stream_can_be_paused(durable: Stage) -> None:
    client = durable.client
    client.declare("s", durable=True, arguments={"x-queue-type": "stream"})
    client.start("s", prefetch=100, arguments={"x-stream-offset": "first"})
    pause(durable, "s")
    client.put("s", *numbers(5))
    assert client.delivered() == []
    resume(durable, "s")
    assert client.delivered() == numbers(5)


def test_pause_survives_a_restart_and_ends_with_the_queue(durable: Stage) -> None:
    durable.client.queue("q")
    durable.client.put("q", b"1")
    pause(durable)
    client = durable.restart()
    assert durable.queues["q"].paused
    assert client.get("q") is None
    client.delete("q")
    client.queue("q")
    assert not durable.queues["q"].paused
    client = durable.restart()
    assert not durable.queues["q"].paused


def test_resume_survives_a_restart(durable: Stage) -> None:
    durable.client.queue("q")
    pause(durable)
    resume(durable)
    durable.restart()
    assert not durable.queues["q"].paused


def test_queue_that_is_not_there_cannot_be_paused(plain: Stage) -> None:
    with pytest.raises(NotFound):
        plain.node.execute(commands.PauseQueue(vhost="/", name="absent"))
