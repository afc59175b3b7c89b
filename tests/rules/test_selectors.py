"""x-selector: a consumer that takes only the messages that match."""

from __future__ import annotations

from random import Random

import pytest

from tests.rules.stage import Client, Stage, header, numbers
from warren.amqp.table import Table, Value


def select(stage: Stage, selector: Value, *, prefetch: int = 0) -> Client:
    client = stage.connect()
    client.start("q", prefetch=prefetch, arguments={"x-selector": selector})
    return client


def put_numbers(client: Client, count: int, first: int = 0) -> None:
    """Publish messages with the headers `n` and `parity`."""
    for number in range(first, first + count):
        parity = "odd" if number % 2 else "even"
        client.put("q", b"%d" % number, headers={"n": number, "parity": parity})


def test_consumer_takes_what_matches_in_order_and_leaves_the_rest(stage: Stage) -> None:
    queue = stage.client.queue("q")
    put_numbers(stage.client, 12)
    taker = select(stage, "parity = 'odd'")
    assert taker.delivered() == [b"1", b"3", b"5", b"7", b"9", b"11"]
    assert queue.message_count == 6
    assert stage.client.drain("q") == [b"0", b"2", b"4", b"6", b"8", b"10"]


def test_new_messages_go_to_whom_they_match(stage: Stage) -> None:
    stage.client.queue("q")
    odd, even = select(stage, "parity = 'odd'"), select(stage, "parity = 'even'")
    put_numbers(stage.client, 8)
    assert odd.delivered() == [b"1", b"3", b"5", b"7"]
    assert even.delivered() == [b"0", b"2", b"4", b"6"]
    assert stage.queues["q"].message_count == 0


def test_consumer_without_a_selector_gets_what_others_leave(stage: Stage) -> None:
    stage.client.queue("q")
    put_numbers(stage.client, 8)
    assert select(stage, "n > 100").delivered() == []
    anybody = stage.connect()
    anybody.start("q")
    assert anybody.delivered() == numbers(8)


def test_matching_message_far_behind_is_found(stage: Stage) -> None:
    stage.client.queue("q")
    put_numbers(stage.client, 30)
    assert select(stage, "n = 27").delivered() == [b"27"]
    assert select(stage, "n IN (29, 14)").delivered() == [b"14", b"29"]
    assert stage.client.drain("q") == [b"%d" % n for n in range(30) if n not in (14, 27, 29)]


def test_prefetch_holds_while_others_are_skipped(stage: Stage) -> None:
    stage.client.queue("q")
    put_numbers(stage.client, 20)
    taker = select(stage, "parity = 'odd'", prefetch=2)
    assert taker.delivered() == [b"1", b"3"]
    taker.ack(1)
    assert taker.delivered() == [b"5"]
    taker.ack(3, multiple=True)
    assert taker.delivered() == [b"7", b"9"]


def test_returned_message_goes_to_whom_it_matches_in_its_place(stage: Stage) -> None:
    stage.client.queue("q", {"x-delivery-limit": 9})
    put_numbers(stage.client, 12)
    first, second = select(stage, "parity = 'odd'", prefetch=3), select(stage, "parity = 'odd'", prefetch=1)
    assert (first.delivered(), second.delivered()) == ([b"1", b"3", b"5"], [b"7"])
    first.hang_up()
    second.ack(1)
    (again,) = second.deliveries()
    assert (again.body, again.method.redelivered, header(again, "x-delivery-count")) == (b"1", True, 1)


@pytest.mark.parametrize("how", ["nack", "hang up"])
def test_message_taken_from_the_middle_returns_to_its_place_for_all(stage: Stage, how: str) -> None:
    stage.client.queue("q")
    put_numbers(stage.client, 12)
    taker = select(stage, "n IN (4, 8, 10)")
    assert taker.delivered() == [b"4", b"8", b"10"]
    if how == "nack":
        taker.cancel()
        for tag in (2, 1, 3):
            taker.requeue(tag)
    else:
        taker.hang_up()
    assert stage.client.drain("q") == numbers(12)


def test_what_was_taken_from_the_middle_does_not_come_back_after_a_restart(durable: Stage) -> None:
    durable.client.queue("q")
    put_numbers(durable.client, 20)
    taker = select(durable, "n BETWEEN 5 AND 12")
    assert taker.delivered() == numbers(8, 5)
    taker.ack(6, multiple=True)
    got = durable.restart().drain_all("q")
    assert [content.body for content in got] == [b"%d" % n for n in range(20) if n not in range(5, 11)]
    assert [content.body for content in got if content.method.redelivered] == [b"11", b"12"]


def test_what_was_taken_from_the_middle_is_kept_when_the_broker_is_killed(durable: Stage) -> None:
    durable.client.queue("q")
    put_numbers(durable.client, 20)
    select(durable, "n BETWEEN 5 AND 12")
    client = durable.kill(Random(1))
    assert client.drain("q") == numbers(20)


HEADERS: Table = {"colour": "red", "size": 7, "weight": 1.5, "hot": True, "name": "a_b%c", "none": None}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("colour = 'red'", True),
        ("colour = 'blue'", False),
        ("colour <> 'blue'", True),
        ("size > 6", True),
        ("size >= 7 AND size <= 7", True),
        ("size < 7 OR weight < 1.6", True),
        ("NOT (size < 7)", True),
        ("NOT size = 7", False),
        ("size + 1 = 8 AND size * 2 = 14 AND size - 7 = 0", True),
        ("size BETWEEN 7 AND 9", True),
        ("size NOT BETWEEN 7 AND 9", False),
        ("colour IN ('blue', 'red')", True),
        ("colour NOT IN ('blue', 'red')", False),
        ("colour LIKE 'r%'", True),
        ("colour LIKE '_ed'", True),
        ("colour LIKE '_e'", False),
        ("colour NOT LIKE 'b%'", True),
        ("name LIKE 'a!_b!%c' ESCAPE '!'", True),
        ("missing IS NULL", True),
        ("colour IS NULL", False),
        ("colour IS NOT NULL", True),
        ("hot = TRUE", True),
        ("hot", True),
        ("NOT hot", False),
        ("missing = 'x'", False),
        ("missing <> 'x'", False),
        ("NOT (missing = 'x')", False),
        ("missing = 'x' OR colour = 'red'", True),
        ("missing > 3 AND colour = 'red'", False),
        ("colour > 3", False),
        ("colour = 'RED'", False),
        ("size = 7.0", True),
        ("size = 1 OR size = 7 AND weight = 9", False),
        ("(size = 1 OR size = 7) AND weight = 1.5", True),
        ("colour = 'it''s'", False),
    ],
)
def test_selector_means_what_it_does_in_jms(plain: Stage, selector: str, matches: bool) -> None:
    plain.client.queue("q")
    taker = select(plain, selector)
    plain.client.put("q", b"m", headers=HEADERS)
    assert taker.delivered() == ([b"m"] if matches else [])


def test_message_without_headers_matches_as_if_all_were_null(plain: Stage) -> None:
    plain.client.queue("q")
    nothing, something = select(plain, "n IS NULL"), select(plain, "n IS NOT NULL")
    plain.client.publish("", "q", b"m")
    assert (nothing.delivered(), something.delivered()) == ([b"m"], [])


@pytest.mark.parametrize(
    "selector",
    [
        "n =",
        "= 1",
        "n = 'x",
        "(n = 1",
        "n = 1)",
        "n IN ()",
        "n LIKE 5",
        "n BETWEEN 1",
        "AND",
        "n == 1",
        "n = 1 x",
    ],
)
def test_syntax_error_in_a_selector_is_406(plain: Stage, selector: str) -> None:
    plain.client.queue("q")
    plain.client.consume("q", arguments={"x-selector": selector})
    plain.client.expect_close(406)
    assert not plain.queues["q"].is_consumed


@pytest.mark.parametrize("selector", [7, True, ["n = 1"], {"n": 1}, None], ids=str)
def test_selector_that_is_no_string_is_406(plain: Stage, selector: Value) -> None:
    plain.client.queue("q")
    plain.client.consume("q", arguments={"x-selector": selector})
    plain.client.expect_close(406)
    assert not plain.queues["q"].is_consumed
