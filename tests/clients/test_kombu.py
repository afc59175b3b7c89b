"""Kombu over py-amqp, what Celery and OpenStack talk through: producers, consumers, pools, serializers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal
from typing import Any

import kombu.common
import kombu.mixins
import kombu.pools
import pytest
from amqp.exceptions import (  # type: ignore[import-untyped]  # py-amqp has no types
    AccessRefused,
    ConsumerCancelled,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)

from tests.clients.conftest import CAPABILITIES, LARGE_BODY, WAIT_SECONDS_MAX, serve_until
from tests.support.process import Address

# Typed in part only, which mypy would report at each call.
library: Any = kombu


def connect(broker: Address, **options: Any) -> Any:
    """Not yet connected: kombu does that when it must."""
    settings = {"hostname": broker.host, "port": broker.port, "userid": "guest", "password": "guest"}
    return library.Connection(**{**settings, "connect_timeout": WAIT_SECONDS_MAX, **options})


@pytest.fixture
def connection(broker: Address) -> Iterator[Any]:
    with connect(broker) as connection:
        yield connection


@pytest.fixture
def queue(connection: Any, name: str) -> Any:
    """A direct exchange and a queue bound to it, both gone with the connection."""
    exchange = library.Exchange(name, type="direct", durable=False, auto_delete=True)
    queue = library.Queue(name, exchange, routing_key="key", durable=False, exclusive=True)
    bound = queue.bind(connection.default_channel)
    bound.declare()
    return bound


@pytest.fixture
def producer(connection: Any, queue: Any) -> Any:
    return connection.Producer(exchange=queue.exchange, routing_key="key")


class Inbox:
    """A consumer on a channel of its own that keeps what it gets."""

    def __init__(self, connection: Any, queue: Any, *, prefetch_count: int = 0, **options: Any) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.consumer = connection.Consumer(
            [queue],
            channel=connection.channel(),
            prefetch_count=prefetch_count or None,
            on_message=self.messages.append,
            **options,
        )
        self.consumer.consume()

    @property
    def payloads(self) -> list[Any]:
        return [message.payload for message in self.messages]

    def wait_for(self, count: int) -> None:
        serve_until(
            lambda: self.connection.drain_events(timeout=WAIT_SECONDS_MAX),
            lambda: len(self.messages) >= count,
        )


def ready_count(queue: Any) -> int:
    count: int = queue.queue_declare(passive=True).message_count
    return count


def test_server_properties_list_the_capabilities_clients_look_for(connection: Any) -> None:
    connection.connect()
    assert connection.connection.server_properties["capabilities"] == CAPABILITIES


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_payload_comes_back_through_its_serializer(
    connection: Any, queue: Any, producer: Any, serializer: str
) -> None:
    payload = {"text": "żółw", "list": [1, 2.5, None, True]}
    producer.publish(payload, serializer=serializer)
    inbox = Inbox(connection, queue, accept=[serializer])
    inbox.wait_for(1)
    assert inbox.payloads == [payload]


def test_compressed_large_payload_comes_back(connection: Any, queue: Any, producer: Any) -> None:
    payload = LARGE_BODY.decode("latin-1")
    producer.publish(payload, compression="zlib")
    inbox = Inbox(connection, queue)
    inbox.wait_for(1)
    assert inbox.payloads == [payload]


def test_uncompressed_large_payload_comes_back(connection: Any, queue: Any, producer: Any) -> None:
    producer.publish(LARGE_BODY, serializer="raw")
    message = queue.get(no_ack=True, accept=["application/data"])
    assert message.body == LARGE_BODY


def test_header_values_come_back_as_they_were(queue: Any, producer: Any) -> None:
    headers = {
        "double": 3.141592653589793,
        "tiny": 5e-324,
        "int": -(2**31),
        "long": 2**62,
        "true": True,
        "false": False,
        "none": None,
        "text": "żółw",
        "decimal": Decimal("3.25"),
        "timestamp": datetime(2024, 2, 29, 12, 30, 15),  # noqa: DTZ001 py-amqp reads times without a zone
        "table": {"deep": {"deeper": [1, {"deepest": None}]}},
        "array": ["a", 1, 2.5, [True], {}],
    }
    producer.publish("", headers=headers)
    assert queue.get(no_ack=True).headers == headers


def test_properties_come_back_as_they_were(queue: Any, producer: Any) -> None:
    properties = {
        "priority": 5,
        "correlation_id": "correlation",
        "reply_to": "reply",
        "message_id": "message",
        "timestamp": 1_700_000_000,
        "type": "type",
        "user_id": "guest",
        "app_id": "app",
        "cluster_id": "cluster",
        "delivery_mode": 1,
    }
    producer.publish("", **properties)
    received = queue.get(no_ack=True).properties
    assert {key: received[key] for key in properties} == properties


def test_requeued_message_comes_back_redelivered(queue: Any, producer: Any) -> None:
    producer.publish("again")
    queue.get().requeue()
    message = queue.get()
    message.ack()
    assert (message.payload, message.delivery_info["redelivered"]) == ("again", True)


def test_rejected_message_is_gone(queue: Any, producer: Any) -> None:
    producer.publish("gone")
    queue.get().reject()
    assert queue.get() is None


def test_prefetch_limits_what_a_consumer_holds(connection: Any, queue: Any, producer: Any) -> None:
    for number in range(5):
        producer.publish(number)
    inbox = Inbox(connection, queue, prefetch_count=2)
    inbox.wait_for(2)
    assert ready_count(queue) == 3
    inbox.messages[0].ack()
    inbox.wait_for(3)
    assert inbox.payloads == [0, 1, 2]


def test_purge_tells_how_many_messages_it_removed(queue: Any, producer: Any) -> None:
    for number in range(3):
        producer.publish(number)
    assert (queue.purge(), ready_count(queue)) == (3, 0)


def test_confirmed_publish_is_in_its_queue_when_it_returns(broker: Address, name: str) -> None:
    with (
        connect(broker, transport_options={"confirm_publish": True}) as publishing,
        connect(broker) as reading,
    ):
        simple = reading.SimpleBuffer(name)
        publishing.Producer().publish("there", routing_key=name, exchange=name, delivery_mode="transient")
        assert ready_count(simple.queue) == 1
        simple.queue.delete()


def test_mandatory_message_without_a_queue_is_returned(connection: Any, queue: Any) -> None:
    returned: list[tuple[Any, ...]] = []
    producer = connection.Producer(exchange=queue.exchange, on_return=lambda *event: returned.append(event))
    producer.publish("back", routing_key="nobody", mandatory=True)
    serve_until(lambda: connection.drain_events(timeout=WAIT_SECONDS_MAX), lambda: len(returned) > 0)
    [(error, exchange, routing_key, message)] = returned
    assert (error.reply_code, exchange, routing_key) == (312, queue.exchange.name, "nobody")
    assert message.body == "back"


def test_simple_queue_works_as_a_queue(connection: Any, name: str) -> None:
    with connection.SimpleBuffer(name) as simple:
        for number in range(3):
            simple.put(number)
        assert [simple.get(timeout=WAIT_SECONDS_MAX).payload for _ in range(3)] == [0, 1, 2]
        with pytest.raises(simple.Empty):
            simple.get_nowait()


def test_broadcast_reaches_every_listener(connection: Any, name: str) -> None:
    listeners = [Inbox(connection, library.common.Broadcast(name)) for _ in range(3)]
    exchange = library.Exchange(name, type="fanout")
    connection.Producer(exchange=exchange).publish("all")
    for listener in listeners:
        listener.wait_for(1)
    exchange.bind(connection.default_channel).delete()
    assert [listener.payloads for listener in listeners] == [["all"]] * 3


def test_topic_pattern_of_a_queue_is_honoured(connection: Any, name: str) -> None:
    exchange = library.Exchange(name, type="topic", durable=False, auto_delete=True)
    queue = library.Queue(name, exchange, routing_key="stock.*.usd", exclusive=True)
    inbox = Inbox(connection, queue, no_ack=True)
    producer = connection.Producer(exchange=exchange)
    for key in ("stock.eur", "stock.acme.usd", "stock.acme.eur", "stock.init.usd"):
        producer.publish(key, routing_key=key)
    inbox.wait_for(2)
    assert inbox.payloads == ["stock.acme.usd", "stock.init.usd"]


def test_exchange_bound_to_an_exchange_routes_on(connection: Any, queue: Any, name: str) -> None:
    source = library.Exchange(f"{name}-source", type="fanout", durable=False, auto_delete=True)
    bound = source.bind(connection.default_channel)
    bound.declare()
    queue.exchange.bind_to(bound, routing_key="any")
    connection.Producer(exchange=bound).publish("through", routing_key="key")
    assert queue.get(no_ack=True).payload == "through"


def test_consumer_arguments_set_its_priority(connection: Any, queue: Any, producer: Any) -> None:
    low = Inbox(connection, queue, no_ack=True)
    preferred = library.Queue(queue.name, queue.exchange, exclusive=True, durable=False)
    preferred.consumer_arguments = {"x-priority": 5}
    high = Inbox(connection, preferred, no_ack=True)
    for number in range(4):
        producer.publish(number)
    high.wait_for(4)
    assert (high.payloads, low.payloads) == ([0, 1, 2, 3], [])


def test_consumer_is_told_when_its_queue_is_deleted(broker: Address, connection: Any, name: str) -> None:
    queue = library.Queue(name, durable=False, auto_delete=True)
    inbox = Inbox(connection, queue)
    with connect(broker) as other:
        queue.bind(other.default_channel).delete()
    with pytest.raises(ConsumerCancelled):
        connection.drain_events(timeout=WAIT_SECONDS_MAX)
    assert inbox.messages == []


def test_heartbeats_keep_an_idle_connection_alive(broker: Address) -> None:
    with connect(broker, heartbeat=1) as connection:
        connection.connect()
        transport = connection.connection
        assert transport.heartbeat == 1
        before = transport.bytes_recv

        def idle() -> None:
            try:
                connection.drain_events(timeout=0.2)
            except TimeoutError:
                connection.heartbeat_check()

        serve_until(idle, lambda: transport.bytes_recv >= before + 3)
        assert connection.connected


def test_pools_hand_out_connections_and_producers_that_work(broker: Address, name: str) -> None:
    pool = library.pools.Connections(limit=2)[connect(broker)]
    producers = library.pools.Producers(limit=2)[connect(broker)]
    with pool.acquire(block=True) as reading, producers.acquire(block=True) as producer:
        queue = library.Queue(name, auto_delete=True, durable=False)
        inbox = Inbox(reading, queue, no_ack=True)
        producer.publish("pooled", routing_key=name, retry=True)
        inbox.wait_for(1)
        assert inbox.payloads == ["pooled"]
    pool.force_close_all()
    producers.force_close_all()
    library.pools.reset()  # the connections of the producers


class Doubler(kombu.mixins.ConsumerProducerMixin):
    """A server as kombu's users write it: answers one request with twice its payload, and stops."""

    def __init__(self, connection: Any, queue: Any) -> None:
        self.connection = connection
        self.queue = queue

    def get_consumers(self, consumer_class: Any, _channel: Any) -> list[Any]:
        return [consumer_class([self.queue], on_message=self.answer)]

    def answer(self, message: Any) -> None:
        reply_to = message.properties["reply_to"]
        correlation_id = message.properties["correlation_id"]
        self.producer.publish(message.payload * 2, routing_key=reply_to, correlation_id=correlation_id)
        message.ack()
        self.should_stop = True


def test_request_is_answered_through_direct_reply_to(broker: Address, connection: Any, name: str) -> None:
    requests = library.Queue(name, durable=False, auto_delete=True)
    requests.bind(connection.default_channel).queue_declare()
    replies: list[Any] = []
    reply_queue = library.Queue("amq.rabbitmq.reply-to", no_declare=True)
    with (
        connect(broker) as serving,
        ThreadPoolExecutor(1) as thread,
        connection.Consumer([reply_queue], no_ack=True, on_message=replies.append) as consumer,
    ):
        done = thread.submit(Doubler(serving, requests).run)
        connection.Producer(channel=consumer.channel).publish(
            21, routing_key=name, reply_to=reply_queue.name, correlation_id="42"
        )
        serve_until(lambda: connection.drain_events(timeout=WAIT_SECONDS_MAX), lambda: len(replies) > 0)
        done.result(WAIT_SECONDS_MAX)
    assert [(reply.payload, reply.properties["correlation_id"]) for reply in replies] == [(42, "42")]


@pytest.mark.parametrize(
    ("error", "settings"),
    [
        (AccessRefused, {"password": "wrong"}),
        (NotAllowed, {"virtual_host": "no such vhost"}),
    ],
)
def test_refused_connection_says_why(
    broker: Address, error: type[Exception], settings: dict[str, str]
) -> None:
    with connect(broker, **settings) as connection, pytest.raises(error):
        connection.connect()


def test_missing_queue_is_a_channel_error_and_the_connection_goes_on(
    connection: Any, queue: Any, name: str
) -> None:
    missing = library.Queue(f"{name}-missing")
    with pytest.raises(NotFound) as refused:
        missing.bind(connection.channel()).queue_declare(passive=True)
    assert (refused.value.reply_code, refused.value.method_name) == (404, "Queue.declare")
    assert isinstance(refused.value, connection.channel_errors)
    assert ready_count(queue) == 0


def test_inequivalent_declare_is_a_failed_precondition(connection: Any, queue: Any) -> None:
    other = library.Exchange(queue.exchange.name, type="fanout", durable=False, auto_delete=True)
    with pytest.raises(PreconditionFailed):
        other.bind(connection.channel()).declare()


def test_exclusive_queue_is_locked_for_other_connections(broker: Address, queue: Any) -> None:
    with connect(broker) as stranger, pytest.raises(ResourceLocked):
        queue.bind(stranger.channel()).purge()
