"""Publishing: what comes through unchanged, returns, confirms, CC and BCC."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.semantics.conftest import Unique
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Float32, Int8, Int16, Int64, Timestamp


def test_properties_and_body_arrive_as_they_were_published(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    properties = BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={
            "string": "käse",
            "bytes": bytearray(b"\xff\0"),
            "flag": True,
            "int8": Int8(-5),
            "int16": Int16(-300),
            "int32": 70000,
            "int64": Int64(1 << 40),
            "float": Float32(0.5),
            "double": 0.1,
            "decimal": Decimal("1.25"),
            "time": Timestamp(1700000000),
            "nothing": None,
            "list": [1, "two", {"three": [3]}],
            "table": {"inner": {"deep": 1}},
        },
        delivery_mode=2,
        priority=7,
        correlation_id="correlation",
        reply_to="reply",
        expiration="600000",
        message_id="id",
        timestamp=1700000001,
        type="type",
        user_id="guest",
        app_id="app",
        cluster_id="cluster",
    )
    channel.publish("", queue, b"\0\xce\xff body", properties)
    got = channel.get(queue)
    assert got.properties == properties
    assert got.body == b"\0\xce\xff body"


def test_message_without_properties_arrives_without(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue, b"body")
    assert channel.get(queue).properties == BasicProperties()


def test_message_that_matches_several_bindings_reaches_each_queue_once(
    channel: AmqpChannel, unique: Unique
) -> None:
    exchange, first, second = unique(), channel.declare().queue, channel.declare().queue
    channel.declare_exchange(exchange, "topic")
    for pattern in ("a.b", "a.*", "a.#", "#", "*.b"):
        channel.bind(first, exchange, pattern)
        channel.bind(second, exchange, pattern)
    channel.publish(exchange, "a.b")
    assert (len(channel.drain(first)), len(channel.drain(second))) == (1, 1)


def test_binding_made_twice_is_one_binding(channel: AmqpChannel, unique: Unique) -> None:
    exchange, queue = unique(), channel.declare().queue
    channel.declare_exchange(exchange)
    channel.bind(queue, exchange, "key")
    channel.bind(queue, exchange, "key")
    channel.call(
        m.QueueUnbind(queue=queue, exchange=exchange, routing_key="key", arguments={}), m.QueueUnbindOk
    )
    channel.publish(exchange, "key")
    assert channel.drain(queue) == []


def test_messages_of_one_channel_keep_their_order(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    bodies = [b"%d" % number for number in range(200)]
    for body in bodies:
        channel.publish("", queue, body)
    assert [channel.get(queue).body for _ in bodies] == bodies


def test_mandatory_message_without_a_route_is_returned_whole(channel: AmqpChannel) -> None:
    properties = BasicProperties(message_id="id", headers={"a": 1})
    channel.publish("amq.direct", "nowhere", b"body" * 50_000, properties, mandatory=True)
    returned = channel.expect_content(m.BasicReturn)
    assert returned.method == m.BasicReturn(
        reply_code=312, reply_text="NO_ROUTE", exchange="amq.direct", routing_key="nowhere"
    )
    assert (returned.properties, returned.body) == (properties, b"body" * 50_000)


def test_message_without_a_route_that_is_not_mandatory_is_dropped(channel: AmqpChannel) -> None:
    channel.publish("amq.direct", "nowhere", b"body")
    channel.declare()


def test_mandatory_message_with_a_route_is_not_returned(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue, mandatory=True)
    assert len(channel.drain(queue)) == 1


def test_confirm_acks_each_publish_with_its_number_from_1(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue)
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for number in (1, 2, 3):
        channel.publish("", queue)
        assert channel.expect(m.BasicAck).delivery_tag == number


def test_confirm_select_twice_keeps_counting(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    for number in (1, 2):
        channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        channel.publish("", queue)
        assert channel.expect(m.BasicAck).delivery_tag == number


def test_confirm_counts_per_channel(channel: AmqpChannel, second: AmqpChannel) -> None:
    queue = channel.declare().queue
    for publisher in (channel, second):
        publisher.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        publisher.publish("", queue)
        assert publisher.expect(m.BasicAck).delivery_tag == 1


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
def test_confirms_cover_every_publish_once_and_in_order(
    channel: AmqpChannel, unique: Unique, persistent: bool
) -> None:
    queue = channel.declare(unique(), exclusive=False, durable=persistent).queue
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    properties = BasicProperties(delivery_mode=2 if persistent else 1)
    for _ in range(500):
        channel.publish("", queue, b"body", properties)
    confirmed: set[int] = set()
    while len(confirmed) < 500:
        ack = channel.expect(m.BasicAck)
        covered = set(range(1, ack.delivery_tag + 1)) if ack.multiple else {ack.delivery_tag}
        assert covered - confirmed, f"{ack} confirms nothing new"
        assert ack.multiple or ack.delivery_tag not in confirmed
        confirmed |= covered
    assert confirmed == set(range(1, 501))
    assert len(channel.drain(queue)) == 500


def test_confirmed_message_is_in_all_its_queues(
    channel: AmqpChannel, second: AmqpChannel, unique: Unique
) -> None:
    exchange, queues = unique(), [channel.declare().queue for _ in range(3)]
    channel.declare_exchange(exchange, "fanout")
    for queue in queues:
        channel.bind(queue, exchange)
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    channel.publish(exchange, "", b"body")
    channel.expect(m.BasicAck)
    assert [second.drain(queue) for queue in queues] == [[b"body"]] * 3


def test_message_without_a_route_is_confirmed(channel: AmqpChannel) -> None:
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    channel.publish("amq.direct", "nowhere")
    assert channel.expect(m.BasicAck).delivery_tag == 1


def test_return_comes_before_the_confirm_of_the_same_message(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    channel.publish("", queue)
    assert channel.expect(m.BasicAck).delivery_tag == 1
    channel.publish("amq.direct", "nowhere", b"body", mandatory=True)
    assert channel.expect_content(m.BasicReturn).body == b"body"
    assert channel.expect(m.BasicAck).delivery_tag == 2


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_cc_and_bcc_add_routing_keys(channel: AmqpChannel, header: str) -> None:
    main, first, second = (channel.declare().queue for _ in range(3))
    channel.publish("", main, b"body", BasicProperties(headers={header: [first, second], "kept": 1}))
    for queue in (main, first, second):
        assert channel.get(queue).method.routing_key == main
        assert channel.drain(queue) == []


def test_cc_that_names_a_queue_twice_delivers_once(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue, b"", BasicProperties(headers={"CC": [queue, queue], "BCC": [queue]}))
    assert len(channel.drain(queue)) == 1


def test_cc_routes_a_mandatory_message_whose_key_has_no_route(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", "nowhere", b"", BasicProperties(headers={"CC": [queue]}), mandatory=True)
    assert len(channel.drain(queue)) == 1


def test_bcc_is_removed_before_delivery_and_cc_stays(channel: AmqpChannel) -> None:
    main, copy, blind = (channel.declare().queue for _ in range(3))
    headers = BasicProperties(headers={"CC": [copy], "BCC": [blind], "kept": 1})
    channel.publish("", main, b"", headers)
    for queue in (main, copy, blind):
        assert channel.get(queue).properties.headers == {"CC": [copy], "kept": 1}
