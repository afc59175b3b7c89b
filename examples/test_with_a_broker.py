"""Tests against a real broker, with pytest: the fixture `warren_broker` comes with the package.

    pip install warrenmq pika pytest
    pytest examples/test_with_a_broker.py

No broker has to run and nothing has to be configured: one starts in a thread of the tests when the first
test asks for it, on a free port. Each test gets a vhost of its own, which is deleted after the test with
all that is in it, so that the same names can be used in every test. pytest prints `3 passed`.
"""

import json

import pika
import pytest


class OrderSender:
    """The code that is tested: it sends orders to the exchange `orders`."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.exchange_declare("orders", "topic", durable=True)
        self.channel.confirm_delivery()

    def send(self, country: str, order: dict[str, object]) -> None:
        body = json.dumps(order).encode()
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        self.channel.basic_publish("orders", f"order.{country}", body, properties, mandatory=True)


@pytest.fixture
def sender(warren_broker):
    sender = OrderSender(warren_broker.url)
    yield sender
    sender.connection.close()


@pytest.fixture
def warehouse(warren_broker, sender):
    """A channel with the queue `warehouse`, which gets the orders from Poland."""
    with pika.BlockingConnection(pika.URLParameters(warren_broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("warehouse")
        channel.queue_bind("warehouse", "orders", "order.pl")
        yield channel


def test_order_arrives_as_json(sender, warehouse):
    sender.send("pl", {"item": "book", "count": 2})
    _, properties, body = warehouse.basic_get("warehouse", auto_ack=True)
    assert properties.content_type == "application/json"
    assert json.loads(body) == {"item": "book", "count": 2}


def test_each_test_begins_with_empty_queues(sender, warehouse):
    assert warehouse.basic_get("warehouse", auto_ack=True) == (None, None, None)


@pytest.mark.usefixtures("warehouse")
def test_order_that_nobody_takes_is_an_error(sender):
    with pytest.raises(pika.exceptions.UnroutableError):
        sender.send("se", {"item": "book", "count": 1})
