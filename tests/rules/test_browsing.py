"""x-browse: a consumer that sees all that is there and all that comes, and takes nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.rules.stage import TO_DEAD, Client, Stage, header, numbers
from warren.amqp.table import Table

BROWSE: Table = {"x-browse": True}


def browser(
    stage: Stage, *, prefetch: int = 0, no_ack: bool = False, arguments: Table | None = None
) -> Client:
    client = stage.connect()
    client.start("q", prefetch=prefetch, no_ack=no_ack, arguments={**BROWSE, **(arguments or {})})
    return client


@pytest.mark.parametrize("no_ack", [True, False])
def test_browser_sees_all_from_head_to_tail_and_takes_nothing(stage: Stage, no_ack: bool) -> None:
    queue = stage.client.queue("q")
    stage.client.put("q", *numbers(10))
    assert browser(stage, no_ack=no_ack).delivered() == numbers(10)
    assert (queue.message_count, queue.unacked) == (10, 0)
    assert stage.client.drain("q") == numbers(10)


def test_browser_sees_new_messages_as_they_come(stage: Stage) -> None:
    stage.client.queue("q")
    looker = browser(stage)
    for number in numbers(8):
        stage.client.put("q", number)
        assert looker.delivered() == [number]
    assert stage.client.drain("q") == numbers(8)


def test_browser_sees_what_was_there_and_then_what_comes(stage: Stage) -> None:
    stage.client.queue("q")
    stage.client.put("q", *numbers(6))
    looker = browser(stage)
    stage.client.put_together([stage.client.message(number) for number in numbers(6, 6)], "q")
    assert looker.delivered() == numbers(12)


def test_browser_sees_no_message_twice_and_none_out_of_order(stage: Stage) -> None:
    """Other clients take messages, give some back and publish meanwhile."""
    client = stage.client
    client.queue("q")
    client.put("q", *numbers(8))
    looker = browser(stage, prefetch=2)
    seen: list[bytes] = []
    for number in numbers(12, 8):
        client.put("q", number)
        taken = client.take("q")
        client.requeue(taken.method.delivery_tag)
        got = looker.deliveries()
        seen += [content.body for content in got]
        for content in got:
            looker.ack(content.method.delivery_tag)
        seen += looker.delivered()
        looker.ack(0, multiple=True)
    seen += looker.delivered()
    assert all(int(first) < int(second) for first, second in pairwise(seen))
    assert set(numbers(8)) <= set(seen)


def test_acking_and_rejecting_what_was_browsed_does_nothing(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-delivery-limit": 0})
    client.put("q", *numbers(6))
    looker = browser(stage)
    tags = [content.method.delivery_tag for content in looker.deliveries()]
    looker.ack(tags[0])
    looker.reject(tags[1])
    looker.requeue(tags[2])
    looker.ack(tags[-1], multiple=True)
    looker.expect_nothing()
    assert client.count("dead") == 0
    got = client.drain_all("q")
    assert [content.body for content in got] == numbers(6)
    assert not any(content.method.redelivered for content in got)


def test_prefetch_bounds_what_is_shown_until_it_is_acked(stage: Stage) -> None:
    client = stage.client
    client.queue("q")
    client.put("q", *numbers(9))
    looker = browser(stage, prefetch=4)
    assert looker.delivered() == numbers(4)
    looker.ack(3, multiple=True)
    assert looker.delivered() == numbers(3, 4)
    looker.ack(7, multiple=True)
    assert looker.delivered() == numbers(2, 7)


@pytest.mark.parametrize("how", ["cancel", "close", "hang up"])
def test_browser_that_goes_leaves_no_trace(stage: Stage, how: str) -> None:
    client = stage.client
    queue = client.queue("q")
    client.put("q", *numbers(6))
    looker = browser(stage)
    if how == "cancel":
        looker.cancel()
    elif how == "close":
        looker.reopen()
    else:
        looker.hang_up()
    assert (queue.message_count, queue.unacked) == (6, 0)
    got = client.drain_all("q")
    assert [content.body for content in got] == numbers(6)
    assert not any(content.method.redelivered for content in got)
    assert [header(content, "x-delivery-count") for content in got] == [None] * 6


def test_browser_sees_redelivered_and_delivery_count_as_they_are(stage: Stage) -> None:
    client = stage.client
    client.queue("q", {"x-delivery-limit": 9})
    client.put("q", b"0", b"1")
    for _ in range(2):
        client.requeue(client.take("q").method.delivery_tag)
    got = browser(stage).deliveries()
    assert [content.method.redelivered for content in got] == [True, False]
    assert [header(content, "x-delivery-count") for content in got] == [2, None]


def test_browsers_do_not_depend_on_each_other(stage: Stage) -> None:
    client = stage.client
    client.queue("q")
    client.put("q", *numbers(8))
    slow, fast = browser(stage, prefetch=1), browser(stage)
    assert (slow.delivered(), fast.delivered()) == ([b"0"], numbers(8))
    client.put("q", b"8")
    assert (slow.delivered(), fast.delivered()) == ([], [b"8"])
    slow.ack(1)
    assert slow.delivered() == [b"1"]


def test_consumer_gets_all_beside_a_browser(stage: Stage) -> None:
    stage.client.queue("q")
    stage.client.put("q", *numbers(6))
    looker, taker = browser(stage), stage.connect()
    taker.start("q")
    stage.client.put("q", *numbers(6, 6))
    assert taker.delivered() == numbers(12)
    assert looker.delivered()[:6] == numbers(6)


def test_browser_does_not_see_what_is_gone(stage: Stage) -> None:
    client = stage.client
    client.queue("q")
    client.put("q", *numbers(9))
    looker = browser(stage, prefetch=1)
    assert looker.delivered() == [b"0"]
    for _ in range(5):
        client.get("q")
    looker.ack(1)
    assert looker.delivered() == [b"5"]
    client.purge("q", 4)
    looker.ack(2)
    assert looker.delivered() == []
    client.put("q", b"new")
    assert looker.delivered() == [b"new"]


def test_browser_of_a_priority_queue_sees_the_urgent_first(stage: Stage) -> None:
    client = stage.client
    client.queue("q", {"x-max-priority": 3})
    for number in range(8):
        client.put("q", b"%d" % number, priority=number % 4)
    assert browser(stage).delivered() == [b"3", b"7", b"2", b"6", b"1", b"5", b"0", b"4"]
    assert stage.queues["q"].message_count == 8


def test_browser_with_a_selector_sees_what_matches(stage: Stage) -> None:
    client = stage.client
    client.queue("q")
    for number in range(12):
        client.put("q", b"%d" % number, headers={"n": number})
    looker = browser(stage, arguments={"x-selector": "n >= 3 AND n < 9"})
    assert looker.delivered() == numbers(6, 3)
    client.put("q", b"no", headers={"n": 100})
    client.put("q", b"yes", headers={"n": 4})
    assert looker.delivered() == [b"yes"]
    assert stage.queues["q"].message_count == 14


def test_browser_sees_all_though_one_was_taken_from_the_middle_and_returned(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("q")
    for number in range(12):
        client.put("q", b"%d" % number, headers={"n": number})
    taker.start("q", arguments={"x-selector": "n = 8"})
    taker.hang_up()
    assert browser(stage).delivered() == numbers(12)


def test_browser_sees_what_is_there_after_a_restart(durable: Stage) -> None:
    durable.client.queue("q")
    durable.client.put("q", *numbers(9))
    durable.restart()
    assert browser(durable).delivered() == numbers(9)
    assert durable.client.drain("q") == numbers(9)


def test_browse_that_is_no_boolean_is_406(plain: Stage) -> None:
    plain.client.queue("q")
    plain.client.consume("q", arguments={"x-browse": "yes"})
    plain.client.expect_close(406)


def test_browse_false_is_an_ordinary_consumer(plain: Stage) -> None:
    queue = plain.client.queue("q")
    plain.client.put("q", b"m")
    taker = plain.connect()
    taker.start("q", arguments={"x-browse": False})
    assert taker.delivered() == [b"m"]
    assert (queue.message_count, queue.unacked) == (0, 1)
