"""The firehose: copies of what is published and delivered in a vhost, in RabbitMQ's form."""

from __future__ import annotations

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, Timestamp
from warren.broker import commands, events
from warren.broker.client import Origin
from warren.broker.message import Message

TRACE = "amq.rabbitmq.trace"


class Scene:
    """A broker whose firehose is on, with the queue `trace` for all copies, and a client."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.client = self.broker.connect().open()
        self.client.declare("trace")
        self.client.bind("trace", TRACE, "#")
        self.switch(on=True)

    def switch(self, *, on: bool, vhost: str = "/") -> None:
        self.broker.node.execute(commands.SetTracing(vhost=vhost, on=on))

    def traced(self) -> list[tuple[str, bytes, Table]]:
        """Take all copies out of the queue `trace`; return their keys, bodies and headers."""
        queue = self.broker.vhost.queues["trace"]
        entries = list(iter(lambda: queue.get(no_ack=True), None))
        found = []
        for entry in entries:
            assert entry is not None
            assert entry.message.exchange_name == TRACE
            properties = entry.message.decode_properties()
            assert properties == BasicProperties(headers=properties.headers)
            found.append((entry.message.key, entry.message.body, properties.headers or {}))
        return found

    def keys(self) -> list[str]:
        return [key for key, _, _ in self.traced()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def drain(client: FakeClient) -> None:
    client.frames()


def test_every_vhost_has_the_exchange_and_clients_cannot_publish_to_it(scene: Scene) -> None:
    exchange = scene.broker.vhost.exchanges[TRACE]
    assert (exchange.type, exchange.durable, exchange.internal) == ("topic", True, True)
    drain(scene.client)
    scene.client.publish(TRACE, "publish.x", b"forged")
    (close,) = scene.client.methods()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == 403


def test_what_is_published_is_copied_with_all_that_is_known_of_it(scene: Scene) -> None:
    scene.client.declare("q")
    scene.client.bind("q", "amq.topic", "a.#")
    properties = BasicProperties(
        content_type="text/plain",
        headers={"CC": ["a.c"], "BCC": ["a.d"], "n": 5},
        delivery_mode=2,
        priority=4,
        timestamp=Timestamp(1_700_000_000),
    )
    scene.client.publish("amq.topic", "a.b", b"body", properties)
    assert scene.traced() == [
        (
            "publish.amq.topic",
            b"body",
            {
                "exchange_name": "amq.topic",
                "routing_keys": ["a.b", "a.c", "a.d"],
                "properties": {
                    "content_type": "text/plain",
                    "headers": {"CC": ["a.c"], "n": 5},
                    "delivery_mode": 2,
                    "priority": 4,
                    "timestamp": 1_700_000_000,
                },
                "node": "test",
                "vhost": "/",
                "connection": "client",
                "channel": 1,
                "user": "guest",
                "routed_queues": ["q"],
            },
        )
    ]


def test_what_is_delivered_and_got_is_copied(scene: Scene) -> None:
    scene.client.declare("q")
    scene.client.publish("", "q", b"body")
    scene.client.send(m.BasicGet(queue="q"))
    scene.client.send(m.BasicNack(delivery_tag=1, requeue=True))
    scene.client.consume("q", no_ack=True)
    published, got, delivered = scene.traced()
    assert published[0] == "publish."
    assert published[2]["routed_queues"] == ["q"]
    common = {
        "exchange_name": "",
        "routing_keys": ["q"],
        "properties": {},
        "node": "test",
        "vhost": "/",
        "connection": "client",
        "channel": 1,
        "user": "guest",
    }
    assert got == ("deliver.q", b"body", common | {"redelivered": 0})
    assert delivered == ("deliver.q", b"body", common | {"redelivered": 1})


def test_what_is_published_in_a_transaction_is_copied_at_its_end(scene: Scene) -> None:
    scene.client.call(m.TxSelect(), m.TxSelectOk)
    scene.client.publish("amq.direct", "k", b"1", BasicProperties(headers={"CC": ["a"], "BCC": ["b"]}))
    scene.client.publish("amq.direct", "k", b"2")
    assert scene.traced() == []
    scene.client.send(m.TxCommit())
    assert [headers["routing_keys"] for _, _, headers in scene.traced()] == [["k", "a"], ["k"]]


def test_what_nobody_gets_is_copied(scene: Scene) -> None:
    scene.client.publish("amq.direct", "nowhere", b"x")
    ((key, _, headers),) = scene.traced()
    assert (key, headers["routed_queues"]) == ("publish.amq.direct", [])


def test_copies_are_not_traced_when_they_are_consumed(scene: Scene) -> None:
    scene.client.declare("other")
    scene.client.bind("other", TRACE, "#")
    scene.client.consume("other", no_ack=True)
    scene.client.publish("amq.direct", "nowhere", b"x")
    assert scene.keys() == ["publish.amq.direct"]


def test_queue_of_messages_and_of_their_copies_comes_to_an_end(scene: Scene) -> None:
    scene.client.declare("both")
    scene.client.bind("both", TRACE, "#")
    scene.client.consume("both", no_ack=True)
    scene.client.publish("", "both", b"x")
    assert scene.keys() == ["publish.", "deliver.both"]


def test_copies_that_died_are_not_traced(scene: Scene) -> None:
    """Otherwise a queue of copies with a maximum length would dead-letter copies of copies for ever."""
    scene.client.declare("dead")
    scene.client.bind("dead", "amq.fanout", "")
    scene.client.declare("few", arguments={"x-max-length": 1, "x-dead-letter-exchange": "amq.fanout"})
    scene.client.bind("few", TRACE, "#")
    scene.client.consume("dead", no_ack=True)
    for _ in range(3):
        scene.client.publish("amq.direct", "nowhere", b"x")
    assert scene.keys() == ["publish.amq.direct"] * 3
    assert scene.broker.vhost.queues["few"].message_count == 1


def test_nothing_is_copied_in_other_vhosts_or_when_it_is_off(scene: Scene) -> None:
    scene.broker.node.execute(commands.AddVhost(name="other"))
    scene.switch(on=True, vhost="other")
    scene.switch(on=False)
    scene.client.publish("amq.direct", "nowhere", b"x")
    assert scene.traced() == []
    scene.switch(on=True)
    scene.client.publish("amq.direct", "nowhere", b"x")
    assert scene.keys() == ["publish.amq.direct"]


def test_path_of_a_message_pays_nothing_while_all_are_off(scene: Scene) -> None:
    told = scene.broker.node.events
    assert (told.published, told.delivered, told.acked) == (True, True, False)
    scene.switch(on=False)
    assert (told.published, told.delivered) == (False, False)


def test_vhost_that_is_deleted_is_not_traced_any_more(scene: Scene) -> None:
    told = scene.broker.node.events
    scene.broker.node.execute(commands.DeleteVhost(name="/"))
    assert (told.published, told.delivered) == (False, False)


def test_sampling_of_events_leaves_nothing_out(scene: Scene) -> None:
    seen: list[events.MessagePublished] = []
    scene.broker.node.events.subscribe(events.MessagePublished, seen.append, one_in=4)
    for _ in range(8):
        scene.client.publish("amq.direct", "nowhere", b"x")
    assert scene.keys() == ["publish.amq.direct"] * 8
    assert len(seen) == 2


def test_long_names_are_cut(scene: Scene) -> None:
    name = "n" * 255
    scene.client.declare_exchange(name)
    scene.client.publish(name, "k", b"x")
    ((key, _, headers),) = scene.traced()
    assert (key, headers["exchange_name"]) == (f"publish.{name}"[:255], name)


def test_properties_that_make_no_sense_are_left_out(scene: Scene) -> None:
    """The broker does not check the tables in a message's properties, so they may be broken."""
    broken = Message(b"\x01e", b"\x01k", b"\x20\x00\x00\x00\x00\x05abc", b"x", False)
    firehose = scene.broker.vhost.firehose
    assert firehose is not None
    firehose.published(broken, [], Origin("client", 1, "guest"), None)
    ((_, _, headers),) = scene.traced()
    assert (headers["routing_keys"], headers["properties"]) == (["k"], {})
