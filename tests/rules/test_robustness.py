"""A message or a queue that fails does not disturb others, and nothing is left of what is over."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import pytest

from tests.rules.stage import TO_DEAD, Client, Stage, numbers
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.table import Int8, Int64, Table, Timestamp, UInt8, UInt16, UInt32, Value
from warren.broker import lane
from warren.broker.queue import Queue
from warren.broker.selector import Selector

GROUPED: Table = {"x-group-header": "group"}
DELAYED: Table = {"x-delayed-type": "fanout"}
MANY = 1_200  # more messages than expire or are dropped in one turn


def known_groups(queue: Queue) -> int:
    book = classic(queue).book
    assert book is not None
    assert book.groups is not None
    return len(book.groups.known)


# --- groups ---


@pytest.mark.parametrize("header", [None, "a"])
def test_group_is_forgotten_when_nobody_has_to_ack_it(stage: Stage, header: str | None) -> None:
    queue = stage.client.queue("q", GROUPED)
    headers: Table | None = None if header is None else {"group": header}
    taker = stage.connect()
    taker.start("q", no_ack=True)
    stage.client.put("q", *numbers(5), headers=headers)
    assert taker.delivered() == numbers(5)
    assert known_groups(queue) == 0
    taker.cancel()
    stage.client.put("q", *numbers(5), headers=headers)
    assert stage.client.drain("q") == numbers(5)
    assert known_groups(queue) == 0


def test_group_is_forgotten_when_its_messages_expire(stage: Stage) -> None:
    queue = stage.client.queue("q", {**GROUPED, "x-message-ttl": 1000})
    stage.client.put("q", *numbers(5))
    stage.client.put("q", *numbers(5), headers={"group": "a"})
    stage.world.time += 2  # without the timer
    taker = stage.connect()
    taker.start("q", prefetch=3)
    assert taker.delivered() == []
    assert known_groups(queue) == 0


def test_basic_get_of_a_message_that_has_to_wait_does_not_lock_its_group(durable: Stage) -> None:
    client = durable.client
    client.queue("q", {**GROUPED, "x-retry-delay-min": 5000})
    client.put("q", b"a1", b"a2", headers={"group": "a"})
    client.take("q")
    client = durable.kill(Random(1))
    assert client.get("q", no_ack=False) is None
    durable.pass_ms(10_000)
    taken = client.take("q")
    assert taken.body == b"a1"
    client.ack(taken.method.delivery_tag)
    assert client.take("q").body == b"a2"


# --- exchanges ---


DELAYS = [1, Int8(1), UInt8(1), UInt16(1), UInt32(1), Int64(1), Timestamp(1)]


@pytest.mark.parametrize("delay", DELAYS, ids=lambda delay: type(delay).__name__)
def test_delay_of_any_type_is_over_in_time(plain: Stage, delay: Value) -> None:
    client = plain.client
    client.declare_exchange("late", "x-delayed-message", arguments=DELAYED)
    client.queue("q")
    client.bind("q", "late")
    client.put("", b"0", b"1", exchange="late", headers={"x-delay": delay})
    plain.pass_ms(10)
    assert client.drain("q") == [b"0", b"1"]


def test_message_that_was_refused_is_no_duplicate_when_it_comes_again(durable: Stage) -> None:
    publisher = durable.connect(confirming=True)
    publisher.declare_exchange("once", "fanout", arguments={"x-message-deduplication": True})
    publisher.queue("q", {"x-max-length": 1, "x-overflow": "reject-publish"})
    publisher.bind("q", "once")
    publisher.put("", b"first", exchange="once", headers={"x-deduplication-header": "1"})
    publisher.put("", b"second", exchange="once", headers={"x-deduplication-header": "2"})
    assert publisher.nacked() == [2]
    assert durable.client.drain("q") == [b"first"]
    publisher.put("", b"second", exchange="once", headers={"x-deduplication-header": "2"})
    assert publisher.nacked() == []
    assert durable.client.drain("q") == [b"second"]


# --- queues ---


def test_queue_that_fails_keeps_no_other_from_its_turn(plain: Stage) -> None:
    client = plain.client
    takers: list[Client] = []
    for name in ("bad", "good"):
        client.queue(name)
        takers.append(plain.connect())
    client.declare_exchange("both", "fanout")
    client.bind("bad", "both")
    client.bind("good", "both")
    takers[1].start("good")
    with patch.object(Selector, "matches", side_effect=RuntimeError("a mistake of ours")):
        takers[0].start("bad", arguments={"x-selector": "n = 1"})
        client.put("", b"0", exchange="both")
        client.put("", b"1", exchange="both")
    assert [type(error) for error in plain.world.errors] != []
    plain.world.errors.clear()
    assert takers[1].delivered() == [b"0", b"1"]


def test_redelivered_message_that_nobody_can_take_is_noted_once(plain: Stage) -> None:
    client, taker = plain.client, plain.connect()
    queue = client.queue("q")
    client.put("q", b"0", b"1", expiration=1_000_000)
    taker.start("q", prefetch=2)
    taker.requeue(1)
    taker.send(m.BasicCancel(consumer_tag="c"))
    busy = plain.connect(prefetch=1)
    busy.start("q")
    client.put("q", *numbers(50))
    taker.requeue(2)
    client.put("q", *numbers(50))
    expiry = classic(queue).lane.expiry
    assert expiry is not None
    assert expiry.heap.count < 10


@pytest.fixture
def few_dropped_a_turn() -> Iterator[None]:
    with patch.object(lane, "DROP_STEP", 2):
        yield


@pytest.mark.usefixtures("few_dropped_a_turn")
def test_who_selects_sees_nothing_of_what_was_purged(plain: Stage) -> None:
    client, taker = plain.client, plain.connect()
    queue = client.queue("q")
    for number in range(10):
        client.put("q", b"%d" % number, headers={"n": number})
    taker.start("q", prefetch=1, arguments={"x-selector": "n = 3 OR n = 8 OR n > 20"})
    assert taker.delivered() == [b"3"]
    client.send_only(m.QueuePurge(queue="q"))
    taker.send_only(m.BasicAck(delivery_tag=1))
    plain.settle()
    assert taker.delivered() == []
    assert (queue.message_count, queue.message_bytes, queue.unacked) == (0, 0, 0)


def test_browser_is_shown_nothing_that_is_too_old(plain: Stage) -> None:
    client, looker = plain.client, plain.connect()
    client.queue("q")
    client.put("q", b"0", b"1", expiration=1000)
    looker.start("q", prefetch=1, arguments={"x-browse": True})
    assert looker.delivered() == [b"0"]
    plain.world.time += 2  # without the timer
    looker.ack(1)
    assert looker.delivered() == []


# --- turns ---


@pytest.mark.parametrize("arguments", [{}, GROUPED, {"x-max-priority": 2}], ids=str)
def test_no_turn_buries_more_than_a_part_of_what_is_too_old(stage: Stage, arguments: Table) -> None:
    client = stage.client
    client.queue("dead")
    queue = client.queue("q", {**TO_DEAD, **arguments, "x-message-ttl": 1000})
    client.put_together([client.message(body) for body in numbers(MANY)], "q")
    stage.world.time += 2  # without the timer
    taker = stage.connect()
    taker.send_only(m.BasicConsume(queue="q", consumer_tag="c", arguments={}))
    assert queue.message_count >= MANY // 2
    stage.pass_ms(1)
    assert queue.message_count == 0
    assert client.count("dead") == MANY


def test_no_turn_brings_back_more_than_a_part_of_what_waits(plain: Stage) -> None:
    client, taker = plain.client, plain.connect()
    queue = client.queue("q", {"x-retry-delay-min": 1000})
    client.put_together([client.message(body) for body in numbers(3 * MANY)], "q")
    taker.start("q")
    taker.send(m.BasicNack(delivery_tag=0, multiple=True, requeue=True))
    taker.cancel()
    plain.world.advance(1.0)
    assert 0 < queue.message_count < 3 * MANY
    plain.pass_ms(1)
    assert queue.message_count == 3 * MANY


def test_walk_of_one_that_selects_goes_on_once_a_turn(plain: Stage) -> None:
    client, taker = plain.client, plain.connect()
    client.queue("q")
    client.put_together([client.message(body) for body in numbers(10 * MANY)], "q")
    taker.send_only(m.BasicConsume(queue="q", consumer_tag="c", arguments={"x-selector": "n = 1"}))
    for _ in range(3):
        client.publish("", "q", b"")
    assert len(plain.world.soon) <= 2


# --- consumers ---


@pytest.mark.parametrize("arguments", [{}, {"x-selector": "n IS NULL"}], ids=str)
def test_active_consumer_stays_active_whatever_kind_the_next_one_is(plain: Stage, arguments: Table) -> None:
    client, first, second, third = (plain.connect() for _ in range(4))
    client.queue("q", {"x-single-active-consumer": True})
    first.start("q", arguments={"x-selector": "n IS NULL"})
    second.start("q", arguments={"x-selector": "n IS NULL"})
    third.start("q", arguments=arguments)
    client.put("q", b"0")
    assert [first.delivered(), second.delivered(), third.delivered()] == [[b"0"], [], []]
    first.cancel()
    client.put("q", b"1")
    assert [second.delivered(), third.delivered()] == [[b"1"], []]


def test_group_gets_no_more_from_a_consumer_that_is_not_active_any_more(plain: Stage) -> None:
    client, first, second = (plain.connect() for _ in range(3))
    client.queue("q", {**GROUPED, "x-single-active-consumer": True})
    first.start("q")
    client.put("q", b"0", headers={"group": "a"})
    second.start("q", arguments={"x-priority": 1})
    client.put("q", b"1", headers={"group": "a"})
    assert [first.delivered(), second.delivered()] == [[b"0"], []]
    first.ack(1)
    assert [first.delivered(), second.delivered()] == [[], [b"1"]]
