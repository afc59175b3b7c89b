"""x-message-deduplication, on queues and on exchanges."""

from __future__ import annotations

from random import Random

import pytest

from tests.rules.stage import Client, Stage, numbers
from warren.amqp import methods as m
from warren.amqp.table import Table, Value

ONCE: Table = {"x-message-deduplication": True}
HEADER = "x-deduplication-header"


def put(client: Client, *values: Value, body: bytes | None = None, **headers: Value) -> None:
    """Publish a message for each value of the deduplication header; the body is the value, unless it is
    given.
    """
    for value in values:
        text = str(value).encode() if body is None else body
        client.put("q", text, headers={HEADER: value, **{k.replace("_", "-"): v for k, v in headers.items()}})


def test_message_seen_before_is_dropped_and_confirmed(stage: Stage) -> None:
    client = stage.connect(confirming=True)
    client.queue("q", ONCE)
    put(client, "a", "b", "a", "c", "b", "a")
    assert client.nacked() == []
    assert client.drain("q") == [b"a", b"b", b"c"]


def test_message_is_remembered_when_it_is_long_gone(stage: Stage) -> None:
    client = stage.client
    client.queue("q", ONCE)
    put(client, "a")
    assert client.drain("q") == [b"a"]
    stage.pass_ms(10**9)
    put(client, "a")
    assert client.drain("q") == []


def test_duplicates_of_one_turn_are_dropped(stage: Stage) -> None:
    client = stage.connect(confirming=True)
    client.queue("q", ONCE)
    client.put_together([client.message(b"m", headers={HEADER: n % 3}) for n in range(12)], "q")
    assert client.nacked() == []
    assert len(client.drain("q")) == 3


def test_messages_without_the_header_pass(stage: Stage) -> None:
    client = stage.client
    client.queue("q", ONCE)
    client.put("q", b"m", b"m", headers={"other": "a"})
    client.put("q", b"m")
    client.publish("", "q", b"m")
    assert client.drain("q") == [b"m"] * 4


@pytest.mark.parametrize("value", ["text", "", 7, -1, True, 1.5], ids=str)
def test_value_may_be_of_any_simple_type(plain: Stage, value: Value) -> None:
    client = plain.client
    client.queue("q", ONCE)
    put(client, value, value, "another")
    assert client.drain("q") == [str(value).encode(), b"another"]


def test_header_may_have_another_name(stage: Stage) -> None:
    client = stage.client
    client.queue("q", {**ONCE, HEADER: "id"})
    client.put("q", b"1", b"2", headers={"id": 1})
    put(client, "a", "a")
    assert client.drain("q") == [b"1", b"a", b"a"]


def test_oldest_is_forgotten_beyond_the_size(stage: Stage) -> None:
    client = stage.client
    client.queue("q", {**ONCE, "x-cache-size": 3})
    put(client, "a", "b", "c", "d")
    put(client, "b", "c", "d")
    put(client, "a")
    assert client.drain("q") == [b"a", b"b", b"c", b"d", b"a"]


def test_values_are_forgotten_after_the_time(stage: Stage) -> None:
    client = stage.client
    client.queue("q", {**ONCE, "x-cache-ttl": 1000})
    put(client, "a")
    stage.pass_ms(999)
    put(client, "a")
    stage.pass_ms(2)
    put(client, "a")
    assert client.drain("q") == [b"a", b"a"]


@pytest.mark.parametrize("queue_ttl", [None, 1000, 60_000])
def test_message_may_say_how_long_it_is_remembered(stage: Stage, queue_ttl: int | None) -> None:
    client = stage.client
    client.queue("q", {**ONCE, **({} if queue_ttl is None else {"x-cache-ttl": queue_ttl})})
    put(client, "a", x_cache_ttl=5000)
    stage.pass_ms(4999)
    put(client, "a")
    stage.pass_ms(2)
    put(client, "a")
    assert client.drain("q") == [b"a", b"a"]


def test_queue_without_the_argument_takes_all(stage: Stage) -> None:
    client = stage.client
    client.queue("q")
    put(client, "a", "a")
    assert client.drain("q") == [b"a", b"a"]


def test_queues_remember_each_for_itself(stage: Stage) -> None:
    client = stage.client
    for name in ("q", "other"):
        client.queue(name, ONCE)
        client.bind(name, "amq.fanout")
    put(client, "a")
    client.put("", b"a", exchange="amq.fanout", headers={HEADER: "a"})
    assert client.drain("q") == [b"a"]
    assert client.drain("other") == [b"a"]


def test_refused_message_is_not_remembered(stage: Stage) -> None:
    client = stage.connect(confirming=True)
    client.queue("q", {**ONCE, "x-max-length": 1, "x-overflow": "reject-publish"})
    put(client, "a", "b")
    assert client.nacked() == [2]
    assert client.drain("q") == [b"a"]
    put(client, "b")
    assert client.nacked() == []
    assert client.drain("q") == [b"b"]


def test_returned_message_is_no_duplicate_of_itself(stage: Stage) -> None:
    client = stage.client
    client.queue("q", ONCE)
    put(client, "a")
    client.requeue(client.take("q").method.delivery_tag)
    assert client.drain("q") == [b"a"]


# --- what survives ---


def test_values_survive_a_restart_of_a_durable_queue(durable: Stage) -> None:
    durable.client.queue("q", ONCE)
    put(durable.client, *"abcdefgh")
    for _ in range(4):
        durable.client.get("q")
    client = durable.restart()
    put(client, *"abcdefgh", "new")
    assert client.drain("q") == [b"e", b"f", b"g", b"h", b"new"]


def test_size_and_order_hold_over_a_restart(durable: Stage) -> None:
    durable.client.queue("q", {**ONCE, "x-cache-size": 3})
    put(durable.client, *"abcd")
    client = durable.restart()
    client.purge("q", 4)
    put(client, "b", "c", "d")
    assert client.count("q") == 0
    put(client, "e")
    put(client, "c", "d")
    put(client, "b")
    assert client.drain("q") == [b"e", b"b"]


def test_time_goes_on_over_a_restart(durable: Stage) -> None:
    durable.client.queue("q", {**ONCE, "x-cache-ttl": 60_000})
    put(durable.client, "a")
    client = durable.restart(down_ms=40_000)
    put(client, "a")
    assert client.count("q") == 1
    durable.pass_ms(20_000)
    put(client, "a")
    assert client.count("q") == 2


@pytest.mark.parametrize("seed", range(8))
def test_message_lost_with_the_power_may_come_again(durable: Stage, seed: int) -> None:
    client = durable.client
    client.queue("q", ONCE)
    rng = Random(seed)
    for number in range(6):
        message = client.message(b"%d" % number, headers={HEADER: number})
        client.publish("", "q", *message)
        if rng.random() < 0.3:
            durable.machine.finish_round()
    durable.machine.turn()
    durable.machine.disk.work(rng.randint(0, len(durable.machine.disk.pending)))
    client = durable.kill(rng, power=True)
    for number in range(6):
        put(client, number)
    assert set(client.drain("q")) == set(numbers(6))


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_message_that_is_safe_is_remembered_by_a_broker_that_is_killed(durable: Stage, power: bool) -> None:
    durable.client.queue("q", ONCE)
    put(durable.client, *range(9))
    client = durable.kill(Random(1), power=power)
    put(client, *range(10))
    assert client.drain("q") == numbers(10)


def test_duplicate_is_confirmed_only_when_the_first_is_safe(durable: Stage) -> None:
    durable.client.queue("q", ONCE)
    first, second = durable.connect(confirming=True), durable.connect(confirming=True)
    for client in (first, second):
        client.publish("", "q", *client.message(b"m", headers={HEADER: "a"}))
        durable.machine.turn()
    assert (first.methods(), second.methods()) == ([], [])
    durable.settle()
    assert [len(client.methods()) for client in (first, second)] == [1, 1]


# --- exchanges ---


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "x-consistent-hash"])
def test_exchange_routes_a_message_once(plain: Stage, kind: str) -> None:
    client = plain.connect(confirming=True)
    client.declare_exchange("x", kind, arguments=ONCE)
    client.queue("q")
    client.bind("q", "x", "1")
    for value in ("a", "b", "a", "b", "c"):
        client.put("1", value.encode(), exchange="x", headers={HEADER: value}, mandatory=True)
    assert client.nacked() == []
    assert client.drain("q") == [b"a", b"b", b"c"]


def test_duplicate_at_an_exchange_is_not_returned(plain: Stage) -> None:
    client = plain.client
    client.declare_exchange("x", "direct", arguments=ONCE)
    client.put("nowhere", b"m", exchange="x", headers={HEADER: "a"}, mandatory=True)
    (returned,) = client.methods()
    assert isinstance(returned, m.BasicReturn)
    client.put("nowhere", b"m", exchange="x", headers={HEADER: "a"}, mandatory=True)
    assert client.methods() == []


def test_duplicate_at_an_exchange_does_not_go_to_its_alternate(plain: Stage) -> None:
    client = plain.client
    client.queue("rest")
    client.bind("rest", "amq.fanout")
    client.declare_exchange("x", "direct", arguments={**ONCE, "alternate-exchange": "amq.fanout"})
    for _ in range(2):
        client.put("nowhere", b"m", exchange="x", headers={HEADER: "a"})
    assert client.drain("rest") == [b"m"]


def test_exchange_forgets_as_a_queue_does(plain: Stage) -> None:
    client = plain.client
    arguments: Table = {**ONCE, "x-cache-size": 2, "x-cache-ttl": 1000, HEADER: "id"}
    client.declare_exchange("x", "fanout", arguments=arguments)
    client.queue("q")
    client.bind("q", "x")
    for value in "abca":
        client.put("", value.encode(), exchange="x", headers={"id": value})
    assert client.drain("q") == [b"a", b"b", b"c", b"a"]
    client.put("", b"a", exchange="x", headers={"id": "a"})
    plain.pass_ms(1001)
    client.put("", b"a", b"a", exchange="x", headers={"id": "a"})
    assert client.drain("q") == [b"a"]


def test_messages_without_the_header_pass_an_exchange(plain: Stage) -> None:
    client = plain.client
    client.declare_exchange("x", "fanout", arguments=ONCE)
    client.queue("q")
    client.bind("q", "x")
    client.put("", b"m", b"m", exchange="x")
    assert client.drain("q") == [b"m", b"m"]


def test_transaction_is_committed_when_what_it_published_is_noted(durable: Stage) -> None:
    client = durable.client
    client.queue("q", ONCE)
    client.call(m.TxSelect(), m.TxSelectOk)
    client.publish("", "q", *client.message(b"m", headers={HEADER: "a"}))
    client.send_only(m.TxCommit())
    rounds = 0
    while not client.methods():
        assert durable.machine.finish_round()
        rounds += 1
    assert rounds >= 2
    assert client.drain("q") == [b"m"]
