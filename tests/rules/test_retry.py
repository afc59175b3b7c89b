"""x-retry-delay-min and -max: a message that is given back returns after a delay, which grows each time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.stage import TO_DEAD, Client, Stage, header, numbers, why
from warren.amqp import methods as m
from warren.amqp.table import Table

RETRY: Table = {"x-retry-delay-min": 1000, "x-retry-delay-max": 5000}


def return_next(client: Client, queue: str = "q") -> None:
    client.requeue(client.take(queue).method.delivery_tag)


@pytest.mark.parametrize(
    ("arguments", "delays"),
    [
        (RETRY, [1000, 2000, 4000, 5000, 5000]),
        ({"x-retry-delay-min": 100}, [100, 200, 400, 800, 1600, 3200]),
        ({"x-retry-delay-min": 300, "x-retry-delay-max": 300}, [300, 300, 300]),
    ],
    ids=str,
)
def test_delay_doubles_up_to_the_longest(stage: Stage, arguments: Table, delays: list[int]) -> None:
    client = stage.client
    client.queue("q", arguments)
    client.put("q", b"m")
    content = client.take("q")
    for count, delay in enumerate(delays, 1):
        client.requeue(content.method.delivery_tag)
        stage.pass_ms(delay - 1)
        assert client.get("q") is None
        stage.pass_ms(2)
        content = client.take("q")
        assert content.method.redelivered
        assert header(content, "x-delivery-count") == count


def test_a_day_is_the_longest_delay_if_nothing_is_said(plain: Stage) -> None:
    client = plain.client
    client.queue("q", {"x-retry-delay-min": 3_600_000})
    client.put("q", b"m")
    for hours in (1, 2, 4, 8, 16, 24, 24):
        return_next(client)
        plain.pass_ms(hours * 3_600_000 - 1)
        assert client.get("q") is None
        plain.pass_ms(2)
    assert client.drain("q") == [b"m"]


def nack(client: Client) -> None:
    client.send(m.BasicNack(delivery_tag=0, multiple=True))


def recover(client: Client) -> None:
    client.call(m.BasicRecover(requeue=True), m.BasicRecoverOk)


def close(client: Client) -> None:
    client.reopen()


def hang_up(client: Client) -> None:
    client.hang_up()


@pytest.mark.parametrize("give_back", [nack, recover, close, hang_up])
def test_every_way_back_waits(stage: Stage, give_back: Callable[[Client], None]) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("q", RETRY)
    client.put("q", *numbers(5))
    for _ in range(5):
        taker.take("q")
    give_back(taker)
    stage.pass_ms(999)
    assert client.get("q") is None
    stage.pass_ms(2)
    assert client.drain("q") == numbers(5)


def test_consumer_gets_it_when_the_delay_is_over(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("q", RETRY)
    taker.start("q")
    client.put("q", b"m")
    assert taker.delivered() == [b"m"]
    for tag, delay in enumerate((1000, 2000, 4000), 1):
        taker.requeue(tag)
        stage.pass_ms(delay - 1)
        assert taker.delivered() == []
        stage.pass_ms(2)
        assert taker.delivered() == [b"m"]


def test_others_overtake_what_waits_and_it_returns_to_its_place(stage: Stage) -> None:
    client = stage.client
    client.queue("q", RETRY)
    client.put("q", *numbers(7))
    return_next(client)
    assert [client.take("q").body for _ in range(2)] == [b"1", b"2"]
    stage.pass_ms(1001)
    assert client.drain("q") == [b"0", b"3", b"4", b"5", b"6"]


def test_what_waits_comes_back_in_the_order_of_its_times(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("q", RETRY)
    client.put("q", b"a", b"b")
    return_next(client)
    stage.pass_ms(1001)
    return_next(client)  # a, for 2 s
    return_next(client)  # b, for 1 s
    taker.start("q")
    stage.pass_ms(1001)
    assert taker.delivered() == [b"b"]
    stage.pass_ms(1000)
    assert taker.delivered() == [b"a"]


def test_what_is_returned_too_often_dies_without_waiting(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**RETRY, **TO_DEAD, "x-delivery-limit": 2})
    client.put("q", b"m")
    for delay in (1000, 2000):
        return_next(client)
        assert client.count("dead") == 0
        stage.pass_ms(delay + 1)
    return_next(client)
    (dead,) = client.drain_all("dead")
    assert why(dead) == [("q", "delivery_limit", 1)]


def test_rejected_message_dies_at_once(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**RETRY, **TO_DEAD})
    client.put("q", b"m")
    client.reject(client.take("q").method.delivery_tag)
    assert client.drain("dead") == [b"m"]


def test_purge_drops_what_waits_too(stage: Stage) -> None:
    client = stage.client
    client.queue("q", RETRY)
    client.put("q", *numbers(6))
    for _ in range(3):
        return_next(client)
    client.call(m.QueuePurge(queue="q"), m.QueuePurgeOk)
    stage.pass_ms(100_000)
    assert client.drain("q") == []


def test_queue_that_is_deleted_takes_what_waits_with_it(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**RETRY, **TO_DEAD})
    client.put("q", *numbers(6))
    for _ in range(3):
        return_next(client)
    client.delete("q")
    client.queue("q", RETRY)
    stage.pass_ms(100_000)
    assert client.drain("q") == []
    assert client.count("dead") == 0


def test_message_that_expires_while_it_waits_dies(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-retry-delay-min": 5000, "x-message-ttl": 2000})
    client.put("q", b"m")
    return_next(client)
    stage.pass_ms(5001)
    assert client.get("q") is None
    (dead,) = client.drain_all("dead")
    assert why(dead) == [("q", "expired", 1)]


@pytest.mark.parametrize("out", ["waiting", "unacked"])
def test_delay_begins_anew_with_a_restart(durable: Stage, out: str) -> None:
    client = durable.client
    client.queue("q", {"x-retry-delay-min": 60_000})
    client.put("q", *numbers(6))
    taken = client.take("q")
    if out == "waiting":
        client.requeue(taken.method.delivery_tag)
        durable.pass_ms(50_000)
    client = durable.restart(down_ms=1_000_000)
    assert client.drain("q") == numbers(5, 1)
    durable.pass_ms(59_000)
    assert client.get("q") is None
    durable.pass_ms(1_001)
    got = client.get("q")
    assert got is not None
    assert (got.body, header(got, "x-delivery-count")) == (b"0", 1)


def test_what_waited_is_not_twice_there_after_a_restart(durable: Stage) -> None:
    client = durable.client
    client.queue("q", {"x-retry-delay-min": 60_000})
    client.put("q", *numbers(6))
    for _ in range(6):
        return_next(client)
    durable.restart()
    durable.pass_ms(60_001)
    client = durable.restart()
    durable.pass_ms(60_001)
    assert client.drain("q") == numbers(6)
