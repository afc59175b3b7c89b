"""x-expires: a queue that nobody uses for so long is deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.stage import TO_DEAD, Client, Stage
from warren.amqp import methods as m
from warren.amqp.table import Table

EXPIRES: Table = {"x-expires": 1000}


def test_queue_is_deleted_when_nobody_has_used_it_for_that_long(stage: Stage) -> None:
    stage.client.queue("q", EXPIRES)
    stage.client.bind("q", "amq.fanout")
    stage.client.put("q", b"1", b"2", b"3", b"4", b"5")
    stage.pass_ms(999)
    assert "q" in stage.queues
    stage.pass_ms(2)
    assert "q" not in stage.queues
    stage.client.send(m.QueueDeclare(queue="q", passive=True, arguments={}))
    stage.client.expect_close(404)


def get(client: Client) -> None:
    client.get("q")


def declare(client: Client) -> None:
    client.queue("q", EXPIRES)


def declare_passively(client: Client) -> None:
    client.count("q")


def consume_and_cancel(client: Client) -> None:
    client.start("q")
    client.cancel()
    client.frames()


@pytest.mark.parametrize("use", [get, declare, declare_passively, consume_and_cancel])
def test_use_starts_the_time_anew(plain: Stage, use: Callable[[Client], None]) -> None:
    plain.client.queue("q", EXPIRES)
    for _ in range(3):
        plain.client.put("q", b"m")
        plain.pass_ms(900)
        use(plain.client)
    plain.pass_ms(999)
    assert "q" in plain.queues
    plain.pass_ms(2)
    assert "q" not in plain.queues


def test_get_that_finds_nothing_starts_the_time_anew(plain: Stage) -> None:
    plain.client.queue("q", EXPIRES)
    plain.pass_ms(900)
    assert plain.client.get("q") is None
    plain.pass_ms(900)
    assert "q" in plain.queues


def test_publishing_does_not_start_the_time_anew(plain: Stage) -> None:
    plain.client.queue("q", EXPIRES)
    plain.pass_ms(900)
    plain.client.put("q", b"m")
    plain.pass_ms(101)
    assert "q" not in plain.queues


def test_queue_with_a_consumer_is_in_use(plain: Stage) -> None:
    plain.client.queue("q", EXPIRES)
    plain.client.start("q")
    plain.pass_ms(100_000)
    assert "q" in plain.queues


@pytest.mark.parametrize("how", ["cancel", "channel", "connection"])
def test_time_begins_when_the_last_consumer_goes(plain: Stage, how: str) -> None:
    taker = plain.connect()
    plain.client.queue("q", EXPIRES)
    for tag in ("a", "b"):
        taker.start("q", tag)
    plain.pass_ms(5000)
    taker.cancel("a")
    plain.pass_ms(5000)
    assert "q" in plain.queues
    if how == "cancel":
        taker.cancel("b")
    elif how == "channel":
        taker.reopen()
    else:
        taker.hang_up()
    plain.pass_ms(999)
    assert "q" in plain.queues
    plain.pass_ms(2)
    assert "q" not in plain.queues


def test_messages_of_an_expired_queue_are_not_dead_lettered(stage: Stage) -> None:
    stage.client.queue("dead")
    stage.client.queue("q", {**TO_DEAD, **EXPIRES})
    stage.client.put("q", *[b"m"] * 6)
    stage.pass_ms(1001)
    assert "q" not in stage.queues
    assert stage.client.count("dead") == 0


def test_queue_declared_again_under_the_name_has_its_own_time(plain: Stage) -> None:
    plain.client.queue("q", EXPIRES)
    plain.pass_ms(600)
    plain.client.delete("q")
    plain.client.queue("q", EXPIRES)
    plain.pass_ms(600)
    assert "q" in plain.queues
    plain.pass_ms(401)
    assert "q" not in plain.queues


def test_delivery_of_an_expired_queue_can_still_be_acked(plain: Stage) -> None:
    plain.client.queue("q", EXPIRES)
    plain.client.put("q", b"m")
    tag = plain.client.take("q").method.delivery_tag
    plain.pass_ms(1001)
    assert "q" not in plain.queues
    plain.client.ack(tag)
    plain.client.queue("other")


def test_restart_starts_the_time_anew(durable: Stage) -> None:
    durable.client.queue("q", {"x-expires": 60_000})
    durable.client.put("q", b"m")
    durable.pass_ms(50_000)
    durable.restart(down_ms=1_000_000)
    durable.pass_ms(59_000)
    assert "q" in durable.queues
    durable.pass_ms(1_001)
    assert "q" not in durable.queues


def test_expired_queue_is_gone_after_a_restart_too(durable: Stage) -> None:
    durable.client.queue("q", EXPIRES)
    durable.pass_ms(1001)
    durable.restart()
    assert "q" not in durable.queues
