"""Two real brokers between which the tests move messages."""

from __future__ import annotations

from typing import NamedTuple

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.process import BrokerProcess
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.client.uri import Uri, parse_uri
from warren.moving.outlet import publish_method
from warren.pipeline.consumer import ConsumingClient
from warren.pipeline.publisher import ConfirmingPublisher, OutgoingMessage, Unpublished

HEADERS: Table = {"x-death": [{"queue": "old", "count": 3}], "n": 1}
PROPERTIES = BasicProperties(
    content_type="text/plain",
    headers=HEADERS,
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="r",
    expiration="3600000",
    message_id="m",
    timestamp=1_700_000_000,
    type="t",
    app_id="a",
).encode()


class Pair(NamedTuple):
    """Two brokers: messages go from the first to the second."""

    there: BrokerProcess
    here: BrokerProcess


class Got(NamedTuple):
    exchange: str
    key: str
    properties: bytes
    body: bytes


def uri_of(broker: BrokerProcess) -> Uri:
    return parse_uri(broker.address.url())


def declare(broker: BrokerProcess, name: str, **arguments: object) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
        table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        connection.channel().queue_declare(name, durable=True, arguments=table)


def publish(
    broker: BrokerProcess,
    key: str,
    bodies: list[bytes],
    *,
    exchange: str = "",
    properties: bytes = PROPERTIES,
) -> None:
    def refused(failure: Unpublished) -> None:
        pytest.fail(str(failure))

    with ConfirmingPublisher(uri_of(broker), on_failure=refused) as publisher:
        for body in bodies:
            method = publish_method(exchange, key)
            publisher.publish(OutgoingMessage(method, properties, body, exchange, key, "m"))


def messages_in(broker: BrokerProcess, queue: str) -> list[Got]:
    """All messages of a queue, consumed."""
    client = ConsumingClient(uri_of(broker), [queue], count_max=10_000, bytes_max=1 << 30)
    while len(client.held) < client.waiting:
        client.gather(10)
    found = [each.message for each in client.first(client.waiting)]
    client.settle(len(found))
    client.close()
    return [Got(each.exchange_name, each.key, each.properties, each.body) for each in found]


def channel_of(broker: BrokerProcess) -> BlockingChannel:
    return pika.BlockingConnection(pika.URLParameters(broker.address.url())).channel()


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]
