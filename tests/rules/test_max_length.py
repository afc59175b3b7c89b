"""x-max-length and x-max-length-bytes, and where messages above the limit go."""

from __future__ import annotations

import pytest

from tests.rules.stage import TO_DEAD, Stage, deaths, numbers, why
from warren.amqp import methods as m
from warren.amqp.table import Table

OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")


def longest(length: int, overflow: str = "drop-head", *, dead: bool = True) -> Table:
    return {**(TO_DEAD if dead else {}), "x-max-length": length, "x-overflow": overflow}


def test_drop_head_drops_the_oldest_and_dead_letters_them(stage: Stage) -> None:
    client = stage.connect(confirming=True)
    client.queue("dead")
    queue = client.queue("q", longest(5))
    client.put("q", *numbers(12))
    assert client.nacked() == []
    assert queue.message_count == 5
    dead = client.drain_all("dead")
    assert [content.body for content in dead] == numbers(7)
    assert why(dead[0]) == [("q", "maxlen", 1)]
    assert client.drain("q") == numbers(5, 7)


def test_drop_head_is_what_is_done_if_nothing_is_said(stage: Stage) -> None:
    stage.client.queue("q", {"x-max-length": 4})
    stage.client.put("q", *numbers(9))
    assert stage.client.drain("q") == numbers(4, 5)


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([4, 4], [4, 4]),
        ([4, 4, 2], [4, 4, 2]),
        ([4, 4, 3], [4, 3]),
        ([1] * 10 + [10], [10]),
        ([4, 11], []),
        ([4, 11, 5], [5]),
        ([0] * 20 + [10], [0] * 20 + [10]),
        ([6, 0, 0, 6], [0, 0, 6]),
    ],
    ids=str,
)
def test_drop_head_keeps_no_more_bytes_of_bodies(stage: Stage, sizes: list[int], kept: list[int]) -> None:
    client = stage.client
    queue = client.queue("q", {"x-max-length-bytes": 10})
    for size in sizes:
        client.put("q", b"x" * size, headers={"not": "counted" * 20})
    assert queue.message_bytes == sum(kept)
    assert [len(body) for body in client.drain("q")] == kept


def test_both_limits_hold(stage: Stage) -> None:
    client = stage.client
    client.queue("q", {"x-max-length": 3, "x-max-length-bytes": 10})
    client.put("q", b"1", b"2", b"3", b"4")
    assert stage.queues["q"].message_count == 3
    client.put("q", b"x" * 9)
    assert client.drain("q") == [b"4", b"x" * 9]


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_unacked_messages_do_not_count(stage: Stage, overflow: str) -> None:
    client = stage.connect(confirming=True)
    client.queue("dead")
    client.queue("q", {**longest(4, overflow), "x-max-length-bytes": 4})
    client.put("q", *numbers(4))
    assert client.nacked() == []
    for _ in range(2):
        client.take("q")
    client.put("q", *numbers(2, 4))
    assert client.nacked() == []
    assert stage.queues["q"].message_count == 4
    assert client.count("dead") == 0


def test_message_that_returns_to_a_full_queue_pushes_out_the_head(stage: Stage) -> None:
    """The message that returns becomes the head, and so is the one that is dropped."""
    client = stage.client
    client.queue("dead")
    client.queue("q", longest(2))
    client.put("q", *numbers(2))
    tag = client.take("q").method.delivery_tag
    client.put("q", b"2")
    client.requeue(tag)
    assert client.drain("dead") == [b"0"]
    assert client.drain("q") == [b"1", b"2"]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_refused_messages_are_nacked_and_those_taken_acked(stage: Stage, overflow: str) -> None:
    client = stage.connect(confirming=True)
    client.queue("q", longest(4, overflow, dead=False))
    client.put("q", *numbers(6))
    assert client.nacked() == [5, 6]
    assert client.get("q") is not None
    client.put("q", b"6", b"7")
    assert client.nacked() == [8]
    assert client.drain("q") == [b"1", b"2", b"3", b"6"]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_refused_messages_of_one_turn_are_not_covered_by_an_ack(stage: Stage, overflow: str) -> None:
    client = stage.connect(confirming=True)
    client.queue("full", longest(2, overflow, dead=False))
    client.queue("free")
    for name in ("full", "free"):
        client.bind(name, "amq.direct", name)
    frames = [(client.message(number), "full" if int(number) % 2 else "free") for number in numbers(10)]
    for message, key in frames:
        client.publish_soon(message, key, exchange="amq.direct")
    client.flush()
    assert client.nacked() == [6, 8, 10]
    assert client.drain("full") == [b"1", b"3"]


def test_refusal_by_bytes_refuses_what_would_be_too_much(stage: Stage) -> None:
    client = stage.connect(confirming=True)
    client.queue("q", {"x-max-length-bytes": 10, "x-overflow": "reject-publish"})
    client.put("q", b"a" * 6, b"b" * 5, b"c" * 4, b"d", b"")
    assert client.nacked() == [2, 4]
    assert client.drain("q") == [b"a" * 6, b"c" * 4, b""]


def test_message_that_one_of_two_queues_refuses_is_nacked_and_the_other_keeps_it(stage: Stage) -> None:
    client = stage.connect(confirming=True)
    client.queue("full", longest(2, "reject-publish"))
    client.queue("free")
    for name in ("full", "free"):
        client.bind(name, "amq.fanout")
    client.put("", *numbers(4), exchange="amq.fanout")
    assert client.nacked() == [3, 4]
    assert client.drain("full") == numbers(2)
    assert client.drain("free") == numbers(4)


def test_refused_message_is_dropped_silently_without_confirms(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", longest(2, "reject-publish"))
    client.put("q", *numbers(4), mandatory=True)
    assert client.methods() == []
    assert client.count("dead") == 0
    assert client.drain("q") == numbers(2)


@pytest.mark.parametrize("confirming", [True, False])
def test_reject_publish_dlx_dead_letters_the_new_message(stage: Stage, confirming: bool) -> None:
    client = stage.connect(confirming=confirming)
    client.queue("dead")
    client.queue("q", longest(4, "reject-publish-dlx"))
    client.put("q", *numbers(6))
    if confirming:
        assert client.nacked() == [5, 6]
    dead = client.drain_all("dead")
    assert [content.body for content in dead] == numbers(2, 4)
    assert [why(content) for content in dead] == [[("q", "maxlen", 1)]] * 2
    assert deaths(dead[0])[0]["routing-keys"] == ["q"]
    assert client.drain("q") == numbers(4)


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_what_a_waiting_consumer_takes_in_the_same_turn_is_not_too_much(stage: Stage, overflow: str) -> None:
    client, taker = stage.connect(confirming=True), stage.connect()
    client.queue("dead")
    client.queue("q", longest(3, overflow))
    taker.start("q", no_ack=True)
    client.put_together([client.message(body) for body in numbers(10)], "q")
    assert client.nacked() == []
    assert taker.delivered() == numbers(10)
    assert client.count("dead") == 0


@pytest.mark.parametrize(
    ("overflow", "kept", "dead", "nacked"),
    [
        ("drop-head", numbers(3, 7), numbers(5, 2), []),
        ("reject-publish", numbers(3, 2), [], [6, 7, 8, 9, 10]),
        ("reject-publish-dlx", numbers(3, 2), numbers(5, 5), [6, 7, 8, 9, 10]),
    ],
    ids=OVERFLOWS,
)
def test_what_is_too_much_in_one_turn_is_what_no_consumer_can_take(
    stage: Stage, overflow: str, kept: list[bytes], dead: list[bytes], nacked: list[int]
) -> None:
    client, taker = stage.connect(confirming=True), stage.connect(prefetch=2)
    client.queue("dead")
    client.queue("q", longest(3, overflow))
    taker.start("q")
    client.put_together([client.message(body) for body in numbers(10)], "q")
    assert client.nacked() == nacked
    assert taker.delivered() == numbers(2)
    assert client.drain("dead") == dead
    assert client.drain("q") == kept


@pytest.mark.parametrize("limit", ["x-max-length", "x-max-length-bytes"])
def test_limit_of_zero_delivers_to_a_consumer_that_waits(stage: Stage, limit: str) -> None:
    client, taker = stage.client, stage.connect(prefetch=3)
    client.queue("dead")
    client.queue("q", {**TO_DEAD, limit: 0})
    client.put("q", b"nobody waits")
    assert client.drain("dead") == [b"nobody waits"]
    taker.start("q")
    client.put("q", *numbers(5))
    assert taker.delivered() == numbers(3)
    assert client.drain("dead") == numbers(2, 3)
    assert stage.queues["q"].message_count == 0


def test_refusal_in_a_transaction_leaves_the_rest_of_it(stage: Stage) -> None:
    client = stage.client
    client.queue("q", longest(2, "reject-publish", dead=False))
    client.call(m.TxSelect(), m.TxSelectOk)
    client.put("q", *numbers(4))
    client.call(m.TxCommit(), m.TxCommitOk)
    assert stage.connect().drain("q") == numbers(2)


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_limit_holds_after_a_restart_and_nothing_dropped_comes_back(durable: Stage, overflow: str) -> None:
    client = durable.client
    client.queue("dead")
    client.queue("q", longest(4, overflow))
    client.put("q", *numbers(8))
    kept = numbers(4, 4) if overflow == "drop-head" else numbers(4)
    durable.restart()
    client = durable.connect(confirming=True)
    assert client.count("q") == 4
    client.put("q", b"8")
    assert client.nacked() == ([] if overflow == "drop-head" else [1])
    assert client.drain("q") == ([*kept[1:], b"8"] if overflow == "drop-head" else kept)


def test_refused_message_is_not_on_disk(durable: Stage) -> None:
    durable.client.queue("q", longest(2, "reject-publish", dead=False))
    durable.client.put("q", *numbers(5))
    assert durable.restart().drain("q") == numbers(2)


def test_waiting_consumer_makes_room_though_the_turn_has_delivered_enough(plain: Stage) -> None:
    client, taker = plain.connect(confirming=True), plain.connect()
    client.queue("q", longest(0, "reject-publish", dead=False))
    taker.start("q")
    plain.node.turns.budget.draining = 0
    client.put_together([client.message(body) for body in numbers(2)], "q")
    assert client.nacked() == []
    assert taker.delivered() == numbers(2)


def test_waiting_consumer_that_is_not_the_active_one_makes_no_room(plain: Stage) -> None:
    client, active, waiting = plain.connect(confirming=True), plain.connect(prefetch=1), plain.connect()
    client.queue("q", {"x-max-length": 0, "x-overflow": "reject-publish", "x-single-active-consumer": True})
    active.start("q")
    waiting.start("q")
    client.put("q", *numbers(2))
    assert client.nacked() == [2]
    assert (active.delivered(), waiting.delivered()) == ([b"0"], [])


def test_selecting_consumer_makes_room_for_what_it_wants(plain: Stage) -> None:
    client, taker = plain.connect(confirming=True), plain.connect()
    client.queue("q", longest(0, "reject-publish", dead=False))
    taker.start("q", arguments={"x-selector": "n = 1"})
    for number in (0, 1):
        client.put("q", b"%d" % number, headers={"n": number})
    assert client.nacked() == [1]
    assert taker.delivered() == [b"1"]
