"""Streams: filters, offsets that the broker remembers, and the ways on which messages get there."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import Connect, Unique
from tests.semantics.streams import (
    Publisher,
    declare_stream,
    deliveries,
    expect_nothing_more,
    leave,
    start,
    with_filter,
)
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, Value

TRACKED: Table = {"x-stream-automatic-offset-tracking": True}


@pytest.fixture
def stream(channel: AmqpChannel, unique: Unique) -> str:
    return declare_stream(channel, unique()).queue


@pytest.fixture
def publisher(client: AmqpClient) -> Publisher:
    return Publisher(client)


# --- filters ---

FILTERED = (
    BasicProperties(),
    with_filter("a"),
    with_filter("b"),
    with_filter(" a , b "),
    with_filter("b,c,a"),
    BasicProperties(headers={"x-stream-filter-value": 5}),
    with_filter(""),
    with_filter(" , "),
    BasicProperties(headers={"other": "a"}),
    with_filter("A"),
    with_filter("é"),
)
UNFILTERED = {0, 5, 6, 7, 8}


@pytest.mark.parametrize("match_unfiltered", [False, True])
@pytest.mark.parametrize(
    ("wanted", "matching"),
    [
        ("a", {1, 3, 4}),
        ("b", {2, 3, 4}),
        ("a,b", {3, 4}),
        (" b , a ,", {3, 4}),
        ("a,b,c", {4}),
        (["a"], {1, 3, 4}),
        (["a", "b"], {1, 2, 3, 4}),
        (["a,b", "é"], {3, 4, 10}),
        ("z", set()),
        (["z", "y"], set()),
    ],
    ids=repr,
)
def test_consumer_gets_what_its_filter_wants(
    channel: AmqpChannel,
    stream: str,
    publisher: Publisher,
    wanted: Value,
    matching: set[int],
    match_unfiltered: bool,
) -> None:
    for number, properties in enumerate(FILTERED):
        publisher.send(stream, b"%d" % number, properties)
    publisher.put(stream, b"end", properties=with_filter("a,b,c,z,é"))
    arguments: Table = {"x-stream-filter": wanted}
    start(channel, stream, arguments=arguments | {"x-stream-match-unfiltered": match_unfiltered})
    expected = [*sorted(matching | (UNFILTERED if match_unfiltered else set())), len(FILTERED)]
    assert [offset for offset, _ in deliveries(channel, len(expected))] == expected


def test_without_a_filter_all_comes(channel: AmqpChannel, stream: str, publisher: Publisher) -> None:
    publisher.put(stream, b"0", properties=with_filter("a"))
    publisher.put(stream, b"1")
    start(channel, stream, arguments={"x-stream-match-unfiltered": False})
    assert [offset for offset, _ in deliveries(channel, 2)] == [0, 1]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-stream-filter", 5),
        ("x-stream-filter", ""),
        ("x-stream-filter", " , "),
        ("x-stream-filter", []),
        ("x-stream-filter", ["a", ""]),
        ("x-stream-filter", ["a", 5]),
        ("x-stream-filter", {"a": "b"}),
        ("x-stream-filter", ["a"] * 257),
        ("x-stream-match-unfiltered", "true"),
        ("x-stream-match-unfiltered", 1),
        ("x-stream-automatic-offset-tracking", "yes"),
    ],
)
def test_arguments_of_consumers_that_make_no_sense_are_refused(
    channel: AmqpChannel, stream: str, argument: str, value: Value
) -> None:
    channel.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    channel.send(m.BasicConsume(queue=stream, consumer_tag="c", arguments={argument: value}))
    assert f"invalid arg '{argument}'" in channel.expect_close(406).reply_text


# --- offsets that the broker remembers ---


def take(channel: AmqpChannel, count: int) -> list[int]:
    """The numbers of so many deliveries, which stay unacked."""
    return [int(channel.expect_delivery().body) for _ in range(count)]


@pytest.fixture
def numbers(stream: str, publisher: Publisher) -> str:
    """A stream of ten."""
    publisher.put(stream, *(b"%d" % number for number in range(10)))
    return stream


def goes_on_at(connect: Connect, stream: str, tag: str = "me") -> int:
    channel = connect().channel()
    start(channel, stream, tag, arguments=TRACKED)
    (first,) = take(channel, 1)
    return first


def test_consumer_with_a_name_goes_on_behind_what_it_acked(
    connect: Connect, channel: AmqpChannel, numbers: str
) -> None:
    start(channel, numbers, "me", arguments=TRACKED)
    assert take(channel, 10) == list(range(10))
    channel.send(m.BasicAck(delivery_tag=4, multiple=True))
    leave(channel)
    assert goes_on_at(connect, numbers) == 4
    assert goes_on_at(connect, numbers, "another") == 0


def test_only_what_is_acked_without_a_gap_counts(
    connect: Connect, channel: AmqpChannel, numbers: str
) -> None:
    start(channel, numbers, "me", arguments=TRACKED)
    take(channel, 10)
    for tag in (3, 2, 5, 8):
        channel.send(m.BasicAck(delivery_tag=tag))
    expect_nothing_more(channel)
    assert goes_on_at(connect, numbers, "me") == 0
    channel.send(m.BasicAck(delivery_tag=1))
    expect_nothing_more(channel)
    assert goes_on_at(connect, numbers, "me") == 3
    channel.send(m.BasicAck(delivery_tag=4))
    expect_nothing_more(channel)
    assert goes_on_at(connect, numbers, "me") == 5


@pytest.mark.parametrize(
    ("settle", "goes_on"),
    [
        (m.BasicNack(delivery_tag=3, multiple=True, requeue=False), 3),
        (m.BasicReject(delivery_tag=1, requeue=False), 1),
        (m.BasicNack(delivery_tag=3, multiple=True, requeue=True), 3),
        (m.BasicReject(delivery_tag=1, requeue=True), 1),
    ],
    ids=["nack", "reject", "nack and requeue", "reject and requeue"],
)
def test_nack_and_reject_are_taken_as_an_ack(
    connect: Connect, channel: AmqpChannel, numbers: str, settle: m.Method, goes_on: int
) -> None:
    start(channel, numbers, "me", prefetch=5, arguments=TRACKED)
    take(channel, 5)
    channel.send(settle)
    assert take(channel, goes_on) == list(range(5, 5 + goes_on))
    leave(channel)
    assert goes_on_at(connect, numbers) == goes_on


def test_what_was_out_when_the_channel_closed_comes_again(
    connect: Connect, channel: AmqpChannel, numbers: str
) -> None:
    start(channel, numbers, "me", prefetch=3, arguments=TRACKED)
    assert take(channel, 3) == [0, 1, 2]
    channel.send(m.BasicAck(delivery_tag=1))
    channel.send(m.BasicAck(delivery_tag=3))
    assert take(channel, 2) == [3, 4]
    leave(channel)
    assert goes_on_at(connect, numbers) == 1


def test_acks_after_the_cancel_count(connect: Connect, channel: AmqpChannel, numbers: str) -> None:
    start(channel, numbers, "me", prefetch=3, arguments=TRACKED)
    take(channel, 3)
    channel.call(m.BasicCancel(consumer_tag="me"), m.BasicCancelOk)
    channel.send(m.BasicAck(delivery_tag=2, multiple=True))
    leave(channel)
    assert goes_on_at(connect, numbers) == 2


def test_remembered_offset_counts_more_than_the_argument(
    connect: Connect, channel: AmqpChannel, numbers: str
) -> None:
    start(channel, numbers, "me", prefetch=3, arguments=TRACKED)
    list(deliveries(channel, 3))
    leave(channel)
    again = connect().channel()
    start(again, numbers, "me", arguments=TRACKED | {"x-stream-offset": 8})
    assert take(again, 1) == [3]


def test_without_tracking_nothing_is_remembered(connect: Connect, channel: AmqpChannel, numbers: str) -> None:
    start(channel, numbers, "me", arguments={"x-stream-automatic-offset-tracking": False})
    assert len(list(deliveries(channel, 10))) == 10
    leave(channel)
    assert goes_on_at(connect, numbers) == 0


def test_filtered_consumer_is_remembered_by_what_it_got(
    connect: Connect, channel: AmqpChannel, stream: str, publisher: Publisher
) -> None:
    for number in range(10):
        publisher.put(stream, b"%d" % number, properties=with_filter("even" if number % 2 == 0 else "odd"))
    start(channel, stream, "me", arguments=TRACKED | {"x-stream-filter": "odd"})
    assert [offset for offset, _ in deliveries(channel, 3)] == [1, 3, 5]
    leave(channel)
    assert goes_on_at(connect, stream) == 6


def test_name_must_be_the_consumers_own(channel: AmqpChannel, stream: str) -> None:
    channel.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    channel.send(m.BasicConsume(queue=stream, arguments=TRACKED))
    assert "needs a tag of its own" in channel.expect_close(406).reply_text


# --- ways to a stream ---


@pytest.mark.parametrize(
    ("kind", "binding", "arguments"),
    [
        ("direct", "a.b", {}),
        ("fanout", "", {}),
        ("topic", "a.#", {}),
        ("headers", "", {"h": "1", "x-match": "all"}),
        ("x-consistent-hash", "1", {}),
        ("x-delayed-message", "a.b", {}),
    ],
)
def test_every_exchange_routes_to_streams_beside_queues(
    channel: AmqpChannel,
    unique: Unique,
    stream: str,
    publisher: Publisher,
    kind: str,
    binding: str,
    arguments: Table,
) -> None:
    exchange, queue = unique(), channel.declare().queue
    delayed: Table = {"x-delayed-type": "direct"} if kind == "x-delayed-message" else {}
    channel.declare_exchange(exchange, kind, arguments=delayed)
    channel.bind(stream, exchange, binding, arguments)
    if kind != "x-consistent-hash":
        channel.bind(queue, exchange, binding, arguments)
    publisher.put("a.b", b"0", b"1", properties=BasicProperties(headers={"h": "1"}), exchange=exchange)
    start(channel, stream)
    assert list(deliveries(channel, 2)) == [(0, b"0"), (1, b"1")]
    assert channel.drain(queue) == ([] if kind == "x-consistent-hash" else [b"0", b"1"])


def test_mandatory_message_for_a_stream_is_not_returned(
    channel: AmqpChannel, stream: str, publisher: Publisher
) -> None:
    publisher.channel.publish("", stream, b"0", mandatory=True)
    assert publisher.channel.expect(m.BasicAck).delivery_tag == 1
    publisher.channel.publish("", stream + "-not", b"1", mandatory=True)
    assert publisher.channel.expect_content(m.BasicReturn).method.reply_code == 312


def test_transaction_is_in_the_stream_when_it_is_committed(
    channel: AmqpChannel, second: AmqpChannel, stream: str
) -> None:
    start(channel, stream, arguments={"x-stream-offset": "next"})
    second.call(m.TxSelect(), m.TxSelectOk)
    second.publish("", stream, b"rolled back")
    second.call(m.TxRollback(), m.TxRollbackOk)
    second.publish("", stream, b"0")
    second.publish("", stream, b"1")
    assert declare_stream(channel, stream).message_count == 0
    second.call(m.TxCommit(), m.TxCommitOk)
    assert declare_stream(second, stream).message_count == 2
    assert list(deliveries(channel, 2)) == [(0, b"0"), (1, b"1")]


def test_acks_in_a_transaction_count_when_it_is_committed(
    connect: Connect, channel: AmqpChannel, numbers: str
) -> None:
    channel.call(m.TxSelect(), m.TxSelectOk)
    start(channel, numbers, "me", arguments=TRACKED)
    take(channel, 10)
    channel.send(m.BasicAck(delivery_tag=2, multiple=True))
    channel.call(m.TxCommit(), m.TxCommitOk)
    channel.send(m.BasicAck(delivery_tag=9, multiple=True))
    channel.call(m.TxRollback(), m.TxRollbackOk)
    assert goes_on_at(connect, numbers) == 2


def test_dead_letters_go_to_a_stream(channel: AmqpChannel, stream: str) -> None:
    arguments: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": stream}
    queue = channel.declare(arguments=arguments).queue
    channel.publish("", queue, b"dead")
    tag = channel.get(queue, no_ack=False).method.delivery_tag
    channel.send(m.BasicNack(delivery_tag=tag, requeue=False))
    start(channel, stream)
    delivery = channel.expect_delivery()
    headers = delivery.properties.headers
    assert delivery.body == b"dead"
    assert headers is not None
    assert headers["x-stream-offset"] == 0
    deaths = headers["x-death"]
    assert isinstance(deaths, list)
    assert isinstance(deaths[0], dict)
    assert (deaths[0]["queue"], deaths[0]["reason"]) == (queue, "rejected")


def test_expired_messages_stay_in_a_stream(channel: AmqpChannel, stream: str, publisher: Publisher) -> None:
    publisher.put(stream, b"0", properties=BasicProperties(expiration="0"))
    assert declare_stream(channel, stream).message_count == 1
    start(channel, stream)
    assert list(deliveries(channel, 1)) == [(0, b"0")]
