"""Who of a queue's consumers gets messages: x-priority, x-single-active-consumer, exclusive consumers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.rules.stage import Client, Stage, numbers
from warren.amqp import methods as m
from warren.amqp.table import Table

SINGLE: Table = {"x-single-active-consumer": True}


def at_priority(priority: int) -> Table:
    return {"x-priority": priority}


def takers(client: Client) -> list[str]:
    return [content.method.consumer_tag for content in client.deliveries()]


# --- x-priority ---


def test_highest_priority_takes_turns_while_lower_ones_wait(plain: Stage) -> None:
    client, taker = plain.client, plain.connect()
    client.queue("q")
    for tag, priority in (("low", -1), ("none", 0), ("a", 7), ("b", 7)):
        taker.start("q", tag, arguments=at_priority(priority) if priority else {})
    client.put("q", *numbers(6))
    got = takers(taker)
    assert sorted(got) == ["a"] * 3 + ["b"] * 3
    assert all(first != second for first, second in pairwise(got))


def test_consumer_at_its_limit_is_skipped_for_a_lower_one_until_it_acks(plain: Stage) -> None:
    client, taker = plain.client, plain.connect()
    client.queue("q")
    for tag, priority in (("low", 1), ("high", 9), ("middle", 5)):
        taker.start("q", tag, prefetch=1, arguments=at_priority(priority))
    taker.frames()
    client.put("q", *numbers(4))
    first = taker.deliveries()
    assert [content.method.consumer_tag for content in first] == ["high", "middle", "low"]
    taker.ack(first[0].method.delivery_tag)
    assert takers(taker) == ["high"]


def test_channel_that_takes_nothing_is_skipped(plain: Stage) -> None:
    client, high, low = plain.client, plain.connect(), plain.connect()
    client.queue("q")
    high.start("q", "high", arguments=at_priority(5))
    low.start("q", "low")
    high.frames()
    high.call(m.ChannelFlow(active=False), m.ChannelFlowOk)
    client.put("q", b"1")
    assert low.delivered() == [b"1"]
    high.call(m.ChannelFlow(active=True), m.ChannelFlowOk)
    client.put("q", b"2")
    assert high.delivered() == [b"2"]
    assert low.delivered() == []


def test_priority_holds_over_connections_and_ends_with_its_consumer(plain: Stage) -> None:
    client, low, high = plain.client, plain.connect(), plain.connect()
    client.queue("q")
    low.start("q")
    high.start("q", arguments=at_priority(1))
    client.put("q", b"1", b"2")
    high.hang_up()
    client.put("q", b"3")
    assert low.delivered() == [b"1", b"2", b"3"]


# --- x-single-active-consumer ---


def cancel(client: Client) -> None:
    client.cancel()


def close(client: Client) -> None:
    client.reopen()


def hang_up(client: Client) -> None:
    client.hang_up()


def three(stage: Stage) -> list[Client]:
    clients = [stage.connect() for _ in range(3)]
    for client in clients:
        client.start("q")
    return clients


def test_only_the_first_consumer_gets_messages(stage: Stage) -> None:
    stage.client.queue("q", SINGLE)
    first, *others = three(stage)
    stage.client.put("q", *numbers(7))
    assert first.delivered() == numbers(7)
    assert [other.delivered() for other in others] == [[], []]


def test_others_get_nothing_while_the_active_one_is_at_its_limit(stage: Stage) -> None:
    stage.client.queue("q", SINGLE)
    first, second = stage.connect(prefetch=2), stage.connect()
    first.start("q")
    second.start("q")
    stage.client.put("q", *numbers(7))
    assert (first.delivered(), second.delivered()) == (numbers(2), [])
    assert stage.queues["q"].message_count == 5


@pytest.mark.parametrize("leave", [cancel, close, hang_up])
def test_next_consumer_takes_over_when_the_active_one_goes(
    stage: Stage, leave: Callable[[Client], None]
) -> None:
    stage.client.queue("q", SINGLE)
    first, second, third = three(stage)
    stage.client.put("q", b"0")
    assert first.delivered() == [b"0"]
    first.ack(1)
    leave(first)
    stage.client.put("q", b"1")
    assert second.delivered() == [b"1"]
    leave(second)
    stage.client.put("q", b"2")
    assert third.delivered() == ([b"2"] if leave is cancel else [b"1", b"2"])


@pytest.mark.parametrize("leave", [close, hang_up])
def test_what_the_active_one_leaves_comes_first_and_in_order(
    stage: Stage, leave: Callable[[Client], None]
) -> None:
    stage.client.queue("q", SINGLE)
    first, second = stage.connect(prefetch=3), stage.connect()
    first.start("q")
    second.start("q")
    stage.client.put("q", *numbers(7))
    leave(first)
    got = second.deliveries()
    assert [content.body for content in got] == numbers(7)
    assert [content.method.redelivered for content in got] == [True] * 3 + [False] * 4


def test_waiting_consumer_that_goes_changes_nothing(plain: Stage) -> None:
    plain.client.queue("q", SINGLE)
    first, second, third = three(plain)
    second.hang_up()
    plain.client.put("q", b"0")
    first.hang_up()
    assert third.delivered() == [b"0"]


def test_get_from_a_single_active_consumer_queue_is_405(plain: Stage) -> None:
    plain.client.queue("q", SINGLE)
    plain.client.put("q", b"m")
    plain.client.send(m.BasicGet(queue="q"))
    plain.client.expect_close(405)
    assert plain.queues["q"].message_count == 1


def test_all_consumers_are_counted(plain: Stage) -> None:
    plain.client.queue("q", SINGLE)
    three(plain)
    declare = m.QueueDeclare(queue="q", passive=True, arguments={})
    assert plain.client.call(declare, m.QueueDeclareOk).consumer_count == 3


@pytest.mark.parametrize(("priority", "takes_over"), [(5, False), (6, True), (4, False)])
def test_consumer_of_a_higher_priority_takes_over(plain: Stage, priority: int, takes_over: bool) -> None:
    plain.client.queue("q", SINGLE)
    first, second = plain.connect(), plain.connect()
    first.start("q", arguments=at_priority(5))
    plain.client.put("q", b"0")
    first.ack(1)
    second.start("q", arguments=at_priority(priority))
    plain.client.put("q", b"1", b"2")
    assert first.delivered() == ([b"0"] if takes_over else [b"0", b"1", b"2"])
    assert second.delivered() == ([b"1", b"2"] if takes_over else [])


def test_highest_priority_follows_the_one_that_goes(plain: Stage) -> None:
    plain.client.queue("q", SINGLE)
    clients = [plain.connect() for _ in range(4)]
    for client, priority in zip(clients, (9, 1, 3, 3), strict=True):
        client.start("q", arguments=at_priority(priority))
    clients[0].hang_up()
    plain.client.put("q", b"0")
    assert [client.delivered() for client in clients[1:]] == [[], [b"0"], []]


def test_queue_is_single_active_after_a_restart(durable: Stage) -> None:
    durable.client.queue("q", SINGLE)
    durable.client.put("q", *numbers(6))
    durable.restart()
    first, second, _ = three(durable)
    assert (first.delivered(), second.delivered()) == (numbers(6), [])


# --- exclusive consumers ---


def consume(client: Client, *, exclusive: bool) -> None:
    client.send(m.BasicConsume(queue="q", exclusive=exclusive, arguments={}))


@pytest.mark.parametrize("exclusive", [True, False])
def test_second_consumer_beside_an_exclusive_one_is_403(plain: Stage, exclusive: bool) -> None:
    plain.client.queue("q")
    first, second = plain.connect(), plain.connect()
    first.start("q", exclusive=True)
    consume(second, exclusive=exclusive)
    second.expect_close(403)
    plain.client.put("q", b"m")
    assert first.delivered() == [b"m"]


def test_exclusive_consumer_beside_another_is_403(plain: Stage) -> None:
    plain.client.queue("q")
    first, second = plain.connect(), plain.connect()
    first.start("q")
    consume(second, exclusive=True)
    second.expect_close(403)


@pytest.mark.parametrize("leave", [cancel, close, hang_up])
def test_queue_is_free_when_the_exclusive_consumer_is_gone(
    plain: Stage, leave: Callable[[Client], None]
) -> None:
    plain.client.queue("q")
    first, second = plain.connect(), plain.connect()
    first.start("q", exclusive=True)
    leave(first)
    second.start("q", exclusive=True)
    plain.client.put("q", b"m")
    assert second.delivered() == [b"m"]
