"""x-group-header: messages of one group go to one consumer at a time, in order."""

from __future__ import annotations

from random import Random

import pytest

from tests.rules.stage import Client, Stage, numbers
from tests.support.frames import Content
from warren.amqp import methods as m
from warren.amqp.table import Table, Value

GROUPED: Table = {"x-group-header": "group"}


def put_groups(client: Client, groups: str) -> None:
    """Publish a message for each letter: the letter is its group, and the body the letter and its number in
    the group. Messages for `-` have no group.
    """
    counts: dict[str, int] = {}
    for letter in groups:
        counts[letter] = counts.get(letter, 0) + 1
        body = f"{letter}{counts[letter]}".encode()
        client.put("q", body, headers=None if letter == "-" else {"group": letter})


def bodies(contents: list[Content[m.BasicDeliver]]) -> list[bytes]:
    return [content.body for content in contents]


def names(text: str) -> list[bytes]:
    return [word.encode() for word in text.split()]


def taker(stage: Stage, *, prefetch: int = 0) -> Client:
    client = stage.connect()
    client.start("q", prefetch=prefetch)
    return client


def test_group_stays_with_its_consumer_while_one_of_it_is_out(stage: Stage) -> None:
    stage.client.queue("q", GROUPED)
    first, second = taker(stage), taker(stage)
    put_groups(stage.client, "aaaaa")
    got = [first.delivered(), second.delivered()]
    assert sorted(got) == [[], names("a1 a2 a3 a4 a5")]


def test_groups_spread_over_consumers(stage: Stage) -> None:
    stage.client.queue("q", GROUPED)
    first, second = taker(stage), taker(stage)
    put_groups(stage.client, "abababab")
    got = [first.delivered(), second.delivered()]
    assert sorted(got) == [names("a1 a2 a3 a4"), names("b1 b2 b3 b4")]


def test_group_of_a_consumer_at_its_limit_waits_and_others_overtake_it(stage: Stage) -> None:
    stage.client.queue("q", GROUPED)
    first = taker(stage, prefetch=1)
    put_groups(stage.client, "aaab")
    assert first.delivered() == names("a1")
    second = taker(stage, prefetch=1)
    assert second.delivered() == names("b1")
    second.ack(1)
    assert second.delivered() == []
    assert stage.queues["q"].message_count == 2
    first.ack(1)
    assert [*first.delivered(), *second.delivered()] == [b"a2"]


def test_no_two_consumers_ever_hold_messages_of_one_group(stage: Stage) -> None:
    client = stage.client
    client.queue("q", GROUPED)
    takers = [taker(stage, prefetch=2) for _ in range(3)]
    rng = Random(1)
    put_groups(client, "".join(rng.choice("abcde") for _ in range(60)))
    held: list[dict[int, bytes]] = [{} for _ in takers]
    seen: list[bytes] = []
    while len(seen) < 60 or any(held):
        for number, each in enumerate(takers):
            got = each.deliveries()
            seen += bodies(got)
            held[number] |= {content.method.delivery_tag: content.body for content in got}
        groups = [{body[:1] for body in out.values()} for out in held]
        assert sum(map(len, groups)) == len(set().union(*groups)), held
        number = rng.choice([number for number, out in enumerate(held) if out])
        tag = min(held[number])
        del held[number][tag]
        takers[number].ack(tag)
    assert len(seen) == 60
    for letter in b"abcde":
        of_group = [int(body[1:]) for body in seen if body[0] == letter]
        assert of_group == sorted(of_group)


def test_group_is_free_when_all_of_it_is_acked(stage: Stage) -> None:
    stage.client.queue("q", GROUPED)
    first = taker(stage, prefetch=2)
    put_groups(stage.client, "aa")
    assert first.delivered() == names("a1 a2")
    first.cancel()
    second = taker(stage)
    stage.client.put("q", b"a3", headers={"group": "a"})
    assert second.delivered() == []
    first.ack(1)
    assert second.delivered() == []
    first.ack(2)
    assert second.delivered() == [b"a3"]


@pytest.mark.parametrize("how", ["close", "hang up"])
def test_groups_of_a_consumer_that_goes_are_taken_over_in_order(stage: Stage, how: str) -> None:
    stage.client.queue("q", GROUPED)
    first = taker(stage, prefetch=3)
    put_groups(stage.client, "aaaaaa")
    second = taker(stage)
    assert (first.delivered(), second.delivered()) == (names("a1 a2 a3"), [])
    if how == "close":
        first.reopen()
    else:
        first.hang_up()
    got = second.deliveries()
    assert bodies(got) == names("a1 a2 a3 a4 a5 a6")
    assert [content.method.redelivered for content in got] == [True] * 3 + [False] * 3


def test_returned_message_comes_before_the_rest_of_its_group(stage: Stage) -> None:
    stage.client.queue("q", GROUPED)
    first = taker(stage, prefetch=1)
    put_groups(stage.client, "aab")
    assert first.delivered() == names("a1")
    first.requeue(1)
    assert first.delivered() == names("a1")


def test_messages_without_the_header_go_to_anybody(stage: Stage) -> None:
    stage.client.queue("q", GROUPED)
    first, second = taker(stage), taker(stage)
    put_groups(stage.client, "------")
    assert sorted([*first.delivered(), *second.delivered()]) == names("-1 -2 -3 -4 -5 -6")
    put_groups(stage.client, "--")
    assert len(first.delivered()) == len(second.delivered()) == 1


@pytest.mark.parametrize("value", ["text", "", 7, True, 1.5, None, ["list"], {"table": 1}], ids=str)
def test_group_may_be_of_any_type(plain: Stage, value: Value) -> None:
    """Messages with a void as value may be one group, or have none."""
    plain.client.queue("q", GROUPED)
    first, second = taker(plain), taker(plain)
    plain.client.put("q", *numbers(4), headers={"group": value})
    got = [first.delivered(), second.delivered()]
    if value is not None:
        assert sorted(got) == [[], numbers(4)]
    assert sorted([*got[0], *got[1]]) == numbers(4)


def test_get_does_not_take_from_a_group_that_a_consumer_has(stage: Stage) -> None:
    stage.client.queue("q", GROUPED)
    first = taker(stage, prefetch=1)
    put_groups(stage.client, "aab-")
    assert first.delivered() == names("a1")
    assert stage.client.drain("q") == names("b1 -1")
    assert stage.client.count("q") == 1
    first.cancel()
    first.ack(1)
    assert stage.client.drain("q") == names("a2")


def test_what_was_got_keeps_its_group_from_others(stage: Stage) -> None:
    stage.client.queue("q", GROUPED)
    put_groups(stage.client, "aaab")
    getter, other = stage.connect(), stage.connect()
    assert getter.take("q").body == b"a1"
    assert other.take("q").body == b"b1"
    assert other.get("q") is None
    consumer = taker(stage)
    assert consumer.delivered() == []
    getter.ack(1)
    assert consumer.delivered() == names("a2 a3")


def test_message_of_a_free_group_far_behind_is_found(stage: Stage) -> None:
    stage.client.queue("q", GROUPED)
    first = taker(stage, prefetch=1)
    put_groups(stage.client, "a" * 25 + "b" + "a" * 3)
    assert first.delivered() == names("a1")
    assert taker(stage).delivered() == names("b1")
    assert stage.queues["q"].message_count == 27


def test_consumer_priority_chooses_who_gets_a_free_group(plain: Stage) -> None:
    plain.client.queue("q", GROUPED)
    low, high = plain.connect(), plain.connect()
    low.start("q")
    high.start("q", prefetch=1, arguments={"x-priority": 9})
    put_groups(plain.client, "abc")
    assert high.delivered() == names("a1")
    assert low.delivered() == names("b1 c1")


def test_groups_hold_after_a_restart(durable: Stage) -> None:
    durable.client.queue("q", GROUPED)
    put_groups(durable.client, "aabbaabb")
    out = taker(durable, prefetch=3)
    assert len(out.delivered()) == 3
    durable.restart()
    first, second = taker(durable, prefetch=2), taker(durable, prefetch=2)
    assert (first.delivered(), second.delivered()) == (names("a1 a2"), names("b1 b2"))
    first.ack(1)
    assert first.delivered() == names("a3")
