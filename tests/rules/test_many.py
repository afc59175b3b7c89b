"""Rules when there is more to do than the broker does in one turn."""

from __future__ import annotations

import pytest

from tests.rules.stage import TO_DEAD, Client, Stage, numbers
from tests.support.fakes import FakeBroker
from tests.support.frames import published
from warren.amqp import methods as m
from warren.amqp.table import Table
from warren.broker.groups import STEPS_AT_A_TIME_MAX

MANY = 2_200  # more messages than a queue looks at in one turn


def put_many(client: Client, count: int = MANY, *, expiration: int | None = None) -> None:
    """Publish messages with their number in the header `n`."""
    messages = [
        client.message(number, headers={"n": int(number)}, expiration=expiration) for number in numbers(count)
    ]
    client.put_together(messages, "q")


@pytest.mark.parametrize("by", ["queue", "message"])
def test_all_that_expire_at_once_are_gone_on_time_and_die_in_order(stage: Stage, by: str) -> None:
    client = stage.client
    client.queue("dead")
    queue = client.queue("q", {**TO_DEAD, **({"x-message-ttl": 1000} if by == "queue" else {})})
    put_many(client, expiration=1000 if by == "message" else None)
    stage.pass_ms(999)
    assert queue.message_count == MANY
    stage.pass_ms(2)
    assert queue.message_count == 0
    taker = stage.connect()
    taker.start("dead", no_ack=True)
    assert taker.delivered() == numbers(MANY)


def test_all_that_are_too_many_are_dropped(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    queue = client.queue("q", {**TO_DEAD, "x-max-length": 7})
    put_many(client)
    stage.pass_ms(10)
    assert queue.message_count == 7
    assert client.count("dead") == MANY - 7
    assert client.drain("q") == numbers(7, MANY - 7)


def test_many_that_are_rejected_together_die_in_order(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("dead")
    client.queue("q", TO_DEAD)
    put_many(client)
    taker.start("q")
    assert len(taker.delivered()) == MANY
    taker.send(m.BasicNack(delivery_tag=0, multiple=True, requeue=False))
    watcher = stage.connect()
    watcher.start("dead", no_ack=True)
    assert watcher.delivered() == numbers(MANY)


def test_message_that_matches_is_found_behind_many_that_do_not(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("q")
    put_many(client)
    taker.start("q", arguments={"x-selector": f"n = {MANY - 3}"})
    assert taker.delivered() == [b"%d" % (MANY - 3)]
    assert stage.queues["q"].message_count == MANY - 1


def test_browser_sees_many(stage: Stage) -> None:
    client, looker = stage.client, stage.connect()
    client.queue("q")
    put_many(client)
    looker.start("q", arguments={"x-browse": True})
    assert looker.delivered() == numbers(MANY)


def test_free_group_is_found_behind_many_of_another(stage: Stage) -> None:
    client, first, second = stage.client, stage.connect(prefetch=1), stage.connect()
    client.queue("q", {"x-group-header": "group"})
    first.start("q")
    messages = [client.message(number, headers={"group": "a"}) for number in numbers(MANY)]
    client.put_together(messages, "q")
    client.put("q", b"free", headers={"group": "b"})
    second.start("q")
    assert first.delivered() == [b"0"]
    assert second.delivered() == [b"free"]


def test_many_that_wait_come_back_in_order(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("q", {"x-retry-delay-min": 1000})
    put_many(client)
    taker.start("q")
    taker.hang_up()
    assert client.get("q") is None
    stage.pass_ms(1001)
    again = stage.connect()
    again.start("q")
    assert again.delivered() == numbers(MANY)


def test_many_delayed_messages_come_in_order(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    arguments: Table = {"x-delayed-type": "fanout"}
    client.declare_exchange("x", "x-delayed-message", arguments=arguments, durable=stage.keeping.durable)
    client.queue("q")
    client.bind("q", "x")
    messages = [client.message(number, headers={"x-delay": 1000}) for number in numbers(MANY)]
    client.put_together(messages, "", exchange="x")
    stage.pass_ms(1001)
    taker.start("q", no_ack=True)
    assert taker.delivered() == numbers(MANY)


def test_free_group_is_found_behind_more_of_another_than_are_passed_over_in_one_turn(plain: Stage) -> None:
    client, first, second = plain.client, plain.connect(prefetch=1), plain.connect()
    client.queue("q", {"x-group-header": "group"})
    held = [client.message(b"a", headers={"group": "a"}) for _ in range(3 * STEPS_AT_A_TIME_MAX)]
    client.put_together([*held, client.message(b"b", headers={"group": "b"})], "q")
    first.start("q")
    second.start("q")
    assert (first.delivered(), second.delivered()) == ([b"a"], [b"b"])


@pytest.mark.parametrize(
    ("arguments", "left"), [({"x-max-length": 7}, 7), ({"x-message-ttl": 0}, 0)], ids=str
)
def test_limit_holds_at_the_end_of_the_turn_however_much_came_in_it(arguments: Table, left: int) -> None:
    broker = FakeBroker()
    client = broker.connect().open()
    queue = client.declare("q", arguments=arguments)
    client.connection.feed(published("", "q", b"x") * 5_000)  # in one turn
    assert queue.message_count == left
    broker.stop()
