"""x-delayed-message exchanges: messages that are routed when they are due."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.stage import Client, Stage, header, numbers
from warren.amqp import methods as m
from warren.amqp.table import Int8, Int64, Table, Timestamp, Value

YEAR_MS = 365 * 24 * 3600 * 1000
WAITING = "amq.delayed.x"


def declare(client: Client, kind: str = "fanout") -> None:
    """The exchange x, and the queue q that is bound to it with the key `key`."""
    durable = client.stage.keeping.durable
    client.declare_exchange("x", "x-delayed-message", arguments={"x-delayed-type": kind}, durable=durable)
    client.queue("q")
    client.bind("q", "x", "key")


def put(client: Client, *bodies: bytes, delay: int | None = None, at: Value = None, key: str = "key") -> None:
    headers: Table = {}
    if delay is not None:
        headers["x-delay"] = delay
    if at is not None:
        headers["x-deliver-at"] = at
    client.put(key, *bodies, exchange="x", headers=headers)


@pytest.mark.parametrize("delay", [Int8(100), 100, Int64(100)], ids=["byte", "int", "long"])
def test_message_is_routed_when_its_delay_is_over(stage: Stage, delay: int) -> None:
    client = stage.client
    declare(client)
    put(client, b"m", delay=delay)
    stage.pass_ms(99)
    assert client.get("q") is None
    stage.pass_ms(2)
    assert client.drain("q") == [b"m"]


def test_delay_header_is_negated(stage: Stage) -> None:
    client = stage.client
    declare(client)
    client.put("key", b"m", exchange="x", headers={"x-delay": 100, "mine": "kept"})
    stage.pass_ms(101)
    (content,) = client.drain_all("q")
    assert content.properties.headers == {"x-delay": -100, "mine": "kept"}
    assert (content.method.exchange, content.method.routing_key) == ("x", "key")


def seconds(ms: int) -> Value:
    return Timestamp(ms // 1000)


def milliseconds(ms: int) -> Value:
    return Int64(ms)


@pytest.mark.parametrize("written", [seconds, milliseconds])
def test_message_is_routed_at_the_time_it_says(stage: Stage, written: Callable[[int], Value]) -> None:
    client = stage.client
    declare(client)
    put(client, b"m", at=written(stage.world.time_ms() // 1000 * 1000 + 5000))
    stage.pass_ms(4990)
    assert client.get("q") is None
    stage.pass_ms(11)
    assert client.drain("q") == [b"m"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-delay": 0},
        {"x-delay": -5},
        {"x-delay": Int64(-(2**40))},
        {"x-deliver-at": Timestamp(5)},
        {"x-deliver-at": 0},
        {"x-deliver-at": Int64(5000)},
    ],
    ids=str,
)
def test_message_that_is_due_is_routed_at_once(stage: Stage, headers: Table) -> None:
    client = stage.client
    declare(client)
    client.put("key", b"m", exchange="x", headers=headers)
    assert client.drain("q") == [b"m"]


def test_message_without_headers_is_routed_at_once(plain: Stage) -> None:
    declare(plain.client)
    plain.client.publish("x", "key", b"m")
    assert plain.client.drain("q") == [b"m"]


def test_messages_come_in_the_order_of_their_times(stage: Stage) -> None:
    client = stage.client
    declare(client)
    delays = [500, 100, 900, 300, 700, 200, 800, 400, 600]
    for delay in delays:
        put(client, b"%d" % delay, delay=delay)
    stage.pass_ms(1000)
    assert client.drain("q") == [b"%d" % delay for delay in sorted(delays)]


def test_messages_of_one_time_come_in_the_order_they_were_published(stage: Stage) -> None:
    client = stage.client
    declare(client)
    client.put_together(
        [client.message(number, headers={"x-delay": 1000}) for number in numbers(12)], "key", exchange="x"
    )
    stage.pass_ms(1001)
    assert client.drain("q") == numbers(12)


def test_message_published_later_may_come_first(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    declare(client)
    taker.start("q")
    put(client, b"late", delay=2000)
    stage.pass_ms(500)
    put(client, b"early", delay=500)
    stage.pass_ms(501)
    assert taker.delivered() == [b"early"]
    stage.pass_ms(1000)
    assert taker.delivered() == [b"late"]


def test_delay_of_years(stage: Stage) -> None:
    client = stage.client
    declare(client)
    put(client, b"m", delay=Int64(10 * YEAR_MS))
    put(client, b"n", at=Int64(stage.world.time_ms() + 11 * YEAR_MS))
    stage.pass_ms(10 * YEAR_MS - 1)
    assert client.get("q") is None
    stage.pass_ms(2)
    assert client.drain("q") == [b"m"]
    stage.pass_ms(YEAR_MS)
    assert client.drain("q") == [b"n"]


@pytest.mark.parametrize(
    ("kind", "key", "arguments", "headers"),
    [
        ("direct", "a.b", {}, {}),
        ("topic", "a.*", {}, {}),
        ("fanout", "", {}, {}),
        ("headers", "", {"x-match": "all", "colour": "red"}, {"colour": "red"}),
    ],
)
def test_inner_type_routes(plain: Stage, kind: str, key: str, arguments: Table, headers: Table) -> None:
    client = plain.client
    client.declare_exchange("x", "x-delayed-message", arguments={"x-delayed-type": kind})
    client.queue("q")
    client.bind("q", "x", key, arguments)
    for delay in (0, 100):
        client.put("a.b", b"m", exchange="x", headers={"x-delay": delay, **headers})
        if kind != "fanout":
            client.put("b", b"elsewhere", exchange="x", headers={"x-delay": delay})
    plain.pass_ms(101)
    assert client.drain("q") == [b"m", b"m"]


def test_bindings_count_that_are_there_when_it_is_due(plain: Stage) -> None:
    client = plain.client
    declare(client)
    client.queue("later")
    put(client, b"m", delay=1000)
    client.bind("later", "x", "key")
    client.call(m.QueueUnbind(queue="q", exchange="x", routing_key="key", arguments={}), m.QueueUnbindOk)
    plain.pass_ms(1001)
    assert client.drain("q") == []
    assert client.drain("later") == [b"m"]


def test_message_is_confirmed_though_it_waits(stage: Stage) -> None:
    client = stage.connect(confirming=True)
    declare(client)
    put(client, b"m", b"n", delay=10_000)
    assert client.nacked() == []


def test_time_to_live_begins_when_it_is_due(stage: Stage) -> None:
    client = stage.client
    declare(client)
    client.put("key", b"m", exchange="x", headers={"x-delay": 5000}, expiration=1000)
    stage.pass_ms(5001)
    assert stage.queues["q"].message_count == 1
    stage.pass_ms(998)
    assert stage.queues["q"].message_count == 1
    stage.pass_ms(2)
    assert stage.queues["q"].message_count == 0


@pytest.mark.parametrize(
    "arguments",
    [{}, {"x-delayed-type": "nonsense"}, {"x-delayed-type": 7}, {"x-delayed-type": "x-delayed-message"}],
    ids=str,
)
def test_exchange_without_a_type_that_routes_is_406(plain: Stage, arguments: Table) -> None:
    declare = m.ExchangeDeclare(exchange="x", type="x-delayed-message", arguments=arguments)
    plain.client.send(declare)
    plain.client.expect_close(406)
    assert "x" not in plain.node.vhosts["/"].exchanges


def test_redeclaring_with_another_inner_type_is_406(plain: Stage) -> None:
    declare(plain.client)
    other = m.ExchangeDeclare(exchange="x", type="x-delayed-message", arguments={"x-delayed-type": "topic"})
    plain.client.send(other)
    plain.client.expect_close(406)


# --- what survives ---


def test_what_waits_survives_a_restart(durable: Stage) -> None:
    declare(durable.client)
    for number in range(8):
        put(durable.client, b"%d" % number, delay=60_000 - 1000 * number)
    client = durable.restart(down_ms=20_000)
    assert client.count(WAITING) == 8
    durable.pass_ms(30_000)
    assert client.get("q") is None
    durable.pass_ms(10_000)
    assert client.drain("q") == [b"7", b"6", b"5", b"4", b"3", b"2", b"1", b"0"]
    assert durable.restart().drain("q") == []


def test_what_became_due_while_the_broker_was_down_comes_at_once(durable: Stage) -> None:
    declare(durable.client)
    for number, delay in enumerate((30_000, 10_000, 20_000, 9_000_000)):
        put(durable.client, b"%d" % number, delay=delay)
    client = durable.restart(down_ms=100_000)
    durable.pass_ms(1)
    assert client.drain("q") == [b"1", b"2", b"0"]
    assert client.count(WAITING) == 1


def test_what_was_routed_does_not_come_again_after_a_restart(durable: Stage) -> None:
    declare(durable.client)
    put(durable.client, *numbers(8), delay=1000)
    durable.pass_ms(1001)
    assert durable.client.drain("q") == numbers(8)
    client = durable.restart()
    durable.pass_ms(10_000)
    assert client.drain("q") == []


def test_transient_message_does_not_wait_over_a_restart(durable: Stage) -> None:
    declare(durable.client)
    durable.client.publish("x", "key", b"transient", durable.client.message(b"", headers={}).properties)
    properties = durable.client.message(b"", headers={"x-delay": 60_000}).properties
    properties.delivery_mode = 1
    durable.client.publish("x", "key", b"delayed", properties)
    client = durable.restart()
    durable.pass_ms(100_000)
    assert client.drain("q") == [b"transient"]


# --- the queue in which they wait ---


def test_queue_of_the_exchange_tells_how_many_wait(stage: Stage) -> None:
    client = stage.client
    declare(client)
    assert client.count(WAITING) == 0
    put(client, *numbers(7), delay=1000)
    put(client, b"now")
    assert client.count(WAITING) == 7
    stage.pass_ms(1001)
    assert client.count(WAITING) == 0


def test_purging_the_queue_of_the_exchange_cancels_what_waits(stage: Stage) -> None:
    client = stage.client
    declare(client)
    put(client, *numbers(7), delay=1000)
    client.purge(WAITING, 7)
    put(client, b"after", delay=2000)
    stage.pass_ms(5000)
    assert client.drain("q") == [b"after"]


def test_purged_messages_do_not_come_after_a_restart(durable: Stage) -> None:
    declare(durable.client)
    put(durable.client, *numbers(7), delay=1000)
    durable.client.purge(WAITING, 7)
    client = durable.restart()
    durable.pass_ms(5000)
    assert client.drain("q") == []


def test_deleting_the_exchange_deletes_its_queue(stage: Stage) -> None:
    client = stage.client
    declare(client)
    put(client, *numbers(7), delay=1000)
    client.call(m.ExchangeDelete(exchange="x"), m.ExchangeDeleteOk)
    stage.pass_ms(5000)
    assert client.drain("q") == []
    client.send(m.QueueDeclare(queue=WAITING, passive=True, arguments={}))
    client.expect_close(404)


@pytest.mark.parametrize(
    "method",
    [
        m.BasicConsume(queue=WAITING, arguments={}),
        m.BasicGet(queue=WAITING),
        m.QueueBind(queue=WAITING, exchange="amq.fanout", arguments={}),
        m.QueueDelete(queue=WAITING),
    ],
    ids=lambda method: method.name,
)
def test_nobody_may_use_the_queue_of_the_exchange(plain: Stage, method: m.Method) -> None:
    client = plain.client
    declare(client)
    put(client, b"m", delay=1000)
    client.send(method)
    assert client.expect_close(403).reply_text.startswith("ACCESS_REFUSED")
    plain.pass_ms(1001)
    assert plain.connect().drain("q") == [b"m"]


def test_nobody_may_publish_to_the_queue_of_the_exchange(plain: Stage) -> None:
    declare(plain.client)
    plain.client.publish("", WAITING, b"m")
    plain.settle()
    assert plain.client.expect_close(403).reply_text.startswith("ACCESS_REFUSED")
    assert plain.connect().count(WAITING) == 0


def test_delay_header_of_a_dead_letter_counts(stage: Stage) -> None:
    client = stage.client
    declare(client)
    client.queue("source", {"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": "key"})
    client.put("source", b"m", headers={"x-delay": 1000})
    client.reject(client.take("source").method.delivery_tag)
    stage.pass_ms(999)
    assert client.get("q") is None
    stage.pass_ms(2)
    (content,) = client.drain_all("q")
    assert header(content, "x-delay") == -1000


@pytest.mark.parametrize("header_name", ["CC", "BCC"])
def test_further_keys_count_when_the_message_is_due(stage: Stage, header_name: str) -> None:
    client = stage.client
    declare(client, "direct")
    client.queue("other")
    client.bind("other", "x", "copy")
    client.put("key", b"m", exchange="x", headers={"x-delay": 100, header_name: ["copy"]})
    stage.pass_ms(101)
    for queue in ("q", "other"):
        (content,) = client.drain_all(queue)
        assert ("BCC" in (content.properties.headers or {})) is False
        assert content.body == b"m"
