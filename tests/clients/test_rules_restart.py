"""The rules of queues over the end of the broker, by SIGTERM and by SIGKILL, as pika sees them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pika import BasicProperties, DeliveryMode
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, NackError

from tests.clients.conftest import serve_until
from tests.clients.pika_client import Inbox, connect, drain, ready_count
from tests.support.process import BrokerProcess

ENDS = (signal.SIGTERM, signal.SIGKILL)
SOON_MS = 60
HOUR_MS = 3_600_000


class Lives:
    """Brokers on one data directory, one after the other."""

    def __init__(self, data_dir: Path, ends_by: signal.Signals) -> None:
        self.data_dir = data_dir
        self.ends_by = ends_by

    @contextmanager
    def life(self) -> Iterator[BlockingChannel]:
        """A confirming channel to a broker that ends at the end of the block, while the channel is open."""
        with BrokerProcess(self.data_dir) as process:
            with connect(process.address) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                yield channel
                process.process.send_signal(self.ends_by)
                with pytest.raises(AMQPConnectionError):
                    serve_until(lambda: connection.process_data_events(time_limit=1), lambda: False)
            process.process.wait()
        process.check_log()


@pytest.fixture(params=ENDS, ids=lambda end: end.name)
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    return Lives(tmp_path / "data", request.param)


def declare(channel: BlockingChannel, queue: str, **arguments: Any) -> None:
    """A durable queue; `message_ttl` is the argument `x-message-ttl`."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    channel.queue_declare(queue, durable=True, arguments=named)


def put(channel: BlockingChannel, key: str, body: bytes, exchange: str = "", **properties: Any) -> None:
    """A persistent message, which is safe then."""
    properties["delivery_mode"] = DeliveryMode.Persistent
    channel.basic_publish(exchange, key, body, BasicProperties(**properties))


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    return [body for body, _ in drain(channel, queue)]


def test_priorities_keep_their_order(lives: Lives) -> None:
    priorities = [3, 0, 10, 5, 0, 10, 3]
    with lives.life() as channel:
        declare(channel, "q", max_priority=10)
        for number, priority in enumerate(priorities):
            put(channel, "q", b"%d" % number, priority=priority)
        assert channel.basic_get("q")[2] == b"2"
    with lives.life() as channel:
        put(channel, "q", b"7", priority=4)
        method, _, body = channel.basic_get("q", auto_ack=True)
        assert (body, method.redelivered) == (b"2", True)
        assert bodies(channel, "q") == [b"5", b"3", b"7", b"0", b"6", b"1", b"4"]


def test_time_that_the_broker_is_down_counts_for_messages_that_expire(lives: Lives) -> None:
    """Those that were to expire meanwhile have expired, wherever they are; the others stay."""
    with lives.life() as channel:
        declare(channel, "dead")
        declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
        put(channel, "q", b"stays")
        put(channel, "q", b"expires", expiration="400")
        put(channel, "q", b"stays long", expiration=str(HOUR_MS))
    with lives.life() as channel:
        inbox = Inbox(channel, "dead", auto_ack=True)
        inbox.wait_for(1)
        assert inbox.bodies == [b"expires"]
        assert inbox.deliveries[0][1].headers["x-death"][0]["original-expiration"] == "400"
        assert bodies(channel, "q") == [b"stays", b"stays long"]


def test_time_limit_of_a_queue_counts_from_the_publishing(lives: Lives) -> None:
    with lives.life() as channel:
        declare(channel, "dead")
        declare(channel, "q", message_ttl=400, dead_letter_exchange="", dead_letter_routing_key="dead")
        put(channel, "q", b"1")
        put(channel, "q", b"2")
    with lives.life() as channel:
        inbox = Inbox(channel, "dead", auto_ack=True)
        inbox.wait_for(2)
        assert inbox.bodies == [b"1", b"2"]
        assert ready_count(channel, "q") == 0


def test_delayed_messages_come_when_they_are_due(lives: Lives) -> None:
    """Those that were due meanwhile come at the start, in order of their times."""
    with lives.life() as channel:
        arguments = {"x-delayed-type": "direct"}
        channel.exchange_declare("x", "x-delayed-message", durable=True, arguments=arguments)
        declare(channel, "q")
        channel.queue_bind("q", "x", "key")
        for delay in (3000, 800, 400, HOUR_MS):
            put(channel, "key", b"%d" % delay, "x", headers={"x-delay": delay})
    with lives.life() as channel:
        inbox = Inbox(channel, "q", auto_ack=True)
        inbox.wait_for(3)
        assert inbox.bodies == [b"400", b"800", b"3000"]
        assert inbox.deliveries[0][1].headers == {"x-delay": -400}


def test_what_was_seen_is_dropped_after_the_restart_too(lives: Lives) -> None:
    with lives.life() as channel:
        once = {"x-message-deduplication": True, "x-cache-size": 100}
        channel.exchange_declare("x", "fanout", durable=True, arguments=once)
        declare(channel, "of exchange")
        channel.queue_bind("of exchange", "x")
        declare(channel, "q", message_deduplication=True, cache_size=100)
        for number in (1, 2, 1):
            put_once(channel, number)
        assert bodies(channel, "q") == [b"1", b"2"]
    with lives.life() as channel:
        for number in (2, 3, 1):
            put_once(channel, number)
        assert bodies(channel, "q") == [b"3"]
        assert bodies(channel, "of exchange") == [b"1", b"2", b"3"]


def put_once(channel: BlockingChannel, number: int) -> None:
    headers = {"x-deduplication-header": f"order-{number}"}
    put(channel, "q", b"%d" % number, headers=headers)
    put(channel, "", b"%d" % number, "x", headers=headers)


def test_groups_go_on_in_order_and_to_one_consumer_each(lives: Lives) -> None:
    with lives.life() as channel:
        declare(channel, "q", group_header="group")
        for number in range(12):
            put(channel, "q", b"%d" % number, headers={"group": "abc"[number % 3]})
        channel.basic_qos(prefetch_count=2)
        inbox = Inbox(channel, "q")
        inbox.wait_for(2)
        assert inbox.bodies == [b"0", b"1"]
        channel.basic_ack(inbox.deliveries[1][0].delivery_tag)
        inbox.wait_for(3)
        assert inbox.bodies[2] == b"2"
    with lives.life() as channel:
        channel.basic_qos(prefetch_count=1)
        inboxes = [Inbox(channel, "q") for _ in range(3)]
        got: dict[str, list[bytes]] = {}

        def work() -> None:
            channel.connection.process_data_events(time_limit=0.01)
            for inbox in inboxes:
                for method, properties, body in inbox.deliveries:
                    got.setdefault(properties.headers["group"], []).append(body)
                    channel.basic_ack(method.delivery_tag)
                inbox.deliveries.clear()

        serve_until(work, lambda: sum(map(len, got.values())) == 11)
        assert got == {
            "a": [b"0", b"3", b"6", b"9"],
            "b": [b"4", b"7", b"10"],
            "c": [b"2", b"5", b"8", b"11"],
        }


def test_limits_and_counts_of_deliveries_hold_on(lives: Lives) -> None:
    limits = {"max_length": 2, "overflow": "reject-publish", "delivery_limit": 2}
    with lives.life() as channel:
        declare(channel, "dead")
        declare(channel, "q", **limits, dead_letter_exchange="", dead_letter_routing_key="dead")
        put(channel, "q", b"1")
        put(channel, "q", b"2")
        channel.basic_nack(channel.basic_get("q")[0].delivery_tag, requeue=True)
    with lives.life() as channel:
        with pytest.raises(NackError):
            put(channel, "q", b"3")
        method, properties, body = channel.basic_get("q")
        assert (body, properties.headers["x-delivery-count"]) == (b"1", 1)
        channel.basic_nack(method.delivery_tag, requeue=True)
        channel.basic_nack(channel.basic_get("q")[0].delivery_tag, requeue=True)
        assert bodies(channel, "dead") == [b"1"]
        assert bodies(channel, "q") == [b"2"]


def test_dead_letter_is_in_one_queue_or_the_other(lives: Lives) -> None:
    """The broker ends while it moves them: none is lost. One may be in both, if it ended in between."""
    count = 300
    with lives.life() as channel:
        declare(channel, "dead")
        declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
        for number in range(count):
            put(channel, "q", b"%d" % number)
        inbox = Inbox(channel, "q")
        inbox.wait_for(count)
        channel.basic_nack(0, multiple=True, requeue=False)
        channel.connection.process_data_events()
    with lives.life() as channel:
        moved, left = bodies(channel, "dead"), bodies(channel, "q")
        assert {int(body) for body in moved + left} == set(range(count))
        assert len(set(moved)) == len(moved)
