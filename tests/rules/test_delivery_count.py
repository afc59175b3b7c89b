"""The header x-delivery-count of redelivered messages, and x-delivery-limit."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.rules.stage import TO_DEAD, Client, Stage, header, numbers, why
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Int64, Table
from warren.broker.commands import PutPolicy


def nack(client: Client, tag: int) -> None:
    client.send(m.BasicNack(delivery_tag=tag, requeue=True))


def reject(client: Client, tag: int) -> None:
    client.send(m.BasicReject(delivery_tag=tag, requeue=True))


def recover(client: Client, tag: int) -> None:
    client.call(m.BasicRecover(requeue=True), m.BasicRecoverOk)


def close(client: Client, tag: int) -> None:
    client.reopen()


WAYS_BACK = (nack, reject, recover, close)
Return = Callable[[Client, int], None]


COUNTED: Table = {"x-delivery-limit": 9}


@pytest.mark.parametrize("give_back", WAYS_BACK)
@pytest.mark.parametrize("arguments", [COUNTED, {"x-queue-type": "quorum"}], ids=["limit", "quorum"])
def test_delivery_count_is_absent_at_first_and_then_rises(
    stage: Stage, give_back: Return, arguments: Table
) -> None:
    client = stage.client
    client.queue("q", arguments)
    client.put("q", *numbers(5), headers={"mine": 1})
    for count in range(4):
        content = client.take("q")
        assert content.body == b"0"
        expected: Table = {"mine": 1, **({"x-delivery-count": count} if count else {})}
        assert content.properties.headers == expected
        assert content.method.redelivered is (count > 0)
        give_back(client, content.method.delivery_tag)


def test_delivery_count_is_a_long_also_without_other_properties(stage: Stage) -> None:
    client = stage.client
    client.queue("q", COUNTED)
    client.publish("", "q", b"m")
    client.requeue(client.take("q").method.delivery_tag)
    found = header(client.take("q"), "x-delivery-count")
    assert (found, type(found)) == (1, Int64)


def test_consumer_sees_the_delivery_count(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("q", COUNTED)
    taker.start("q")
    client.put("q", b"m")
    for tag in range(1, 4):
        taker.requeue(tag)
    counts = [header(content, "x-delivery-count") for content in taker.deliveries()]
    assert counts == [None, 1, 2, 3]


def test_recover_to_the_same_consumer_counts(plain: Stage) -> None:
    client, taker = plain.client, plain.connect()
    client.queue("q", COUNTED)
    taker.start("q")
    client.put("q", b"m")
    taker.send(m.BasicRecoverAsync(requeue=False))
    counts = [header(content, "x-delivery-count") for content in taker.deliveries()]
    assert counts == [None, 1]


def test_messages_that_were_not_out_have_no_delivery_count(stage: Stage) -> None:
    client = stage.client
    client.queue("q", COUNTED)
    client.put("q", *numbers(6))
    for _ in range(2):
        client.take("q")
    client.reopen()
    assert [header(content, "x-delivery-count") for content in client.drain_all("q")] == [1, 1] + [None] * 4


def test_header_that_a_client_wrote_is_replaced(stage: Stage) -> None:
    client = stage.client
    client.queue("q", COUNTED)
    client.put("q", b"m", headers={"x-delivery-count": 9})
    client.requeue(client.take("q").method.delivery_tag)
    assert header(client.take("q"), "x-delivery-count") == 1


@pytest.mark.parametrize("end", ["clean", "kill"])
def test_delivery_count_survives(durable: Stage, end: str) -> None:
    client = durable.client
    client.queue("q", COUNTED)
    client.put("q", *numbers(5))
    for count in range(1, 4):
        taken = client.take("q")
        if count < 3:
            client.requeue(taken.method.delivery_tag)
    client = durable.restart() if end == "clean" else durable.kill(Random(1))
    got = client.drain_all("q")
    assert [content.body for content in got] == numbers(5)
    assert [header(content, "x-delivery-count") for content in got] == [3, None, None, None, None]


@pytest.mark.parametrize("headers", [None, {}, {"mine": 1}, {"x-delivery-count": 9}], ids=str)
@pytest.mark.parametrize("give_back", WAYS_BACK)
def test_queue_without_such_a_rule_returns_a_message_with_the_headers_it_came_with(
    stage: Stage, give_back: Return, headers: Table | None
) -> None:
    client = stage.client
    client.queue("q")
    client.publish("", "q", b"m", BasicProperties(headers=headers, delivery_mode=2))
    for count in range(3):
        content = client.take("q")
        assert (content.properties.headers, content.method.redelivered) == (headers, count > 0)
        give_back(client, content.method.delivery_tag)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, False),
        ({"x-delivery-limit": -1}, False),
        ({"x-delivery-limit": 9}, True),
        ({"x-retry-delay-min": 1}, True),
        ({"x-queue-type": "quorum", "x-delivery-limit": -1}, True),
        ({"x-message-ttl": 100_000, "x-max-length": 5, "x-dead-letter-exchange": "amq.fanout"}, False),
    ],
    ids=str,
)
def test_queues_that_tell_the_delivery_count(plain: Stage, arguments: Table, told: bool) -> None:
    client = plain.client
    client.queue("q", arguments)
    client.put("q", b"m")
    client.requeue(client.take("q").method.delivery_tag)
    plain.pass_time(1)
    assert header(client.take("q"), "x-delivery-count") == (1 if told else None)


def test_policy_with_a_limit_has_the_count_told_of_what_was_returned_before(plain: Stage) -> None:
    client = plain.client
    client.queue("q")
    client.put("q", b"m")
    for _ in range(3):
        client.requeue(client.take("q").method.delivery_tag)
    plain.node.execute(PutPolicy(vhost="/", name="p", pattern="q", definition={"delivery-limit": 9}))
    assert header(client.take("q"), "x-delivery-count") == 3


@pytest.mark.parametrize("give_back", WAYS_BACK)
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_message_returned_more_often_than_the_limit_dies(stage: Stage, give_back: Return, limit: int) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-delivery-limit": limit})
    client.put("q", b"m", b"behind")
    for _ in range(limit):
        give_back(client, client.take("q").method.delivery_tag)
        assert client.count("dead") == 0
    last = client.take("q")
    assert (last.body, header(last, "x-delivery-count")) == (b"m", limit or None)
    give_back(client, last.method.delivery_tag)
    (dead,) = client.drain_all("dead")
    assert why(dead) == [("q", "delivery_limit", 1)]
    assert client.drain("q") == [b"behind"]


def test_message_over_the_limit_is_gone_without_a_dead_letter_exchange(stage: Stage) -> None:
    client = stage.client
    client.queue("q", {"x-delivery-limit": 1})
    client.put("q", b"m")
    for _ in range(2):
        client.requeue(client.take("q").method.delivery_tag)
    assert (stage.queues["q"].message_count, stage.queues["q"].unacked) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        ({}, None),
        ({"x-delivery-limit": -1}, None),
        ({"x-queue-type": "quorum"}, 20),
        ({"x-queue-type": "quorum", "x-delivery-limit": 3}, 3),
        ({"x-queue-type": "quorum", "x-delivery-limit": -1}, None),
    ],
    ids=str,
)
def test_limit_is_twenty_on_quorum_queues_and_none_on_others(
    plain: Stage, arguments: Table, limit: int | None
) -> None:
    client = plain.client
    queue = client.queue("q", arguments)
    client.put("q", b"m")
    returned = 0
    while queue.message_count and returned < 50:
        client.requeue(client.take("q").method.delivery_tag)
        returned += 1
    assert returned == (50 if limit is None else limit + 1)


def test_lost_connection_counts_for_all_that_was_out(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-delivery-limit": 1})
    client.put("q", *numbers(6))
    for _ in range(2):
        taker = stage.connect(prefetch=4)
        taker.start("q")
        taker.hang_up()
    assert client.drain("dead") == numbers(4)
    assert client.drain("q") == numbers(2, 4)


def test_limit_counts_on_after_a_restart(durable: Stage) -> None:
    client = durable.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-delivery-limit": 2})
    client.put("q", b"m")
    client.requeue(client.take("q").method.delivery_tag)
    client.take("q")
    client = durable.restart()
    assert client.count("dead") == 0
    client.requeue(client.take("q").method.delivery_tag)
    assert client.drain("dead") == [b"m"]


@pytest.mark.parametrize("end", ["clean", "kill"])
def test_broker_that_ends_while_the_message_is_out_counts_as_a_return(durable: Stage, end: str) -> None:
    client = durable.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-delivery-limit": 1})
    client.put("q", b"m", b"behind")
    for _ in range(2):
        client.take("q")
        client = durable.restart() if end == "clean" else durable.kill(Random(1))
    assert client.drain("q") == [b"behind"]
    assert client.drain("dead") == [b"m"]
