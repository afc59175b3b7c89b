"""How messages get into our queues."""

from __future__ import annotations

import pika
import pytest

from tests.unit.moving.pair import PROPERTIES, Pair, bodies, channel_of, messages_in, uri_of
from warren.amqp.table import encode_name
from warren.broker.message import Message
from warren.moving.outlet import Outlet, Published, exchange_for


def message(body: bytes, *, exchange: str = "amq.topic", key: str = "a.b") -> Message:
    return Message(encode_name(exchange), encode_name(key), PROPERTIES, body, True)


def test_exchange_that_a_restarted_broker_has_forgotten_is_made_again(pair: Pair, queue: str) -> None:
    channel = channel_of(pair.here)
    with Outlet(uri_of(pair.here)) as outlet:
        assert outlet.publish([message(b"0")], queue) == Published(safe=1, rerouted=1, refusal="")
        channel.exchange_delete(exchange_for(queue))
        outlet.drop()
        assert outlet.publish([message(b"1")], queue).safe == 1
        outlet.close_way(queue)
    assert [got.body for got in messages_in(pair.here, queue)] == bodies(2)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.exchange_declare(exchange_for(queue), passive=True)
    channel.connection.close()


def test_exchange_is_deleted_though_the_connection_was_given_up(pair: Pair, queue: str) -> None:
    with Outlet(uri_of(pair.here)) as outlet:
        outlet.publish([message(b"0")], queue)
        outlet.drop()
        outlet.close_way(queue)
    channel = channel_of(pair.here)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.exchange_declare(exchange_for(queue), passive=True)
    channel.connection.close()


def test_exchange_that_is_not_needed_is_not_made(pair: Pair, queue: str) -> None:
    channel = channel_of(pair.here)
    with Outlet(uri_of(pair.here)) as outlet:
        assert outlet.publish([message(b"0", exchange="", key=queue)], queue) == Published(1, 0, "")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.exchange_declare(exchange_for(queue), passive=True)
    channel.connection.close()


def test_queue_that_is_gone_is_a_refusal(pair: Pair) -> None:
    with Outlet(uri_of(pair.here)) as outlet:
        done = outlet.publish([message(b"0", exchange="", key="absent")], "absent")
    assert (done.safe, done.refusal) == (0, "312 NO_ROUTE")
