"""x-consumer-timeout: whoever keeps a message for too long loses its channel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.stage import Client, Stage, header
from warren.amqp import methods as m
from warren.amqp.table import Table
from warren.broker.node import Limits
from warren.server.app import CHECK_SECONDS

SLACK = 2 * CHECK_SECONDS  # a channel may be closed this much later than it is due
TEN_SECONDS: Table = {"x-consumer-timeout": 10_000}


def hold(stage: Stage, arguments: Table | None = None) -> Client:
    """A client to which a message was just delivered."""
    stage.client.queue("q", arguments)
    taker = stage.connect()
    taker.start("q")
    stage.client.put("q", b"m")
    assert taker.delivered() == [b"m"]
    return taker


def test_channel_is_closed_with_406_when_a_delivery_is_unacked_for_too_long(plain: Stage) -> None:
    taker = hold(plain, TEN_SECONDS)
    plain.pass_time(9.5)
    assert taker.methods() == []
    plain.pass_time(SLACK)
    assert taker.expect_close(406).reply_text.startswith(
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 10000 ms"
    )


def test_message_goes_to_another_consumer_as_redelivered(stage: Stage) -> None:
    hold(stage, {**TEN_SECONDS, "x-delivery-limit": 9})
    other = stage.connect()
    other.start("q")
    stage.pass_time(10 + SLACK)
    (again,) = other.deliveries()
    assert (again.body, again.method.redelivered) == (b"m", True)
    assert header(again, "x-delivery-count") == 1


def test_acked_in_time_is_fine(plain: Stage) -> None:
    taker = hold(plain, TEN_SECONDS)
    plain.pass_time(9.5)
    taker.ack(1)
    plain.pass_time(100)
    assert taker.methods() == []


def test_time_is_that_of_each_delivery(plain: Stage) -> None:
    taker = hold(plain, TEN_SECONDS)
    for number in range(1, 6):
        plain.pass_time(8)
        plain.client.put("q", b"m")
        taker.ack(number)
    assert taker.delivered() == [b"m"] * 5
    plain.pass_time(10 + SLACK)
    taker.expect_close(406)


def test_oldest_delivery_counts_whatever_is_acked_behind_it(plain: Stage) -> None:
    taker = hold(plain, TEN_SECONDS)
    plain.pass_time(5)
    plain.client.put("q", b"younger")
    taker.ack(2)
    taker.frames()
    plain.pass_time(5 + SLACK)
    taker.expect_close(406)


def test_waiting_in_the_queue_does_not_count(plain: Stage) -> None:
    plain.client.queue("q", TEN_SECONDS)
    plain.client.put("q", b"m")
    plain.pass_time(100)
    taker = plain.connect()
    taker.start("q")
    plain.pass_time(9)
    assert taker.delivered() == [b"m"]


def test_other_channels_of_the_connection_stay_open(plain: Stage) -> None:
    taker = hold(plain, TEN_SECONDS)
    taker.send(m.ChannelOpen(), 2)
    taker.frames()
    plain.pass_time(10 + SLACK)
    taker.expect_close(406)
    taker.send(m.QueueDeclare(queue="q", passive=True, arguments={}), 2)
    (declared,) = taker.methods(2)
    assert isinstance(declared, m.QueueDeclareOk)


def test_no_acknowledgement_no_timeout(plain: Stage) -> None:
    plain.client.queue("q", TEN_SECONDS)
    taker = plain.connect()
    taker.start("q", no_ack=True)
    plain.client.put("q", b"m")
    assert taker.delivered() == [b"m"]
    plain.pass_time(100)
    assert taker.methods() == []


def test_browsing_does_not_time_out(plain: Stage) -> None:
    plain.client.queue("q", TEN_SECONDS)
    plain.client.put("q", b"m")
    taker = plain.connect()
    taker.start("q", arguments={"x-browse": True})
    assert taker.delivered() == [b"m"]
    plain.pass_time(100)
    assert taker.methods() == []


def test_cancelled_consumer_that_keeps_messages_times_out_too(plain: Stage) -> None:
    taker = hold(plain, TEN_SECONDS)
    taker.cancel()
    taker.frames()
    plain.pass_time(10 + SLACK)
    taker.expect_close(406)


def test_half_an_hour_is_the_default(plain: Stage) -> None:
    assert Limits().consumer_timeout_ms == 1_800_000
    taker = hold(plain)
    plain.pass_time(1799)
    assert taker.methods() == []
    plain.pass_time(1 + SLACK)
    assert "Timeout value used: 1800000 ms" in taker.expect_close(406).reply_text


@pytest.mark.parametrize(
    ("of_node", "of_queue", "used"),
    [
        (5_000, None, 5_000),
        (5_000, 10_000, 10_000),
        (10_000, 5_000, 5_000),
        (5_000, 0, None),
        (0, None, None),
    ],
)
def test_what_the_queue_says_comes_before_the_node(
    plain: Stage, of_node: int, of_queue: int | None, used: int | None
) -> None:
    plain.machine.limits = replace(plain.machine.limits, consumer_timeout_ms=of_node)
    plain.restart()
    taker = hold(plain, None if of_queue is None else {"x-consumer-timeout": of_queue})
    if used is None:
        plain.pass_time(4000)
        assert taker.methods() == []
        return
    plain.pass_time(used / 1000 - 0.5)
    assert taker.methods() == []
    plain.pass_time(SLACK)
    assert f"Timeout value used: {used} ms" in taker.expect_close(406).reply_text
