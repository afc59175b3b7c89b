"""Publishing with confirms: against a real broker, and against a scripted one that does what is rare."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.support.frames import HEADER, encode_frame, encode_header, method_frame
from tests.support.process import Address, BrokerProcess
from tests.unit.pipeline.script import ScriptedBroker
from warren.amqp.methods import (
    BasicAck,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
)
from warren.amqp.properties import BasicProperties
from warren.client.uri import parse_uri
from warren.pipeline import publisher as module
from warren.pipeline.publisher import ConfirmingPublisher, OutgoingMessage, PublishError, Unpublished

NO_ROUTE = "312 NO_ROUTE"


@pytest.fixture
def queue(broker: Address) -> Iterator[str]:
    name = f"publisher-{uuid.uuid4()}"
    with pika.BlockingConnection(pika.URLParameters(broker.url())) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        yield name
        channel.queue_delete(name)


def message(number: int, key: str, body: bytes = b"") -> OutgoingMessage:
    properties = BasicProperties(message_id=f"m{number}").encode()
    method = BasicPublish(routing_key=key, mandatory=True).encode()
    return OutgoingMessage(method, properties, body or b"%d" % number, "", key, f"m{number}")


def publish(
    uri: str, messages: list[OutgoingMessage], *, window: int = 1000
) -> tuple[ConfirmingPublisher, list[Unpublished]]:
    failures: list[Unpublished] = []
    with ConfirmingPublisher(parse_uri(uri), on_failure=failures.append, window=window) as publisher:
        for each in messages:
            publisher.publish(each)
    return publisher, failures


def no_failure(failure: Unpublished) -> None:
    pytest.fail(str(failure))


def consume(broker: Address, queue: str) -> list[tuple[str, bytes]]:
    with pika.BlockingConnection(pika.URLParameters(broker.url())) as connection:
        channel = connection.channel()
        taken = []
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            taken.append((got[1].message_id, got[2]))
        return taken


@pytest.mark.parametrize("window", [1, 7, 1000])
def test_all_messages_arrive_in_order_and_are_confirmed(broker: Address, queue: str, window: int) -> None:
    publisher, failures = publish(broker.url(), [message(i, queue) for i in range(500)], window=window)

    assert (publisher.sent, publisher.confirmed, failures) == (500, 500, [])
    assert consume(broker, queue) == [(f"m{i}", b"%d" % i) for i in range(500)]


def test_body_larger_than_a_frame_arrives_whole(broker: Address, queue: str) -> None:
    body = bytes(range(256)) * 2000
    publish(broker.url(), [message(1, queue, body)])

    assert consume(broker, queue) == [("m1", body)]


def test_message_that_no_queue_takes_is_reported_and_the_others_are_confirmed(
    broker: Address, queue: str
) -> None:
    keys = ["nowhere" if i in {3, 250} else queue for i in range(300)]
    publisher, failures = publish(broker.url(), [message(i, key) for i, key in enumerate(keys)])

    assert publisher.confirmed == 298
    assert [(failure.message.message_id, failure.reason) for failure in failures] == [
        ("m3", NO_ROUTE),
        ("m250", NO_ROUTE),
    ]


def test_message_that_a_full_queue_refuses_is_reported(broker: Address) -> None:
    name = f"publisher-{uuid.uuid4()}"
    with pika.BlockingConnection(pika.URLParameters(broker.url())) as connection:
        channel = connection.channel()
        channel.queue_declare(name, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
        publisher, failures = publish(broker.url(), [message(i, name) for i in range(5)])
        channel.queue_delete(name)

    assert publisher.confirmed == 2
    assert [failure.message.message_id for failure in failures] == ["m2", "m3", "m4"]


def test_exchange_that_is_missing_ends_it_with_what_the_broker_said(broker: Address) -> None:
    method = BasicPublish(exchange="missing", routing_key="k").encode()
    with pytest.raises(PublishError, match=r"404 NOT_FOUND.*0 of the 1 messages") as caught:
        publish(broker.url(), [message(1, "k")._replace(method=method)])
    assert (caught.value.sent, caught.value.confirmed) == (1, 0)


def test_broker_that_dies_is_an_error_that_says_what_was_confirmed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
            connection.channel().queue_declare("q")
        publisher = ConfirmingPublisher(parse_uri(broker.address.url()), on_failure=no_failure, window=1)
        publisher.publish(message(1, "q"))
        publisher.publish(message(2, "q"))
        broker.kill()
        with pytest.raises(PublishError, match="1 of the 2 messages sent") as caught, publisher:
            publisher.finish()
    assert caught.value.confirmed == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"user": "nobody"}, "403 ACCESS_REFUSED"),
        ({"vhost": "missing"}, "530 NOT_ALLOWED"),
        ({"port": "1"}, "cannot connect to 127.0.0.1:1: Connection refused"),
    ],
)
def test_broker_that_lets_nobody_in_is_one_line_that_says_why(
    broker: Address, change: dict[str, str], text: str
) -> None:
    parts = {"user": "guest", "port": str(broker.port), "vhost": "%2F"} | change
    with pytest.raises(PublishError) as caught:
        publish("amqp://{user}:guest@127.0.0.1:{port}/{vhost}".format(**parts), [])
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def script() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as made:
        yield made


def publish_to(
    script: ScriptedBroker, count: int, *, window: int = 1000
) -> tuple[ConfirmingPublisher, list[Unpublished]]:
    uri = f"amqp://127.0.0.1:{script.uri.port}"
    return publish(uri, [message(i, "k") for i in range(1, count + 1)], window=window)


def part(script: ScriptedBroker) -> None:
    script.expect(ConnectionClose)
    script.send(ConnectionCloseOk(), channel=0)


def test_no_more_than_the_window_is_ever_unconfirmed(script: ScriptedBroker) -> None:
    done = script.run(lambda: publish_to(script, 7, window=3))
    script.log_in()
    script.expect_publishes(3)
    assert not script.has_more(within_s=0.1)
    script.send(BasicAck(delivery_tag=1))
    script.expect_publishes(1)
    assert not script.has_more(within_s=0.1)
    script.send(BasicAck(delivery_tag=4, multiple=True))
    script.expect_publishes(3)
    script.send(BasicAck(delivery_tag=7, multiple=True))
    part(script)
    assert done.result()[0].confirmed == 7


def test_no_message_follows_while_those_in_flight_have_too_many_bytes(
    script: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IN_FLIGHT_BYTES_MAX", 10)
    sizes = [6, 6, 20, 1]
    messages = [message(number, "k", bytes(size)) for number, size in enumerate(sizes, 1)]
    done = script.run(lambda: publish(f"amqp://127.0.0.1:{script.uri.port}", messages))
    script.log_in()
    script.expect_publishes(2)
    assert not script.has_more(within_s=0.1)
    script.send(BasicAck(delivery_tag=1))
    script.expect_publishes(1)
    assert not script.has_more(within_s=0.1)
    script.send(BasicNack(delivery_tag=3))
    script.expect_publishes(1)
    script.send(BasicAck(delivery_tag=4, multiple=True))
    part(script)
    publisher, failures = done.result()
    assert (publisher.confirmed, [failure.message.message_id for failure in failures]) == (3, ["m3"])


def test_confirms_may_come_in_any_order_and_each_counts_once(script: ScriptedBroker) -> None:
    done = script.run(lambda: publish_to(script, 6))
    script.log_in()
    script.expect_publishes(6)
    script.send(BasicAck(delivery_tag=5))
    script.send(BasicAck(delivery_tag=2))
    script.send(BasicNack(delivery_tag=3))
    script.send(BasicAck(delivery_tag=4, multiple=True))
    script.send(BasicNack(delivery_tag=6, multiple=True))
    part(script)
    publisher, failures = done.result()
    assert publisher.confirmed == 4
    assert [failure.message.message_id for failure in failures] == ["m3", "m6"]


def test_returned_message_is_known_by_id_and_key_though_others_with_its_id_are_in_flight(
    script: ScriptedBroker,
) -> None:
    same = [message(1, key) for key in "abbc"]
    done = script.run(lambda: publish(f"amqp://127.0.0.1:{script.uri.port}", same))
    script.log_in()
    script.expect_publishes(4)
    header = encode_frame(HEADER, 1, encode_header(0, BasicProperties(message_id="m1")))
    for key in "bbc":
        returned = BasicReturn(reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key=key)
        script.send_raw(method_frame(1, returned) + header)
    script.send(BasicAck(delivery_tag=4, multiple=True))
    part(script)
    publisher, failures = done.result()
    assert publisher.confirmed == 1
    assert [failure.message.routing_key for failure in failures] == ["b", "b", "c"]


def test_blocked_connection_sends_nothing_until_it_is_unblocked(script: ScriptedBroker) -> None:
    done = script.run(lambda: publish_to(script, 3, window=1))
    script.log_in()
    script.expect_publishes(1)
    script.send(ConnectionBlocked(reason="memory"), channel=0)
    script.send(BasicAck(delivery_tag=1))
    assert not script.has_more(within_s=0.2)
    script.send(ConnectionUnblocked(), channel=0)
    script.expect_publishes(1)
    script.send(BasicAck(delivery_tag=2))
    script.expect_publishes(1)
    script.send(BasicAck(delivery_tag=3))
    part(script)
    assert done.result()[0].confirmed == 3


def test_confirm_that_never_comes_is_an_error(
    script: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONFIRM_SECONDS_MAX", 0.1)
    done = script.run(lambda: publish_to(script, 1))
    script.log_in()
    script.expect_publishes(1)
    with pytest.raises(PublishError, match=r"did not answer within 0\.1 seconds; 0 of the 1"):
        done.result()


def test_at_a_limited_rate_no_message_goes_before_it_is_due(
    broker: Address, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    with ConfirmingPublisher(parse_uri(broker.url()), on_failure=no_failure, rate=10) as publisher:
        monkeypatch.setattr(publisher._connection, "poll", clock.wait)
        for i in range(31):
            publisher.publish(message(i, queue))
            assert publisher.sent <= 10 * clock.now_s + 1
        assert clock.now_s == pytest.approx(3.0)


class Clock:
    """A clock that advances only by waiting."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, timeout_s: float) -> None:
        self.now_s += timeout_s
