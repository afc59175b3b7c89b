"""Short words for what the tests of streams do over and over."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table

STREAM: Table = {"x-queue-type": "stream"}
FIRST: Table = {"x-stream-offset": "first"}


def declare_stream(channel: AmqpChannel, stream: str, arguments: Table | None = None) -> m.QueueDeclareOk:
    return channel.declare(stream, exclusive=False, durable=True, arguments=STREAM | (arguments or {}))


def with_filter(values: str) -> BasicProperties:
    return BasicProperties(headers={"x-stream-filter-value": values})


class Publisher:
    """A channel of its own on which all that is published is confirmed, so that consumers can have it."""

    def __init__(self, client: AmqpClient, number: int = 9) -> None:
        self.channel = client.channel(number)
        self.channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        self.published = self.confirmed = 0

    def send(
        self, stream: str, body: bytes, properties: BasicProperties | None = None, *, exchange: str = ""
    ) -> None:
        """Without waiting: the next that is put is confirmed after it."""
        self.channel.publish(exchange, stream, body, properties)
        self.published += 1

    def put(
        self, stream: str, *bodies: bytes, properties: BasicProperties | None = None, exchange: str = ""
    ) -> None:
        for body in bodies:
            self.send(stream, body, properties, exchange=exchange)
        while self.confirmed < self.published:
            self.confirmed = self.channel.expect(m.BasicAck).delivery_tag


def start(
    channel: AmqpChannel, stream: str, tag: str = "", *, prefetch: int = 100, arguments: Table | None = None
) -> str:
    """A consumer, from the first message on unless it says otherwise."""
    channel.call(m.BasicQos(prefetch_count=prefetch), m.BasicQosOk)
    return channel.consume(stream, tag, arguments=FIRST | (arguments or {}))


def deliveries(channel: AmqpChannel, count: int) -> Iterator[tuple[int, bytes]]:
    """Offset and body of so many, each acked."""
    for _ in range(count):
        delivery = channel.expect_delivery()
        channel.send(m.BasicAck(delivery_tag=delivery.method.delivery_tag))
        assert delivery.properties.headers is not None
        offset = delivery.properties.headers["x-stream-offset"]
        assert isinstance(offset, int)
        yield offset, delivery.body


def expect_nothing_more(channel: AmqpChannel) -> None:
    """Nothing was delivered before the broker answered."""
    channel.call(m.BasicQos(prefetch_count=100), m.BasicQosOk)


def leave(channel: AmqpChannel) -> None:
    """Close it, whatever is on its way."""
    channel.send(m.ChannelClose(reply_code=200))
    while not channel.client.read_frame(channel.number).is_a(m.ChannelCloseOk):
        pass
