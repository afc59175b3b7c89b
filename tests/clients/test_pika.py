"""pika's blocking adapter, which most Python programs use: a message's life from publish to ack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

from tests.clients.conftest import LARGE_BODY, WAIT_SECONDS_MAX, serve_until
from tests.clients.pika_client import Inbox, connect, drain, hold, publish, ready_count
from tests.support.process import Address


@pytest.fixture
def connection(broker: Address) -> Iterator[BlockingConnection]:
    with connect(broker) as connection:
        yield connection


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def other(connection: BlockingConnection) -> BlockingChannel:
    """Another channel of the same connection."""
    return connection.channel()


@pytest.fixture
def queue(channel: BlockingChannel, name: str) -> str:
    channel.queue_declare(name, exclusive=True)
    return name


def test_server_names_a_queue_declared_without_a_name(channel: BlockingChannel) -> None:
    queues = {channel.queue_declare("", exclusive=True).method.queue for _ in range(3)}
    assert len(queues) == 3
    assert all(queue.startswith("amq.gen-") for queue in queues)


def test_empty_queue_name_means_the_queue_declared_last_on_the_channel(
    channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, b"found")
    assert channel.basic_get("", auto_ack=True)[2] == b"found"


def test_messages_come_in_the_order_of_their_publishing(channel: BlockingChannel, queue: str) -> None:
    bodies = [b"%d" % number for number in range(300)]
    publish(channel, queue, *bodies)
    inbox = Inbox(channel, queue, auto_ack=True)
    inbox.wait_for(len(bodies))
    assert inbox.bodies == bodies


def test_delivery_names_its_exchange_routing_key_and_consumer(channel: BlockingChannel, queue: str) -> None:
    channel.queue_bind(queue, "amq.topic", "stock.#")
    channel.basic_publish("amq.topic", f"stock.{queue}", b"")
    inbox = Inbox(channel, queue)
    inbox.wait_for(1)
    method = inbox.deliveries[0][0]
    assert (method.exchange, method.routing_key) == ("amq.topic", f"stock.{queue}")
    assert (method.consumer_tag, method.delivery_tag, method.redelivered) == (inbox.tag, 1, False)


def test_get_tells_how_many_messages_are_left(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, b"a", b"b", b"c")
    assert [channel.basic_get(queue)[0].message_count for _ in range(3)] == [2, 1, 0]


def test_get_from_an_empty_queue_gives_nothing(channel: BlockingChannel, queue: str) -> None:
    assert channel.basic_get(queue) == (None, None, None)


def test_declare_counts_ready_messages_and_consumers(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, b"a", b"b")
    channel.basic_get(queue)
    channel.basic_qos(prefetch_count=1)
    declared = channel.queue_declare(queue, exclusive=True).method
    assert (declared.message_count, declared.consumer_count) == (1, 0)
    Inbox(channel, queue)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1


def test_purge_removes_ready_messages_and_leaves_unacknowledged_ones(
    channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, b"held", b"purged", b"purged")
    held = channel.basic_get(queue)[0]
    assert channel.queue_purge(queue).method.message_count == 2
    channel.basic_nack(held.delivery_tag)
    assert drain(channel, queue) == [(b"held", True)]


def test_delete_tells_how_many_messages_went_with_the_queue(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, b"a", b"b")
    assert channel.queue_delete(queue).method.message_count == 2


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_deleting_what_is_not_there_is_no_error(channel: BlockingChannel, name: str, kind: str) -> None:
    delete: Callable[[str], Any] = {"queue": channel.queue_delete, "exchange": channel.exchange_delete}[kind]
    assert type(delete(name).method).__name__ == "DeleteOk"


def test_acknowledged_message_does_not_come_back(
    channel: BlockingChannel, other: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, b"done", b"open")
    other.basic_ack(other.basic_get(queue)[0].delivery_tag)
    other.basic_get(queue)
    other.close()
    assert drain(channel, queue) == [(b"open", True)]


def test_ack_multiple_covers_all_up_to_its_tag(
    channel: BlockingChannel, other: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, b"1", b"2", b"3", b"4")
    tags = hold(other, queue, 4)
    other.basic_ack(tags[2], multiple=True)
    other.close()
    assert drain(channel, queue) == [(b"4", True)]


def test_ack_multiple_of_tag_zero_covers_all_outstanding(
    channel: BlockingChannel, other: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, b"1", b"2", b"3")
    hold(other, queue, 2)
    other.basic_ack(0, multiple=True)
    other.close()
    assert drain(channel, queue) == [(b"3", False)]


def test_requeued_messages_come_back_at_their_places_and_are_marked_redelivered(
    channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, b"1", b"2", b"3", b"4")
    tags = hold(channel, queue, 3)
    channel.basic_reject(tags[1], requeue=True)
    channel.basic_nack(tags[0], requeue=True)
    assert drain(channel, queue) == [(b"1", True), (b"2", True), (b"4", False)]


def test_nack_multiple_requeues_all_up_to_its_tag_in_order(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, b"1", b"2", b"3")
    tags = hold(channel, queue, 3)
    channel.basic_nack(tags[1], multiple=True, requeue=True)
    assert drain(channel, queue) == [(b"1", True), (b"2", True)]


@pytest.mark.parametrize("refuse", ["basic_reject", "basic_nack"])
def test_message_refused_without_requeue_is_gone(channel: BlockingChannel, queue: str, refuse: str) -> None:
    publish(channel, queue, b"refused", b"next")
    getattr(channel, refuse)(channel.basic_get(queue)[0].delivery_tag, requeue=False)
    assert drain(channel, queue) == [(b"next", False)]


def test_closing_a_channel_requeues_what_it_held_at_the_original_place(
    channel: BlockingChannel, other: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, b"1", b"2", b"3")
    hold(other, queue, 2)
    other.close()
    assert drain(channel, queue) == [(b"1", True), (b"2", True), (b"3", False)]


def test_closing_a_connection_requeues_what_it_held(
    broker: Address, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, auto_delete=True)
    publish(channel, name, b"held", b"ready")
    with connect(broker) as other:
        other.channel().basic_get(name)
    inbox = Inbox(channel, name)
    inbox.wait_for(2)
    assert [(body, method.redelivered) for method, _, body in inbox.deliveries] == [
        (b"held", True),
        (b"ready", False),
    ]


def test_recover_with_requeue_delivers_again(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, b"1", b"2")
    hold(channel, queue, 2)
    channel.basic_recover(requeue=True)
    assert drain(channel, queue) == [(b"1", True), (b"2", True)]


def test_cancelled_consumer_gets_no_more_and_keeps_what_it_has(channel: BlockingChannel, queue: str) -> None:
    inbox = Inbox(channel, queue)
    publish(channel, queue, b"held")
    inbox.wait_for(1)
    channel.basic_cancel(inbox.tag)
    publish(channel, queue, b"stays")
    assert drain(channel, queue) == [(b"stays", False)]
    channel.basic_ack(inbox.deliveries[0][0].delivery_tag)
    assert inbox.bodies == [b"held"]
    assert ready_count(channel, queue) == 0


def test_prefetch_limits_what_a_consumer_holds(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, *[b"%d" % number for number in range(5)])
    channel.basic_qos(prefetch_count=2)
    inbox = Inbox(channel, queue)
    inbox.wait_for(2)
    assert ready_count(channel, queue) == 3
    channel.basic_ack(inbox.deliveries[0][0].delivery_tag)
    inbox.wait_for(3)
    assert ready_count(channel, queue) == 2


def test_global_prefetch_is_shared_by_all_consumers_of_a_channel(channel: BlockingChannel, name: str) -> None:
    queues = [channel.queue_declare(f"{name}-{number}", exclusive=True).method.queue for number in range(2)]
    channel.basic_qos(prefetch_count=3, global_qos=True)
    for queue in queues:
        publish(channel, queue, b"1", b"2")
    inboxes = [Inbox(channel, queue) for queue in queues]
    inboxes[0].wait_for(2)
    inboxes[1].wait_for(1)
    assert [ready_count(channel, queue) for queue in queues] == [0, 1]


def test_consumers_of_equal_priority_take_turns(channel: BlockingChannel, queue: str) -> None:
    inboxes = [Inbox(channel, queue, auto_ack=True) for _ in range(2)]
    publish(channel, queue, *[b"%d" % number for number in range(10)])
    for inbox in inboxes:
        inbox.wait_for(5)
    assert sorted(inboxes[0].bodies + inboxes[1].bodies) == [b"%d" % number for number in range(10)]


def test_consumer_of_higher_priority_is_served_first_until_its_prefetch_is_full(
    channel: BlockingChannel, queue: str
) -> None:
    channel.basic_qos(prefetch_count=2)
    low = Inbox(channel, queue, arguments={"x-priority": -1})
    high = Inbox(channel, queue, arguments={"x-priority": 10})
    publish(channel, queue, b"1", b"2", b"3")
    high.wait_for(2)
    low.wait_for(1)
    assert (high.bodies, low.bodies) == ([b"1", b"2"], [b"3"])


def test_consuming_generator_ends_when_the_queue_is_deleted(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, b"only")
    bodies = []
    for method, _, body in channel.consume(queue, inactivity_timeout=WAIT_SECONDS_MAX):
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        connection.channel().queue_delete(queue)
    assert bodies == [b"only"]


def test_start_consuming_runs_until_a_callback_stops_it(channel: BlockingChannel, queue: str) -> None:
    bodies = []

    def take(channel: BlockingChannel, method: Any, _properties: Any, body: bytes) -> None:
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        if body == b"last":
            channel.stop_consuming()

    channel.basic_consume(queue, take)
    publish(channel, queue, b"first", b"last")
    channel.start_consuming()
    assert bodies == [b"first", b"last"]


def test_mandatory_message_without_a_queue_is_returned_before_its_confirm(
    channel: BlockingChannel, name: str
) -> None:
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as unroutable:
        channel.basic_publish("amq.direct", name, b"back", BasicProperties(message_id="m1"), mandatory=True)
    [returned] = unroutable.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.direct", name)
    assert (returned.properties.message_id, returned.body) == ("m1", b"back")


def test_mandatory_message_is_returned_without_confirms_too(channel: BlockingChannel, name: str) -> None:
    returned: list[tuple[int, str, bytes]] = []
    channel.add_on_return_callback(
        lambda _, m, __, body: returned.append((m.reply_code, m.routing_key, body))
    )
    channel.basic_publish("", name, b"back", mandatory=True)
    serve_until(lambda: channel.connection.process_data_events(time_limit=1), lambda: len(returned) > 0)
    assert returned == [(312, name, b"back")]


def test_unroutable_message_that_is_not_mandatory_is_confirmed(channel: BlockingChannel, queue: str) -> None:
    channel.confirm_delivery()
    publish(channel, f"{queue}-missing", b"dropped")
    publish(channel, queue, b"kept")
    assert drain(channel, queue) == [(b"kept", False)]


@pytest.mark.parametrize("body", [b"", b"\x00", LARGE_BODY], ids=["empty", "one byte", "many frames"])
def test_body_comes_back_as_it_was(channel: BlockingChannel, queue: str, body: bytes) -> None:
    publish(channel, queue, body)
    assert channel.basic_get(queue, auto_ack=True)[2] == body


def test_all_properties_come_back_as_they_were(channel: BlockingChannel, queue: str) -> None:
    sent = BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers={"k": "v"},
        delivery_mode=2,
        priority=9,
        correlation_id="correlation",
        reply_to="reply",
        expiration="60000",
        message_id="message",
        timestamp=1_700_000_000,
        type="type",
        user_id="guest",
        app_id="app",
        cluster_id="cluster",
    )
    channel.basic_publish("", queue, b"", sent)
    assert channel.basic_get(queue, auto_ack=True)[1] == sent


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        None,
        -1,
        2**31 - 1,
        2**63 - 1,
        -(2**63),
        "żółw",
        b"\x00\xff",
        Decimal("-31.4159"),
        datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
        {"inner": {"deep": [1, {"x": None}]}},
        [],
        [1, "two", [True, None], {"four": 4}],
        {},
    ],
    ids=repr,
)
def test_header_value_comes_back_with_its_type(channel: BlockingChannel, queue: str, value: object) -> None:
    channel.basic_publish("", queue, b"", BasicProperties(headers={"key": value}))
    received = channel.basic_get(queue, auto_ack=True)[1].headers["key"]
    assert received == value
    assert isinstance(received, type(value))


def test_message_without_properties_comes_back_without_any(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, b"")
    assert channel.basic_get(queue, auto_ack=True)[1] == BasicProperties()
