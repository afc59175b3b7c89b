"""Streams: what may be declared and asked of them, where consumers begin, and what deliveries look like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.semantics.conftest import Connect, Unique
from tests.semantics.streams import (
    FIRST,
    STREAM,
    Publisher,
    declare_stream,
    deliveries,
    expect_nothing_more,
    start,
)
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, Timestamp, Value

BODIES = [b"%d" % number for number in range(5)]


@pytest.fixture
def stream(channel: AmqpChannel, unique: Unique) -> str:
    return declare_stream(channel, unique()).queue


@pytest.fixture
def publisher(client: AmqpClient) -> Publisher:
    return Publisher(client)


# --- declaring ---


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
    ],
    ids=["not durable", "exclusive", "auto-delete"],
)
def test_stream_is_there_to_stay(
    channel: AmqpChannel, unique: Unique, flags: dict[str, bool], named: str
) -> None:
    channel.send(m.QueueDeclare(queue=unique(), arguments=STREAM, **flags))
    assert f"invalid property '{named}'" in channel.expect_close(406).reply_text


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 1000},
        {"x-expires": 1000},
        {"x-overflow": "reject-publish"},
        {"x-dead-letter-exchange": "amq.direct"},
        {"x-max-priority": 5},
        {"x-single-active-consumer": True},
        {"x-delivery-limit": 5},
        {"x-group-header": "group"},
        {"x-message-deduplication": True},
        {"x-queue-mode": "lazy"},
        {"x-queue-version": 2},
        {"x-queue-master-locator": "random"},
        {"x-quorum-initial-group-size": 1},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_arguments_that_are_not_for_streams_are_refused(
    channel: AmqpChannel, unique: Unique, arguments: Table
) -> None:
    queue = unique()
    channel.send(m.QueueDeclare(queue=queue, durable=True, arguments=STREAM | arguments))
    assert channel.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - invalid arg '{next(iter(arguments))}' for queue '{queue}' in vhost '/' "
        "of queue type rabbit_stream_queue"
    )


@pytest.mark.parametrize("argument", ["x-priority", "x-browse", "x-selector", "x-cancel-on-ha-failover"])
def test_arguments_of_other_consumers_are_not_for_streams(
    channel: AmqpChannel, stream: str, argument: str
) -> None:
    channel.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    channel.send(m.BasicConsume(queue=stream, arguments={argument: 1}))
    assert channel.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{stream}' in vhost '/' "
        "of queue type rabbit_stream_queue"
    )


@pytest.mark.parametrize("argument", ["x-stream-offset", "x-stream-filter"])
def test_arguments_of_consumers_of_streams_are_not_for_other_queues(
    channel: AmqpChannel, argument: str
) -> None:
    queue = channel.declare().queue
    channel.send(m.BasicConsume(queue=queue, arguments={argument: "first"}))
    assert channel.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{queue}' in vhost '/' "
        "of queue type rabbit_classic_queue"
    )


@pytest.mark.parametrize("argument", [{"x-max-age": "7D"}, {"x-stream-max-segment-size-bytes": 1000}])
@pytest.mark.parametrize("kind", [{}, {"x-queue-type": "classic"}, {"x-queue-type": "quorum"}])
def test_arguments_of_streams_are_not_for_other_queues(
    channel: AmqpChannel, unique: Unique, argument: Table, kind: Table
) -> None:
    channel.send(m.QueueDeclare(queue=unique(), durable=True, arguments=kind | argument))
    assert f"invalid arg '{next(iter(argument))}'" in channel.expect_close(406).reply_text


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-max-age", 7),
        ("x-max-age", "7"),
        ("x-max-age", "7w"),
        ("x-max-age", "-7D"),
        ("x-max-age", ""),
        ("x-max-age", "0s"),
        ("x-queue-leader-locator", "nonsense"),
        ("x-queue-leader-locator", 5),
        ("x-initial-cluster-size", 0),
        ("x-stream-max-segment-size-bytes", 0),
        ("x-stream-max-segment-size-bytes", 3_000_000_001),
        ("x-stream-max-segment-size-bytes", "1000"),
        ("x-max-length-bytes", -1),
        ("x-queue-type", "streams"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    channel: AmqpChannel, unique: Unique, argument: str, value: Value
) -> None:
    channel.send(m.QueueDeclare(queue=unique(), durable=True, arguments=STREAM | {argument: value}))
    assert f"invalid arg '{argument}'" in channel.expect_close(406).reply_text


def test_the_same_stream_can_be_declared_again(channel: AmqpChannel, unique: Unique) -> None:
    arguments: Table = {
        "x-max-age": "100Y",
        "x-max-length-bytes": 10**12,
        "x-stream-max-segment-size-bytes": 10**6,
    }
    name = unique()
    assert declare_stream(channel, name, arguments) == declare_stream(channel, name, arguments)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"x-max-age": "8D"},
        {"x-max-age": "7D", "x-max-length-bytes": 1},
        {"x-max-age": "168h"},
        {"x-max-age": "7D", "x-queue-leader-locator": "random"},
        {"x-max-age": "7D", "x-initial-cluster-size": 3},
    ],
    ids=["without", "another age", "more", "the same in other words", "a locator", "a size"],
)
def test_redeclaration_must_have_the_same_arguments(
    channel: AmqpChannel, unique: Unique, other: Table
) -> None:
    name = unique()
    declare_stream(channel, name, {"x-max-age": "7D"})
    channel.send(m.QueueDeclare(queue=name, durable=True, arguments=STREAM | other))
    assert "inequivalent arg" in channel.expect_close(406).reply_text


@pytest.mark.parametrize("wanted", [{}, {"x-queue-type": "classic"}, {"x-queue-type": "quorum"}])
def test_stream_is_not_declared_again_as_another_queue(
    channel: AmqpChannel, stream: str, wanted: Table
) -> None:
    channel.send(m.QueueDeclare(queue=stream, durable=True, arguments=wanted))
    assert "inequivalent arg 'x-queue-type'" in channel.expect_close(406).reply_text


def test_declare_ok_counts_messages_that_stay_and_consumers(
    channel: AmqpChannel, stream: str, publisher: Publisher
) -> None:
    assert declare_stream(channel, stream) == m.QueueDeclareOk(
        queue=stream, message_count=0, consumer_count=0
    )
    publisher.put(stream, *BODIES)
    start(channel, stream)
    assert len(list(deliveries(channel, 5))) == 5
    assert declare_stream(channel, stream) == m.QueueDeclareOk(
        queue=stream, message_count=5, consumer_count=1
    )


# --- what streams do not do ---


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (m.BasicConsume(no_ack=True, arguments={}), "automatic acknowledgement not supported"),
        (m.BasicGet(), "basic.get not supported"),
        (m.QueuePurge(), "queue.purge not supported"),
    ],
    ids=["no_ack", "get", "purge"],
)
def test_what_streams_do_not_do_ends_the_connection_with_540(
    channel: AmqpChannel, stream: str, method: m.BasicConsume | m.BasicGet | m.QueuePurge, text: str
) -> None:
    channel.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    channel.send(replace(method, queue=stream))
    close = channel.client.expect_close(540)
    assert close.reply_text == f"NOT_IMPLEMENTED - {text} by stream queues queue '{stream}' in vhost '/'"


def test_global_qos_ends_the_connection_with_540(channel: AmqpChannel, stream: str) -> None:
    channel.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    channel.call(m.BasicQos(prefetch_count=1, global_=True), m.BasicQosOk)
    channel.send(m.BasicConsume(queue=stream, arguments={}))
    assert channel.client.expect_close(540).reply_text == (
        f"NOT_IMPLEMENTED - queue '{stream}' in vhost '/' does not support global qos"
    )


def test_consumer_without_prefetch_is_refused(channel: AmqpChannel, stream: str) -> None:
    channel.send(m.BasicConsume(queue=stream, arguments={}))
    close = channel.expect_close(406)
    assert close.reply_text == (
        f"PRECONDITION_FAILED - consumer prefetch count is not set for 'queue '{stream}' in vhost '/''"
    )


# --- where consumers begin ---


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        ("first", 0),
        ("last", 4),
        (0, 0),
        (3, 3),
        (4, 4),
        (Timestamp(0), 0),
        ("1h", 0),
        ("100Y", 0),
        ("999999999999Y", 0),
    ],
)
def test_consumer_begins_where_it_says(
    channel: AmqpChannel, stream: str, publisher: Publisher, offset: Value, first: int
) -> None:
    publisher.put(stream, *BODIES)
    start(channel, stream, arguments={"x-stream-offset": offset})
    expected = list(enumerate(BODIES))[first:]
    assert list(deliveries(channel, len(expected))) == expected


@pytest.mark.parametrize(
    "offset",
    ["next", None, Timestamp(2**34), Timestamp(2**64 - 1)],
    ids=["next", "nothing", "far", "farthest"],
)
def test_consumer_that_begins_at_the_end_gets_what_comes(
    channel: AmqpChannel, stream: str, publisher: Publisher, offset: Value
) -> None:
    publisher.put(stream, b"before")
    channel.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    channel.consume(stream, arguments={} if offset is None else {"x-stream-offset": offset})
    publisher.put(stream, b"after")
    assert list(deliveries(channel, 1)) == [(1, b"after")]


def test_offset_beyond_the_end_is_waited_for(channel: AmqpChannel, stream: str, publisher: Publisher) -> None:
    start(channel, stream, arguments={"x-stream-offset": 3})
    publisher.put(stream, *BODIES)
    assert list(deliveries(channel, 2)) == [(3, b"3"), (4, b"4")]


@pytest.mark.parametrize(
    "offset",
    ["firs", "", "0s", "0D", -1, 1.5, True, None, [1], {"a": 1}, "7", "7d", "1h ", bytearray(b"first")],
    ids=repr,
)
def test_offset_that_makes_no_sense_is_refused(channel: AmqpChannel, stream: str, offset: Value) -> None:
    channel.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    channel.send(m.BasicConsume(queue=stream, arguments={"x-stream-offset": offset}))
    assert "invalid arg 'x-stream-offset'" in channel.expect_close(406).reply_text


def test_last_of_an_empty_stream_is_its_beginning(
    channel: AmqpChannel, stream: str, publisher: Publisher
) -> None:
    start(channel, stream, arguments={"x-stream-offset": "last"})
    publisher.put(stream, b"0", b"1")
    assert list(deliveries(channel, 2)) == [(0, b"0"), (1, b"1")]


# --- deliveries ---

OFFSET_FIELD = "\x0fx-stream-offsetl\0\0\0\0\0\0\0\0"


@pytest.mark.parametrize(
    "properties",
    [
        BasicProperties(),
        BasicProperties(headers={}),
        BasicProperties(headers={"a": "b", "x-stream-filter-value": "c"}),
        BasicProperties(headers={"x-stream-offset": 17}),
        BasicProperties(headers={"x-stream-offset": OFFSET_FIELD, "a": {"x-stream-offset": 17}}),
        BasicProperties(
            content_type="text/plain",
            content_encoding="utf-8",
            headers={"a": OFFSET_FIELD},
            delivery_mode=1,
            correlation_id=OFFSET_FIELD,
            reply_to="me",
            message_id="1",
            timestamp=5,
            app_id=OFFSET_FIELD,
        ),
        BasicProperties(expiration="0", priority=9, user_id="guest"),
    ],
    ids=["none", "no headers", "other headers", "the same header", "nested", "all", "what queues act on"],
)
def test_delivery_has_its_offset_beside_what_the_publisher_set(
    channel: AmqpChannel, stream: str, publisher: Publisher, properties: BasicProperties
) -> None:
    publisher.put(stream, *BODIES[:3], properties=properties)
    start(channel, stream, "mine")
    for number in range(3):
        delivery = channel.expect_delivery()
        assert delivery.method == m.BasicDeliver(
            consumer_tag="mine",
            delivery_tag=number + 1,
            redelivered=False,
            exchange="",
            routing_key=stream,
        )
        headers = (properties.headers or {}) | {"x-stream-offset": number}
        expected = {name: getattr(properties, name) for name in BasicProperties.__slots__}
        found = {name: getattr(delivery.properties, name) for name in BasicProperties.__slots__}
        assert found == expected | {"headers": headers}
        assert delivery.body == BODIES[number]


def test_consumers_are_independent_of_each_other(
    channel: AmqpChannel, second: AmqpChannel, other: AmqpChannel, stream: str, publisher: Publisher
) -> None:
    publisher.put(stream, *BODIES)
    for consumer, offset in ((channel, 0), (second, 2), (other, 4)):
        start(consumer, stream, arguments={"x-stream-offset": offset})
    for consumer, offset in ((other, 4), (channel, 0), (second, 2)):
        assert [n for n, _ in deliveries(consumer, 5 - offset)] == list(range(offset, 5))


def test_large_messages_come_whole(channel: AmqpChannel, stream: str, publisher: Publisher) -> None:
    large = bytes(range(256)) * 4096
    publisher.put(stream, large, b"", large)
    start(channel, stream, prefetch=1)
    assert [body for _, body in deliveries(channel, 3)] == [large, b"", large]


# --- prefetch is credit ---


def test_prefetch_is_how_many_are_out(channel: AmqpChannel, stream: str, publisher: Publisher) -> None:
    publisher.put(stream, *BODIES)
    start(channel, stream, prefetch=2)
    assert [channel.expect_delivery().body for _ in range(2)] == [b"0", b"1"]
    expect_nothing_more(channel)
    channel.send(m.BasicAck(delivery_tag=2, multiple=True))
    assert [channel.expect_delivery().body for _ in range(2)] == [b"2", b"3"]
    expect_nothing_more(channel)


@pytest.mark.parametrize(
    "settle",
    [
        m.BasicAck(delivery_tag=1),
        m.BasicNack(delivery_tag=1, requeue=True),
        m.BasicNack(delivery_tag=1, requeue=False),
        m.BasicReject(delivery_tag=1, requeue=True),
        m.BasicReject(delivery_tag=1, requeue=False),
    ],
    ids=["ack", "nack and requeue", "nack", "reject and requeue", "reject"],
)
def test_whatever_becomes_of_a_message_the_next_one_comes(
    channel: AmqpChannel, stream: str, publisher: Publisher, settle: m.Method
) -> None:
    publisher.put(stream, b"0", b"1")
    start(channel, stream, prefetch=1)
    assert channel.expect_delivery().body == b"0"
    channel.send(settle)
    assert channel.expect_delivery().body == b"1"


def test_ack_of_an_unknown_tag_is_406(channel: AmqpChannel, stream: str) -> None:
    start(channel, stream)
    channel.send(m.BasicAck(delivery_tag=1))
    assert "unknown delivery tag 1" in channel.expect_close(406).reply_text


# --- exclusive consumers, and the end of them ---


def test_exclusive_consumer_is_alone(channel: AmqpChannel, second: AmqpChannel, stream: str) -> None:
    channel.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    channel.consume(stream, "mine", exclusive=True)
    second.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    second.send(m.BasicConsume(queue=stream, arguments={}))
    assert "in exclusive use" in second.expect_close(403).reply_text
    channel.call(m.BasicCancel(consumer_tag="mine"), m.BasicCancelOk)
    second.call(m.ChannelOpen(), m.ChannelOpenOk)
    start(second, stream)


def test_exclusive_consumer_does_not_come_to_others(
    channel: AmqpChannel, second: AmqpChannel, stream: str
) -> None:
    start(channel, stream)
    second.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    second.send(m.BasicConsume(queue=stream, exclusive=True, arguments=FIRST))
    assert "in exclusive use" in second.expect_close(403).reply_text


def test_cancelled_consumer_gets_no_more_and_can_ack_what_it_has(
    channel: AmqpChannel, stream: str, publisher: Publisher
) -> None:
    publisher.put(stream, b"0", b"1")
    tag = start(channel, stream, prefetch=1)
    channel.expect_delivery()
    channel.call(m.BasicCancel(consumer_tag=tag), m.BasicCancelOk)
    channel.send(m.BasicAck(delivery_tag=1))
    expect_nothing_more(channel)
    assert declare_stream(channel, stream) == m.QueueDeclareOk(
        queue=stream, message_count=2, consumer_count=0
    )


def test_consumers_of_a_deleted_stream_are_told(
    channel: AmqpChannel, second: AmqpChannel, stream: str, publisher: Publisher
) -> None:
    publisher.put(stream, *BODIES)
    start(channel, stream, "mine", prefetch=1)
    channel.expect_delivery()
    assert second.call(m.QueueDelete(queue=stream), m.QueueDeleteOk).message_count == 5
    assert channel.expect(m.BasicCancel).consumer_tag == "mine"
    channel.send(m.BasicAck(delivery_tag=1))
    assert declare_stream(channel, stream).message_count == 0


@pytest.mark.parametrize("condition", ["if_unused", "if_empty"])
def test_delete_of_a_stream_in_use_is_refused(
    channel: AmqpChannel, second: AmqpChannel, stream: str, publisher: Publisher, condition: str
) -> None:
    publisher.put(stream, b"0")
    start(channel, stream)
    second.send(m.QueueDelete(queue=stream, **{condition: True}))
    second.expect_close(406)


def test_stream_declared_anew_begins_anew(
    connect: Connect, channel: AmqpChannel, stream: str, publisher: Publisher
) -> None:
    publisher.put(stream, *BODIES)
    channel.call(m.QueueDelete(queue=stream), m.QueueDeleteOk)
    declare_stream(channel, stream)
    publisher.put(stream, b"new")
    start(channel, stream)
    assert list(deliveries(channel, 1)) == [(0, b"new")]
