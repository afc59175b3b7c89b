"""What each kind of exchange matches, and where a message goes from exchange to exchange."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import Unique
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Int64, Table


def bind_exchange(channel: AmqpChannel, destination: str, source: str, key: str = "") -> None:
    bind = m.ExchangeBind(destination=destination, source=source, routing_key=key, arguments={})
    channel.call(bind, m.ExchangeBindOk)


def unbind_exchange(channel: AmqpChannel, destination: str, source: str, key: str = "") -> None:
    unbind = m.ExchangeUnbind(destination=destination, source=source, routing_key=key, arguments={})
    channel.call(unbind, m.ExchangeUnbindOk)


def exchange_of(channel: AmqpChannel, unique: Unique, kind: str = "direct", **arguments: str) -> str:
    exchange = unique()
    channel.declare_exchange(exchange, kind, arguments={**arguments})
    return exchange


def bound_queues(channel: AmqpChannel, exchange: str, key: str, count: int = 3) -> list[str]:
    queues = [channel.declare().queue for _ in range(count)]
    for queue in queues:
        channel.bind(queue, exchange, key)
    return queues


def test_default_exchange_routes_to_the_queue_of_the_keys_name(channel: AmqpChannel) -> None:
    queue, bystander = channel.declare().queue, channel.declare().queue
    channel.publish("", queue, b"body")
    got = channel.get(queue).method
    assert (got.exchange, got.routing_key) == ("", queue)
    assert channel.drain(bystander) == []


def test_direct_exchange_matches_the_whole_key(channel: AmqpChannel, unique: Unique) -> None:
    exchange, queue = exchange_of(channel, unique), channel.declare().queue
    channel.bind(queue, exchange, "a.b")
    for key in ("a.b", "a", "a.b.c", "A.B", "", "*", "#"):
        channel.publish(exchange, key, key.encode())
    assert channel.drain(queue) == [b"a.b"]


def test_direct_exchange_takes_no_wildcards(channel: AmqpChannel, unique: Unique) -> None:
    exchange, queue = exchange_of(channel, unique), channel.declare().queue
    channel.bind(queue, exchange, "#")
    channel.publish(exchange, "a")
    assert channel.drain(queue) == []


def test_fanout_exchange_ignores_the_key(channel: AmqpChannel, unique: Unique) -> None:
    exchange = exchange_of(channel, unique, "fanout")
    queues = bound_queues(channel, exchange, "ignored")
    channel.publish(exchange, "other")
    assert [len(channel.drain(queue)) for queue in queues] == [1, 1, 1]


TOPICS: list[tuple[str, str, bool]] = [
    ("a.b.c", "a.b.c", True),
    ("a.b.c", "a.b", False),
    ("a.b.c", "a.b.c.d", False),
    ("a.b", "A.B", False),
    ("a.*", "a.b", True),
    ("a.*", "a", False),
    ("a.*", "a.b.c", False),
    ("a.*", "a.", True),
    ("*", "a", True),
    ("*", "", False),
    ("*.b", "a.b", True),
    ("*.*", "a.b", True),
    ("*.*", "a", False),
    ("#", "", True),
    ("#", "a", True),
    ("#", "a.b.c", True),
    ("a.#", "a", True),
    ("a.#", "a.b", True),
    ("a.#", "a.b.c", True),
    ("a.#", "ab", False),
    ("#.c", "c", True),
    ("#.c", "a.b.c", True),
    ("#.c", "a.b.cc", False),
    ("a.#.b", "a.b", True),
    ("a.#.b", "a.x.b", True),
    ("a.#.b", "a.b.c.b", True),
    ("a.#.b", "a.b.b.b", True),
    ("a.#.b", "a.b.c", False),
    ("a.#.b", "a", False),
    ("#.b.#", "b", True),
    ("#.b.#", "a.b.b.c", True),
    ("#.b.#", "a.c", False),
    ("*.#", "a", True),
    ("*.#", "", False),
    ("#.*", "a.b", True),
    ("#.#", "", True),
    ("#.#", "a.b", True),
    ("#.*.#.*", "a", False),
    ("#.*.#.*", "a.b", True),
    ("a.#.b.#.c", "a.b.x.b.c.c", True),
    ("a.#.b.#.c", "a.c.b", False),
    ("", "", True),
    ("", "a", False),
    ("a..b", "a..b", True),
    ("a.*.b", "a..b", True),
    ("a*", "ab", False),
    ("a#", "ab", False),
]


@pytest.mark.parametrize(("pattern", "key", "matches"), TOPICS, ids=repr)
def test_topic_pattern(channel: AmqpChannel, unique: Unique, pattern: str, key: str, matches: bool) -> None:
    exchange, queue = exchange_of(channel, unique, "topic"), channel.declare().queue
    channel.bind(queue, exchange, pattern)
    channel.publish(exchange, key)
    assert len(channel.drain(queue)) == int(matches)


def test_topic_binding_that_is_gone_matches_no_more_and_leaves_its_likes(
    channel: AmqpChannel, unique: Unique
) -> None:
    exchange = exchange_of(channel, unique, "topic")
    queue, other = bound_queues(channel, exchange, "a.#.b", 2)
    unbind = m.QueueUnbind(queue=queue, exchange=exchange, routing_key="a.#.b", arguments={})
    channel.call(unbind, m.QueueUnbindOk)
    channel.publish(exchange, "a.x.b")
    assert (len(channel.drain(queue)), len(channel.drain(other))) == (0, 1)


HEADERS: list[tuple[Table, Table, bool]] = [
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 3}, True),
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "y"}, False),
    ({"a": 1, "b": "x"}, {"a": 1, "b": "x"}, True),
    ({"a": 1, "b": "x"}, {"a": 1}, False),
    ({"x-match": "any", "a": 1, "b": "x"}, {"a": 1}, True),
    ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, True),
    ({"x-match": "any", "a": 1, "b": "x"}, {"a": 2, "b": "y"}, False),
    ({"x-match": "any", "a": 1}, {}, False),
    ({"x-match": "all"}, {}, True),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"x-match": "all", "a": None}, {"a": 1}, True),
    ({"x-match": "all", "a": None}, {"a": "x"}, True),
    ({"x-match": "all", "a": None}, {"b": 1}, False),
    ({"x-match": "all", "a": True}, {"a": True}, True),
    ({"x-match": "all", "a": True}, {"a": False}, False),
    ({"x-match": "all", "a": 1, "x-b": 2}, {"a": 1}, True),
    ({"x-match": "all", "a": 1, "x-b": 2}, {"a": 1, "x-b": 3}, True),
    ({"x-match": "any", "x-b": 2}, {"x-b": 2}, False),
    ({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1}, False),
    ({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1, "x-b": 3}, False),
    ({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1, "x-b": 2}, True),
    ({"x-match": "any-with-x", "a": 1, "x-b": 2}, {"x-b": 2}, True),
    ({"x-match": "any-with-x", "a": 1, "x-b": 2}, {"a": 1}, True),
    ({"x-match": "any-with-x", "a": 1, "x-b": 2}, {"a": 2, "x-b": 3}, False),
    ({"x-match": "all", "a": 1}, {"a": Int64(1)}, True),
    ({"x-match": "all", "a": "1"}, {"a": 1}, False),
]


@pytest.mark.parametrize(("binding", "headers", "matches"), HEADERS, ids=str)
def test_headers_binding(
    channel: AmqpChannel, unique: Unique, binding: Table, headers: Table, matches: bool
) -> None:
    exchange, queue = exchange_of(channel, unique, "headers"), channel.declare().queue
    channel.bind(queue, exchange, "", binding)
    channel.publish(exchange, "ignored", b"", BasicProperties(headers=headers))
    assert len(channel.drain(queue)) == int(matches)


def test_headers_binding_matches_a_message_without_headers_only_if_it_asks_for_none(
    channel: AmqpChannel, unique: Unique
) -> None:
    exchange = exchange_of(channel, unique, "headers")
    some, none = channel.declare().queue, channel.declare().queue
    channel.bind(some, exchange, "", {"x-match": "all", "a": 1})
    channel.bind(none, exchange, "", {"x-match": "all"})
    channel.publish(exchange, "")
    assert (len(channel.drain(some)), len(channel.drain(none))) == (0, 1)


def test_headers_binding_with_an_unknown_x_match_is_406(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.send(m.QueueBind(queue=queue, exchange="amq.headers", arguments={"x-match": "some"}))
    assert channel.expect_close(406).reply_text.startswith(
        "PRECONDITION_FAILED - Invalid x-match field value "
    )


def test_bindings_with_other_arguments_are_other_bindings(channel: AmqpChannel, unique: Unique) -> None:
    exchange, queue = exchange_of(channel, unique, "headers"), channel.declare().queue
    channel.bind(queue, exchange, "", {"a": 1})
    channel.bind(queue, exchange, "", {"a": 2})
    channel.call(m.QueueUnbind(queue=queue, exchange=exchange, arguments={"a": 1}), m.QueueUnbindOk)
    for value in (1, 2):
        channel.publish(exchange, "", b"%d" % value, BasicProperties(headers={"a": value}))
    assert channel.drain(queue) == [b"2"]


@pytest.mark.usefixtures("unlike_rabbitmq")
def test_consistent_hash_sends_each_message_to_one_queue_and_equal_keys_to_the_same(
    channel: AmqpChannel, unique: Unique
) -> None:
    """RabbitMQ has it in a plugin that is off by default."""
    exchange = exchange_of(channel, unique, "x-consistent-hash")
    queues = bound_queues(channel, exchange, "10")
    for _ in range(2):
        for key in range(300):
            channel.publish(exchange, f"key-{key}", b"%d" % key)
    shares = [channel.drain(queue) for queue in queues]
    assert sum(map(len, shares)) == 600
    for share in shares:
        half = len(share) // 2
        assert half > 0
        assert share[:half] == share[half:]


@pytest.mark.usefixtures("unlike_rabbitmq")
def test_consistent_hash_moves_only_the_keys_of_a_queue_that_goes(
    channel: AmqpChannel, unique: Unique
) -> None:
    exchange = exchange_of(channel, unique, "x-consistent-hash")
    queues = bound_queues(channel, exchange, "10")
    before = keys_by_queue(channel, exchange, queues)
    channel.call(m.QueueDelete(queue=queues[2]), m.QueueDeleteOk)
    after = keys_by_queue(channel, exchange, queues[:2])
    assert all(before[queue] <= after[queue] for queue in queues[:2])
    assert after[queues[0]] | after[queues[1]] == set().union(*before.values())


def keys_by_queue(channel: AmqpChannel, exchange: str, queues: list[str]) -> dict[str, set[bytes]]:
    for key in range(200):
        channel.publish(exchange, f"key-{key}", b"%d" % key)
    return {queue: set(channel.drain(queue)) for queue in queues}


@pytest.mark.usefixtures("unlike_rabbitmq")
def test_consistent_hash_gives_more_to_a_queue_of_more_weight(channel: AmqpChannel, unique: Unique) -> None:
    exchange = exchange_of(channel, unique, "x-consistent-hash")
    light, heavy = channel.declare().queue, channel.declare().queue
    channel.bind(light, exchange, "1")
    channel.bind(heavy, exchange, "50")
    for key in range(1000):
        channel.publish(exchange, f"key-{key}")
    few, many = len(channel.drain(light)), len(channel.drain(heavy))
    assert few < many
    assert few + many == 1000


@pytest.mark.usefixtures("unlike_rabbitmq")
def test_consistent_hash_can_hash_a_header(channel: AmqpChannel, unique: Unique) -> None:
    exchange = exchange_of(channel, unique, "x-consistent-hash", **{"hash-header": "who"})
    queues = bound_queues(channel, exchange, "10")
    for key in range(100):
        channel.publish(exchange, f"key-{key}", b"", BasicProperties(headers={"who": "ann"}))
    assert sorted(len(channel.drain(queue)) for queue in queues) == [0, 0, 100]


def test_exchange_bindings_match_the_original_key_at_every_step(channel: AmqpChannel, unique: Unique) -> None:
    source, target = exchange_of(channel, unique, "topic"), exchange_of(channel, unique, "direct")
    queue = channel.declare().queue
    bind_exchange(channel, target, source, "a.#")
    channel.bind(queue, target, "a.b")
    for key in ("a.b", "a.c", "b.a"):
        channel.publish(source, key)
    got = channel.get(queue).method
    assert (got.exchange, got.routing_key) == (source, "a.b")
    assert channel.drain(queue) == []


def test_exchange_unbind_ends_the_routing(channel: AmqpChannel, unique: Unique) -> None:
    source, target = (exchange_of(channel, unique, "fanout") for _ in range(2))
    queue = channel.declare().queue
    channel.bind(queue, target)
    bind_exchange(channel, target, source)
    unbind_exchange(channel, target, source)
    channel.publish(source, "")
    assert channel.drain(queue) == []


@pytest.mark.parametrize("end", ["source", "target"])
def test_exchange_binding_goes_with_either_of_its_exchanges(
    channel: AmqpChannel, unique: Unique, end: str
) -> None:
    source, target = (exchange_of(channel, unique, "fanout") for _ in range(2))
    queue = channel.declare().queue
    bind_exchange(channel, target, source)
    gone = source if end == "source" else target
    channel.call(m.ExchangeDelete(exchange=gone), m.ExchangeDeleteOk)
    channel.declare_exchange(gone, "fanout")
    channel.bind(queue, target)
    channel.publish(source, "")
    assert channel.drain(queue) == []


def test_loop_of_exchange_bindings_ends_and_delivers_once(channel: AmqpChannel, unique: Unique) -> None:
    first, second, third = (exchange_of(channel, unique, "fanout") for _ in range(3))
    queue = channel.declare().queue
    for source, target in ((first, second), (second, third), (third, first), (first, first)):
        bind_exchange(channel, target, source)
    for exchange in (first, second, third):
        channel.bind(queue, exchange)
    channel.publish(first, "")
    assert len(channel.drain(queue)) == 1


def test_queue_reached_over_several_paths_gets_the_message_once(channel: AmqpChannel, unique: Unique) -> None:
    top, left, right = (exchange_of(channel, unique, "fanout") for _ in range(3))
    queue = channel.declare().queue
    for target in (left, right):
        bind_exchange(channel, target, top)
        channel.bind(queue, target)
    channel.bind(queue, top)
    channel.publish(top, "")
    assert len(channel.drain(queue)) == 1


def test_internal_exchange_takes_messages_from_other_exchanges(channel: AmqpChannel, unique: Unique) -> None:
    source, internal = exchange_of(channel, unique, "fanout"), unique()
    channel.declare_exchange(internal, "fanout", internal=True)
    queue = channel.declare().queue
    channel.bind(queue, internal)
    bind_exchange(channel, internal, source)
    channel.publish(source, "")
    assert len(channel.drain(queue)) == 1


def test_alternate_exchange_takes_what_has_no_route_and_only_that(
    channel: AmqpChannel, unique: Unique
) -> None:
    alternate = exchange_of(channel, unique, "fanout")
    exchange = exchange_of(channel, unique, "direct", **{"alternate-exchange": alternate})
    routed, unrouted = channel.declare().queue, channel.declare().queue
    channel.bind(routed, exchange, "known")
    channel.bind(unrouted, alternate)
    channel.publish(exchange, "known", b"known")
    channel.publish(exchange, "unknown", b"unknown")
    assert channel.drain(routed) == [b"known"]
    got = channel.get(unrouted)
    assert (got.body, got.method.exchange, got.method.routing_key) == (b"unknown", exchange, "unknown")
    assert channel.drain(unrouted) == []


def test_mandatory_message_that_the_alternate_exchange_routes_is_not_returned(
    channel: AmqpChannel, unique: Unique
) -> None:
    alternate = exchange_of(channel, unique, "fanout")
    exchange = exchange_of(channel, unique, "direct", **{"alternate-exchange": alternate})
    queue = channel.declare().queue
    channel.bind(queue, alternate)
    channel.publish(exchange, "unknown", mandatory=True)
    assert len(channel.drain(queue)) == 1


def test_loop_of_alternate_exchanges_ends_and_the_message_is_returned(
    channel: AmqpChannel, unique: Unique
) -> None:
    names = [unique() for _ in range(3)]
    for name, alternate in zip(names, names[1:] + names[:1], strict=True):
        channel.declare_exchange(name, arguments={"alternate-exchange": alternate})
    channel.publish(names[0], "unknown", mandatory=True)
    assert channel.expect_content(m.BasicReturn).method.exchange == names[0]


def test_alternate_exchange_that_does_not_exist_drops_the_message(
    channel: AmqpChannel, unique: Unique
) -> None:
    exchange = exchange_of(channel, unique, "direct", **{"alternate-exchange": unique()})
    channel.publish(exchange, "unknown", mandatory=True)
    channel.expect_content(m.BasicReturn)
