"""Dead letters: where they go, where they do not, and that none is lost on the way."""

from __future__ import annotations

from random import Random

import pytest

from tests.rules.stage import TO_DEAD, Client, Stage, deaths, header, numbers, why
from warren.amqp import methods as m
from warren.amqp.table import Table

SELF: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}


def reject_next(client: Client, queue: str = "q") -> None:
    client.reject(client.take(queue).method.delivery_tag)


def declare_keys(client: Client, *keys: str) -> None:
    """Declare a queue for each key, and bind it to amq.topic with that key."""
    for key in keys:
        client.queue(key)
        client.bind(key, "amq.topic", key)


def test_key_of_the_queue_replaces_the_first_one(stage: Stage) -> None:
    client = stage.client
    declare_keys(client, "first", "other")
    client.queue("q", {"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "other"})
    client.bind("q", "amq.direct", "first")
    client.put("first", b"m", exchange="amq.direct")
    reject_next(client)
    (dead,) = client.drain_all("other")
    assert dead.method.routing_key == "other"
    assert deaths(dead)[0]["routing-keys"] == ["first"]
    assert deaths(dead)[0]["exchange"] == "amq.direct"
    assert header(dead, "x-first-death-exchange") == "amq.direct"
    assert client.count("first") == 0


def test_first_key_stays_if_the_queue_has_none(stage: Stage) -> None:
    client = stage.client
    declare_keys(client, "first", "q")
    client.queue("source", {"x-dead-letter-exchange": "amq.topic"})
    client.bind("source", "amq.direct", "first")
    client.put("first", b"m", exchange="amq.direct")
    reject_next(client, "source")
    (dead,) = client.drain_all("first")
    assert dead.method.routing_key == "first"
    assert client.count("q") == 0


CC_AND_BCC: Table = {"CC": ["cc1", "cc2"], "BCC": ["bcc"], "mine": 1}


def test_without_a_key_of_the_queue_the_cc_keys_count_again_but_not_bcc(stage: Stage) -> None:
    client = stage.client
    declare_keys(client, "q0", "cc1", "cc2", "bcc")
    client.queue("q", {"x-dead-letter-exchange": "amq.topic"})
    client.bind("q", "amq.direct", "q0")
    client.put("q0", b"m", exchange="amq.direct", headers=CC_AND_BCC)
    reject_next(client)
    for key in ("q0", "cc1", "cc2"):
        (dead,) = client.drain_all(key)
        assert deaths(dead)[0]["routing-keys"] == ["q0", "cc1", "cc2"]
        assert header(dead, "CC") == ["cc1", "cc2"]
        assert header(dead, "BCC") is None
    assert client.count("bcc") == 0


def test_with_a_key_of_the_queue_the_cc_header_is_removed(stage: Stage) -> None:
    client = stage.client
    declare_keys(client, "q0", "cc1", "cc2", "bcc", "dead")
    client.queue("q", {"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "dead"})
    client.bind("q", "amq.direct", "q0")
    client.put("q0", b"m", exchange="amq.direct", headers=CC_AND_BCC)
    reject_next(client)
    (dead,) = client.drain_all("dead")
    assert deaths(dead)[0]["routing-keys"] == ["q0", "cc1", "cc2"]
    assert header(dead, "CC") is None
    assert header(dead, "mine") == 1
    assert [client.count(key) for key in ("q0", "cc1", "cc2", "bcc")] == [0, 0, 0, 0]


@pytest.mark.parametrize("arguments", [{}, {"x-dead-letter-exchange": "missing"}], ids=str)
def test_message_without_a_place_to_go_is_gone(stage: Stage, arguments: Table) -> None:
    client = stage.client
    client.queue("q", arguments)
    client.put("q", *numbers(5))
    for _ in range(5):
        reject_next(client)
    assert (stage.queues["q"].message_count, stage.queues["q"].unacked) == (0, 0)


def test_exchange_may_be_declared_later(plain: Stage) -> None:
    client = plain.client
    client.queue("dead")
    client.queue("q", {"x-dead-letter-exchange": "later"})
    client.put("q", b"lost")
    reject_next(client)
    client.declare_exchange("later", "fanout")
    client.bind("dead", "later")
    client.put("q", b"kept")
    reject_next(client)
    assert client.drain("dead") == [b"kept"]


def test_internal_exchange_takes_dead_letters(plain: Stage) -> None:
    client = plain.client
    client.queue("dead")
    client.declare_exchange("inside", "fanout", internal=True)
    client.bind("dead", "inside")
    client.queue("q", {"x-dead-letter-exchange": "inside"})
    client.put("q", b"m")
    reject_next(client)
    assert client.drain("dead") == [b"m"]


def test_what_the_exchange_cannot_route_goes_to_its_alternate(plain: Stage) -> None:
    client = plain.client
    client.queue("dead")
    client.bind("dead", "amq.fanout")
    client.declare_exchange("dlx", "direct", arguments={"alternate-exchange": "amq.fanout"})
    client.queue("q", {"x-dead-letter-exchange": "dlx"})
    client.put("q", b"m")
    reject_next(client)
    assert client.drain("dead") == [b"m"]


def test_dead_letter_that_a_full_queue_refuses_is_gone(stage: Stage) -> None:
    client = stage.client
    client.queue("dead", {"x-max-length": 1, "x-overflow": "reject-publish"})
    client.queue("q", TO_DEAD)
    client.put("q", *numbers(3))
    for _ in range(3):
        reject_next(client)
    assert client.drain("dead") == [b"0"]


def test_dead_letter_that_a_full_queue_sends_on_dies_again(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("first", {**TO_DEAD, "x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    client.queue("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "first"})
    client.put("q", *numbers(3))
    for _ in range(3):
        reject_next(client)
    assert client.drain("first") == [b"0"]
    dead = client.drain_all("dead")
    assert [content.body for content in dead] == [b"1", b"2"]
    assert why(dead[0]) == [("first", "maxlen", 1), ("q", "rejected", 1)]


# --- cycles ---


@pytest.mark.parametrize("rule", ["x-message-ttl", "x-max-length"])
def test_message_that_nobody_rejected_does_not_return_to_its_queue(stage: Stage, rule: str) -> None:
    client = stage.client
    queue = client.queue("q", {**SELF, rule: 1})
    client.put("q", *numbers(5))
    stage.pass_ms(2)
    assert queue.message_count == (rule == "x-max-length")


def test_rejected_message_returns_to_its_queue(stage: Stage) -> None:
    client = stage.client
    client.queue("q", SELF)
    client.put("q", b"m")
    for count in (1, 2, 3):
        reject_next(client)
        content = client.take("q")
        assert why(content) == [("q", "rejected", count)]
        client.requeue(content.method.delivery_tag)


def test_cycle_of_two_queues_ends_where_it_began(stage: Stage) -> None:
    client = stage.client
    for name, other in (("a", "b"), ("b", "a")):
        client.queue(
            name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other, "x-message-ttl": 1000}
        )
    client.put("a", b"m")
    stage.pass_ms(1001)
    assert (stage.queues["a"].message_count, stage.queues["b"].message_count) == (0, 1)
    stage.pass_ms(1001)
    assert (stage.queues["a"].message_count, stage.queues["b"].message_count) == (0, 0)


def test_message_is_dropped_only_for_the_queue_that_closes_the_cycle(stage: Stage) -> None:
    client = stage.client
    client.queue("q", {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 1000})
    client.queue("other")
    for name in ("q", "other"):
        client.bind(name, "amq.fanout")
    client.put("q", b"m")
    stage.pass_ms(1001)
    assert stage.queues["q"].message_count == 0
    assert client.drain("other") == [b"m"]


def test_rejection_that_is_older_than_the_cycle_does_not_keep_it_up(stage: Stage) -> None:
    """The message is rejected in c, and expires in a and b: from a back to a, it is not rejected."""
    client = stage.client
    for name, other in (("c", "a"), ("a", "b"), ("b", "a")):
        ttl: Table = {} if name == "c" else {"x-message-ttl": 1000}
        client.queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other, **ttl})
    client.put("c", b"m")
    reject_next(client, "c")
    stage.pass_ms(1001)
    assert why(client.take("b")) == [("a", "expired", 1), ("c", "rejected", 1)]
    client.reopen()
    stage.pass_ms(1001)
    assert [stage.queues[name].message_count for name in "abc"] == [0, 0, 0]


def test_rejection_within_the_cycle_keeps_it_up(stage: Stage) -> None:
    """The message is rejected in a, and expires in b: it comes back to a."""
    client = stage.client
    client.queue("a", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b"})
    client.queue("b", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "a", "x-message-ttl": 1000})
    client.put("a", b"m")
    for _ in range(4):
        reject_next(client, "a")
        stage.pass_ms(1001)
        assert stage.queues["a"].message_count == 1


# --- nothing is lost ---


LIMITS: dict[str, Table] = {
    "rejected": {},
    "delivery_limit": {"x-delivery-limit": 0},
    "maxlen": {"x-max-length": 8},
    "expired": {"x-message-ttl": 3_600_000},
}


def die(stage: Stage, reason: str) -> None:
    """Have all messages in q die for this reason, without waiting for the disk."""
    client = stage.connect()
    if reason in {"rejected", "delivery_limit"}:
        for _ in range(8):
            client.take("q")
        client.send_only(m.BasicNack(delivery_tag=8, multiple=True, requeue=reason == "delivery_limit"))
    elif reason == "maxlen":
        for _ in range(8):
            client.publish("", "q", b"new", client.message(b"").properties)
    else:
        stage.world.advance(3600)


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("reason", LIMITS)
@pytest.mark.parametrize("seed", range(6))
def test_crash_leaves_a_dead_letter_in_the_old_queue_or_the_new_one(
    durable: Stage, reason: str, power: bool, seed: int
) -> None:
    rng = Random(seed)
    client = durable.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, **LIMITS[reason]})
    client.put("q", *numbers(8))
    die(durable, reason)
    durable.machine.turn()
    for _ in range(rng.randint(0, 2)):
        durable.machine.finish_round()
    durable.machine.disk.work(rng.randint(0, len(durable.machine.disk.pending)))
    client = durable.kill(rng, power=power)
    found = [*client.drain("q"), *client.drain("dead")]
    assert set(numbers(8)) <= set(found)


@pytest.mark.parametrize("reason", LIMITS)
def test_dead_letters_of_a_clean_restart_are_in_the_new_queue_alone(durable: Stage, reason: str) -> None:
    client = durable.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, **LIMITS[reason]})
    client.put("q", *numbers(8))
    die(durable, reason)
    client = durable.restart()
    assert client.drain("q") == ([b"new"] * 8 if reason == "maxlen" else [])
    dead = client.drain_all("dead")
    assert sorted(content.body for content in dead) == numbers(8)
    assert {str(deaths(content)[0]["reason"]) for content in dead} == {reason}


def test_transient_message_dies_into_a_durable_queue_as_transient(durable: Stage) -> None:
    client = durable.client
    client.queue("dead")
    client.queue("q", TO_DEAD)
    client.publish("", "q", b"transient")
    client.put("q", b"persistent")
    for _ in range(2):
        reject_next(client)
    assert client.count("dead") == 2
    assert durable.restart().drain("dead") == [b"persistent"]
