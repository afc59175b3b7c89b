"""All rules of queues hold when another node has taken over: real brokers, and the leader of everything is
killed once, with every kind of queue in its hands.

Each rule is a class: `before` is called with the first leader, and `after` with the next one.
"""

from __future__ import annotations

import traceback
from typing import Any, ClassVar

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.broker_nodes import Nodes, eventually, leader
from tests.cluster.real.http_client import HttpClient

pytestmark = pytest.mark.slow

ONE_SHARD = """
cluster_replicate = "durable"
cluster_shards = 1
"""
SOON_MS = 8_000  # later than the first leader's end, as a rule


class Client:
    """A connection to the node that leads all queues."""

    def __init__(self, channel: BlockingChannel, http: HttpClient) -> None:
        self.channel = channel
        self.http = http
        channel.confirm_delivery()

    def declare(self, queue: str, **arguments: str | int | bool) -> None:
        given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.channel.queue_declare(queue, durable=True, arguments=given)

    def put(self, queue: str, *bodies: str, exchange: str = "", **properties: Any) -> None:
        """Return when all are confirmed."""
        sent = pika.BasicProperties(**{"delivery_mode": 2, **properties})
        for body in bodies:
            self.channel.basic_publish(exchange, queue, body.encode(), sent)

    def get(self, queue: str, *, ack: bool = True) -> tuple[str, pika.BasicProperties, int] | None:
        method, properties, body = self.channel.basic_get(queue)
        if method is None or properties is None or body is None:
            return None
        if ack:
            self.channel.basic_ack(method.delivery_tag)
        return body.decode(), properties, method.delivery_tag

    def drain(self, queue: str) -> list[str]:
        found = []
        while (got := self.get(queue)) is not None:
            found.append(got[0])
        return found

    def wait_for(self, queue: str) -> tuple[str, pika.BasicProperties]:
        """The next message, once it is there."""
        found: list[tuple[str, pika.BasicProperties]] = []

        def is_there() -> bool:
            got = self.get(queue)
            if got is not None:
                found.append(got[:2])
            return got is not None

        eventually(is_there)
        return found[0]

    def count(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)


def death(properties: pika.BasicProperties) -> tuple[str, str]:
    [last] = (properties.headers or {})["x-death"]
    return last["queue"], last["reason"]


class Rule:
    all: ClassVar[list[type[Rule]]] = []

    def __init_subclass__(cls) -> None:
        cls.all.append(cls)

    def before(self, client: Client) -> None:
        """With the first leader."""

    def after(self, client: Client) -> None:
        """With the next one."""


class MessageTtl(Rule):
    def before(self, client: Client) -> None:
        client.declare("ttl-dead")
        client.declare(
            "ttl", message_ttl=SOON_MS, dead_letter_exchange="", dead_letter_routing_key="ttl-dead"
        )
        client.put("ttl", "old")

    def after(self, client: Client) -> None:
        body, properties = client.wait_for("ttl-dead")
        assert (body, death(properties)) == ("old", ("ttl", "expired"))
        assert client.count("ttl") == 0


class Expiration(Rule):
    def before(self, client: Client) -> None:
        client.declare("own-dead")
        client.declare("own", dead_letter_exchange="", dead_letter_routing_key="own-dead")
        client.put("own", "stays")
        client.put("own", "expires", expiration=str(SOON_MS))

    def after(self, client: Client) -> None:
        assert client.wait_for("own-dead")[0] == "expires"
        assert client.drain("own") == ["stays"]


class Expires(Rule):
    def before(self, client: Client) -> None:
        client.declare("unused", expires=SOON_MS)

    def after(self, client: Client) -> None:
        eventually(lambda: "unused" not in [queue["name"] for queue in client.http.get("queues")])


class DropHead(Rule):
    def before(self, client: Client) -> None:
        client.declare("short", max_length=3)
        client.put("short", *"abcde")

    def after(self, client: Client) -> None:
        assert client.count("short") == 3
        client.put("short", "f")
        eventually(lambda: client.count("short") == 3)
        assert client.drain("short") == list("def")


class RejectPublish(Rule):
    def before(self, client: Client) -> None:
        client.declare("full", max_length=2, overflow="reject-publish")
        client.put("full", "a", "b")

    def after(self, client: Client) -> None:
        with pytest.raises(pika.exceptions.NackError):
            client.put("full", "c")
        assert client.drain("full") == ["a", "b"]


class RejectToDlx(Rule):
    def before(self, client: Client) -> None:
        client.declare("full-dead")
        client.declare(
            "full-dlx",
            max_length_bytes=2,
            overflow="reject-publish-dlx",
            dead_letter_exchange="",
            dead_letter_routing_key="full-dead",
        )
        client.put("full-dlx", "a", "b")

    def after(self, client: Client) -> None:
        with pytest.raises(pika.exceptions.NackError):
            client.put("full-dlx", "c")
        body, properties = client.wait_for("full-dead")
        assert (body, death(properties)) == ("c", ("full-dlx", "maxlen"))


class Priorities(Rule):
    def before(self, client: Client) -> None:
        client.declare("levels", max_priority=3)
        for body, priority in zip("abcd", (1, 3, 0, 3), strict=True):
            client.put("levels", body, priority=priority)

    def after(self, client: Client) -> None:
        client.put("levels", "e", priority=2)
        assert client.drain("levels") == list("bdeac")


class Groups(Rule):
    def before(self, client: Client) -> None:
        client.declare("groups", group_header="who")
        for body, who in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
            client.put("groups", body, headers={"who": who})

    def after(self, client: Client) -> None:
        first, second = (client.get("groups", ack=False) for _ in range(2))
        assert first is not None
        assert second is not None
        assert [first[0], second[0]] == ["a1", "b1"], "a group waits for its first message"
        assert client.get("groups") is None
        for got in (first, second):
            client.channel.basic_ack(got[2])
        assert client.drain("groups") == ["a2", "b2"]


class Deduplication(Rule):
    def before(self, client: Client) -> None:
        client.declare("once", message_deduplication=True)
        client.put("once", "taken", headers={"x-deduplication-header": "1"})
        assert client.drain("once") == ["taken"]
        client.put("once", "waits", headers={"x-deduplication-header": "2"})

    def after(self, client: Client) -> None:
        for value in "123":
            client.put("once", "again", headers={"x-deduplication-header": value})
        assert client.drain("once") == ["waits", "again"]


class ExchangeDeduplication(Rule):
    def before(self, client: Client) -> None:
        client.channel.exchange_declare(
            "once", "fanout", durable=True, arguments={"x-message-deduplication": True}
        )
        client.declare("of-once")
        client.channel.queue_bind("of-once", "once")
        client.put("", "first", exchange="once", headers={"x-deduplication-header": "1"})

    def after(self, client: Client) -> None:
        for value in "12":
            client.put("", "again", exchange="once", headers={"x-deduplication-header": value})
        assert client.drain("of-once") == ["first", "again"]


class DelayedExchange(Rule):
    def before(self, client: Client) -> None:
        client.channel.exchange_declare(
            "late", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        client.declare("of-late")
        client.channel.queue_bind("of-late", "late", "key")
        client.put("key", "later", exchange="late", headers={"x-delay": SOON_MS})

    def after(self, client: Client) -> None:
        body, properties = client.wait_for("of-late")
        assert (body, (properties.headers or {})["x-delay"]) == ("later", -SOON_MS)
        client.put("key", "soon", exchange="late", headers={"x-delay": 1})
        assert client.wait_for("of-late")[0] == "soon"


class RetryDelay(Rule):
    def before(self, client: Client) -> None:
        client.declare("retries", retry_delay_min=SOON_MS)
        client.put("retries", "again")
        got = client.get("retries", ack=False)
        assert got is not None
        client.channel.basic_nack(got[2], requeue=True)
        assert client.get("retries") is None, "it waits"

    def after(self, client: Client) -> None:
        body, properties = client.wait_for("retries")
        assert (body, (properties.headers or {})["x-delivery-count"]) == ("again", 1)


class DeliveryLimit(Rule):
    def before(self, client: Client) -> None:
        client.declare("limit-dead")
        client.declare(
            "limit",
            queue_type="quorum",
            delivery_limit=2,
            dead_letter_exchange="",
            dead_letter_routing_key="limit-dead",
        )
        client.put("limit", "poison", delivery_mode=1)
        for _ in range(2):
            self.give_back(client)

    def give_back(self, client: Client) -> int:
        """How often it was delivered before."""
        got = client.get("limit", ack=False)
        assert got is not None
        client.channel.basic_nack(got[2], requeue=True)
        return int((got[1].headers or {}).get("x-delivery-count", 0))

    def after(self, client: Client) -> None:
        assert self.give_back(client) == 2
        body, properties = client.wait_for("limit-dead")
        assert (body, death(properties)) == ("poison", ("limit", "delivery_limit"))


class SingleActiveConsumer(Rule):
    def before(self, client: Client) -> None:
        client.declare("single", single_active_consumer=True)
        client.put("single", "a", "b")

    def after(self, client: Client) -> None:
        got: list[str] = []

        def take(channel: BlockingChannel, method: Any, _properties: Any, _body: bytes) -> None:
            got.append(method.consumer_tag)
            channel.basic_ack(method.delivery_tag)

        for tag in ("first", "second"):
            client.channel.basic_consume("single", take, consumer_tag=tag)
        eventually(lambda: client.channel.connection.process_data_events(0) is None and len(got) == 2)
        assert got == ["first", "first"]


class Streams(Rule):
    """A stream whose retention has dropped its first segments, with a consumer whose offset is remembered."""

    MESSAGES = 40

    def before(self, client: Client) -> None:
        client.declare(
            "stream", queue_type="stream", stream_max_segment_size_bytes=4_000, max_length_bytes=20_000
        )
        client.put("stream", *(self.body(number) for number in range(self.MESSAGES)))
        self.first = self.listing(client)["first_offset"]
        assert 0 < self.first < self.MESSAGES
        assert [number for number, _ in self.read(client, 5, "first")] == list(
            range(self.first, self.first + 5)
        )
        self.known = self.listing(client)
        self.done = self.offset(client)  # the client may have given more back, which streams take for acks
        assert self.done >= self.first + 4

    @staticmethod
    def body(number: int) -> str:
        return f"{number} {'x' * 1_000}"

    @staticmethod
    def listing(client: Client) -> dict[str, Any]:
        found: dict[str, Any] = client.http.get("segments/%2F/stream")
        return found

    @staticmethod
    def offset(client: Client) -> int:
        return int(client.http.get("streams/%2F/stream/offsets/reader")["offset"])

    @staticmethod
    def read(client: Client, count: int, start: str | int) -> list[tuple[int, int]]:
        """The next messages of the reader whose offset is remembered, and their offsets. All are acked."""
        got: list[tuple[int, int]] = []

        def take(
            channel: BlockingChannel, method: Any, properties: pika.BasicProperties, body: bytes
        ) -> None:
            if len(got) < count:
                headers: Any = properties.headers
                got.append((int(body.split()[0]), int(headers["x-stream-offset"])))
                channel.basic_ack(method.delivery_tag)

        connection = client.channel.connection
        channel = connection.channel()
        channel.basic_qos(prefetch_count=count)
        arguments = {"x-stream-offset": start, "x-stream-automatic-offset-tracking": True}
        channel.basic_consume("stream", take, consumer_tag="reader", arguments=arguments)
        eventually(lambda: connection.process_data_events(0) is None and len(got) == count)
        channel.close()
        return got

    def after(self, client: Client) -> None:
        found = self.listing(client)
        for name in ("stream_id", "first_offset", "next_offset"):
            assert found[name] == self.known[name], name
        assert self.offset(client) == self.done
        client.put("stream", *(self.body(number) for number in range(self.MESSAGES, self.MESSAGES + 3)))
        rest = self.MESSAGES + 2 - self.done
        assert self.read(client, rest, "first") == [
            (number, number) for number in range(self.done + 1, self.MESSAGES + 3)
        ], "each offset has its message, and the reader goes on"


def start(nodes: Nodes, name: str) -> None:
    config = nodes.path / "warren.toml"
    config.write_text(ONE_SHARD)
    nodes.start(name, "--config", str(config))


def client_of_leader(nodes: Nodes) -> tuple[str, Client]:
    name, channel = leader(nodes, "anything")
    return name, Client(channel, HttpClient(nodes.running[name].http_url))


def tried(rule: Rule, step: str, client: Client) -> str:
    """What went wrong, if anything did."""
    own = Client(client.channel.connection.channel(), client.http)
    try:
        getattr(rule, step)(own)
    except Exception:  # noqa: BLE001 - all rules are tried, and the test fails with what each says
        return f"{type(rule).__name__}.{step}:\n{traceback.format_exc()}"
    return ""


def test_all_rules_hold_after_a_takeover(nodes: Nodes) -> None:
    for name in "abc":
        start(nodes, name)
    nodes.declare_replicated("a", "anything")
    first, client = client_of_leader(nodes)
    rules = [rule() for rule in Rule.all]
    wrong = [tried(rule, "before", client) for rule in rules]
    assert not any(wrong), "\n".join(wrong)
    client.put("anything", "the last")  # so that all that was acked before is on its way to disk everywhere
    nodes.running.pop(first).kill()

    second, client = client_of_leader(nodes)
    assert second != first
    wrong = [tried(rule, "after", client) for rule in rules]
    assert not any(wrong), "\n".join(wrong)
