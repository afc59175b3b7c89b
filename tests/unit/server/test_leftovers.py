"""Connections, channels, consumers, queues and exchanges that have ended leave nothing in memory, even if the
garbage collector does not run.

Entries and messages are not tracked by the collector, so they cannot be counted here. But an entry refers to
its queue, so an entry that stays is noticed by the queue that stays with it.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeAlias

import pytest
import uvloop

from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.errors import EndedError
from tests.support.serving import WAIT_SECONDS_MAX, Serving
from warren import commands
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.access import Permissions
from warren.server.protocol import RESET_ON_CLOSE
from warren.session.connection import connections_of

pytestmark = pytest.mark.slow

Scenario: TypeAlias = Callable[[Serving], None]
ROUNDS = 4
LOOK_SECONDS = 0.02
MODULES = ("warren.", "uvloop.", "aiohttp.")  # transports of asyncio refer to themselves
MAY_STAY = {
    "warren.broker.history.History",  # of vhosts and exchanges: made by the first tick after these were used
    "warren.broker.timetable.Appointment",  # cancelled ones hold nothing, and are freed many at a time
    "warren.storage.disk.Buffer",  # kept for the next round, as many as one round ever needed
    "aiohttp.web_exceptions.HTTPNotFound",  # the next one holds it
    "aiohttp.web_urldispatcher.SystemRoute",  # refers to itself, one for each path that is not there
}
LOGIN = "Basic " + b64encode(b"guest:guest").decode()
MESSAGE = BasicProperties(
    delivery_mode=2, expiration="60000", headers={"group": "a", "x-deduplication-header": "a", "n": 1}
)
RULES: dict[str, Table] = {
    "none": {},
    "ttl": {"x-message-ttl": 60_000},
    "expires": {"x-expires": 600_000},
    "length": {"x-max-length": 3, "x-overflow": "reject-publish"},
    "priorities": {"x-max-priority": 3},
    "one consumer": {"x-single-active-consumer": True},
    "retry": {"x-delivery-limit": 5, "x-retry-delay-min": 60_000},
    "groups": {"x-group-header": "group"},
    "deduplication": {"x-message-deduplication": True},
    "dead letters": {"x-dead-letter-exchange": "amq.fanout"},
    "stream": {"x-queue-type": "stream", "x-max-age": "1h"},
}


# --- connections ---


def closed_by_the_client(serving: Serving) -> None:
    with connected(serving) as client:
        busy_channel(client)


def reset(serving: Serving) -> None:
    client = AmqpClient.connect(serving.address)
    busy_channel(client)
    client.abort()


def closed_for_an_error(serving: Serving) -> None:
    client = AmqpClient.connect(serving.address)
    busy_channel(client)
    client.send_method(5, m.QueueDelete(queue="q"))
    client.expect(0, m.ConnectionClose)
    client.send_method(0, m.ConnectionCloseOk())
    client.abort()


def closed_by_the_broker(serving: Serving) -> None:
    client = AmqpClient.connect(serving.address)
    busy_channel(client)
    serving.call(lambda: serving.broker.node.close_connections_of("guest", "enough"))
    client.expect(0, m.ConnectionClose)
    client.send_method(0, m.ConnectionCloseOk())
    client.abort()


def given_up_by_the_broker(serving: Serving) -> None:
    client = AmqpClient.connect(serving.address)
    busy_channel(client)
    serving.call(lambda: connections_of(serving.broker.node)[0].drop("silent"))
    client.abort()


def ended_in_the_handshake(serving: Serving) -> None:
    client = AmqpClient(serving.address)
    client.start()
    client.abort()


def refused(serving: Serving) -> None:
    client = AmqpClient(serving.address)
    client.start()
    client.authenticate(password="wrong")
    with suppress(EndedError):
        client.expect(0, m.ConnectionClose)
    client.abort()


def of_another_protocol(serving: Serving) -> None:
    client = AmqpClient(serving.address)
    client.send_raw(b"GET / HTTP/1.1\r\n\r\n")
    while client.socket.recv(1000):
        pass
    client.abort()


def with_rates(serving: Serving) -> None:
    limits = commands.SetUserLimits(user="guest", max_publish_rate=1_000_000, max_consume_rate=1_000_000)
    serving.call(lambda: serving.broker.execute(limits))
    with connected(serving) as client:
        busy_channel(client)
    serving.call(lambda: serving.broker.execute(commands.SetUserLimits(user="guest")))


# --- channels ---


def channel_closed_for_an_error(serving: Serving) -> None:
    with connected(serving) as client:
        busy_channel(client)
        channel = client.channel(2)
        queue = channel.declare().queue
        channel.publish("", queue, b"x")
        channel.get(queue, no_ack=False)
        channel.send(m.BasicAck(delivery_tag=1_000))
        channel.expect_close(406)


def transactions(serving: Serving) -> None:
    with connected(serving) as client:
        channel = client.channel()
        queue = channel.declare().queue
        channel.call(m.TxSelect(), m.TxSelectOk)
        channel.publish("", queue, b"committed")
        channel.call(m.TxCommit(), m.TxCommitOk)
        channel.get(queue, no_ack=False)
        channel.send(m.BasicAck(delivery_tag=1))
        channel.publish("", queue, b"not committed")


def direct_replies(serving: Serving) -> None:
    with connected(serving) as client:
        channel = client.channel()
        channel.consume("amq.rabbitmq.reply-to", no_ack=True)
        queue = channel.declare().queue
        channel.publish("", queue, b"?", BasicProperties(reply_to="amq.rabbitmq.reply-to"))
        asked = client.channel(2).get(queue)
        assert asked.properties.reply_to is not None
        channel.publish("", asked.properties.reply_to, b"!")
        channel.expect_delivery()


# --- queues and exchanges ---


def queue_with(rules: Table, *, durable: bool) -> Scenario:
    """A queue that is deleted while it is consumed from, with messages ready, delivered, and returned."""

    def scenario(serving: Serving) -> None:
        is_stream = "x-queue-type" in rules
        with connected(serving) as client:
            publisher, consumer, another = client.channel(1), client.channel(2), client.channel(3)
            publisher.declare("q", exclusive=False, durable=durable, arguments=rules)
            bind = m.QueueBind(queue="q", exchange="amq.topic", routing_key="a.#", arguments={})
            publisher.call(bind, m.QueueBindOk)
            publisher.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            consumer.call(m.BasicQos(prefetch_count=2), m.BasicQosOk)
            consumer.consume("q", arguments={"x-stream-offset": "first"} if is_stream else {})
            if not is_stream:
                another.consume("q", arguments={"x-browse": True})
                if "x-group-header" not in rules:
                    another.consume("q", arguments={"x-selector": "n > 1"})
            for number in range(6):
                publisher.publish("amq.topic", "a.b", b"%d" % number, MESSAGE)
            publisher.expect(m.Method)  # an ack, or a nack
            tag = consumer.expect_delivery().method.delivery_tag
            consumer.send(m.BasicNack(delivery_tag=tag, requeue=True))
            deleter = client.channel(4)
            deleter.call(m.QueueDelete(queue="q"), m.QueueDeleteOk)

    return scenario


def long_queue(serving: Serving) -> None:
    """Longer than what is kept as entries, and dropped in more than one turn."""
    with connected(serving) as client:
        channel = client.channel()
        queue = channel.declare().queue
        for _ in range(30_000):
            channel.publish("", queue, b"x")
        channel.get(queue)


def expired(serving: Serving) -> None:
    with connected(serving) as client:
        channel = client.channel()
        channel.declare("q", exclusive=False, arguments={"x-expires": 20})
        channel.publish("", "q", b"x")


def exchanges(serving: Serving) -> None:
    with connected(serving) as client:
        channel = client.channel()
        for name, kind, arguments in (
            ("e", "x-delayed-message", {"x-delayed-type": "topic"}),
            ("f", "fanout", {"x-message-deduplication": True}),
        ):
            declare = m.ExchangeDeclare(exchange=name, type=kind, durable=True, arguments=dict(arguments))
            channel.call(declare, m.ExchangeDeclareOk)
        bind = m.ExchangeBind(source="e", destination="f", routing_key="#", arguments={})
        channel.call(bind, m.ExchangeBindOk)
        queue = channel.declare().queue
        channel.call(m.QueueBind(queue=queue, exchange="f", routing_key="", arguments={}), m.QueueBindOk)
        channel.publish("e", "x", b"1", BasicProperties(headers={"x-delay": 60_000}, delivery_mode=2))
        channel.publish("f", "x", b"2", MESSAGE)
        for name in ("e", "f"):
            channel.call(m.ExchangeDelete(exchange=name), m.ExchangeDeleteOk)


def remembered_routes(serving: Serving) -> None:
    """The exchange stays, but forgets its route to the queue, even if nobody publishes to it any more."""
    with connected(serving) as client:
        channel = client.channel()
        queue = channel.declare().queue
        bind = m.QueueBind(queue=queue, exchange="amq.direct", routing_key="k", arguments={})
        channel.call(bind, m.QueueBindOk)
        channel.publish("amq.direct", "k", b"x")
        channel.get(queue)


def vhosts(serving: Serving) -> None:
    for command in (
        commands.AddVhost(name="v"),
        commands.SetPermissions(user="guest", vhost="v", permissions=Permissions(".*", ".*", ".*")),
        commands.SetTracing(vhost="v", on=True),
    ):
        serving.call(partial(serving.broker.execute, command))
    client = AmqpClient.connect(serving.address, vhost="v")
    busy_channel(client)
    client.channel(2).declare("kept", exclusive=False, durable=True)
    serving.call(lambda: serving.broker.execute(commands.DeleteVhost(name="v")))
    client.expect(0, m.ConnectionClose)
    client.send_method(0, m.ConnectionCloseOk())
    client.abort()


def over_http(serving: Serving) -> None:
    address = serving.broker.services["http"].address
    for path in ("overview", "queues", "queues/%2F/none", "nonsense"):
        request = urllib.request.Request(f"http://{address}/api/{path}", headers={"Authorization": LOGIN})
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(request) as answer:  # noqa: S310
            answer.read()


def over_http_without_waiting(serving: Serving) -> None:
    """Clients close their sockets as soon as they have asked. On a busy machine, those who wait for the
    answer may close before the broker has dealt with its end.
    """
    for path in ("overview", "queues", "queues/%2F/none", "nonsense"):
        with http_client(serving, path):
            pass


def over_http_in_a_hurry(serving: Serving) -> None:
    """The same with a reset, which may be known before the request is read."""
    for path in ("overview", "queues", "queues/%2F/none", "nonsense"):
        with http_client(serving, path) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


def http_client(serving: Serving, path: str) -> socket.socket:
    """The socket of a client that has asked, and has read nothing of the answer."""
    host, _, port = serving.broker.services["http"].address.rpartition(":")
    client = socket.create_connection((host, int(port)))
    client.sendall(f"GET /api/{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {LOGIN}\r\n\r\n".encode())
    return client


SCENARIOS: dict[str, Scenario] = {
    function.__name__: function
    for function in (
        closed_by_the_client,
        reset,
        closed_for_an_error,
        closed_by_the_broker,
        given_up_by_the_broker,
        ended_in_the_handshake,
        refused,
        of_another_protocol,
        with_rates,
        channel_closed_for_an_error,
        transactions,
        direct_replies,
        long_queue,
        expired,
        exchanges,
        remembered_routes,
        vhosts,
        over_http,
        over_http_without_waiting,
        over_http_in_a_hurry,
    )
}
SCENARIOS |= {
    f"{name}, transient": queue_with(r, durable=False) for name, r in RULES.items() if name != "stream"
}
SCENARIOS |= {f"{name}, durable": queue_with(rules, durable=True) for name, rules in RULES.items()}


@contextmanager
def connected(serving: Serving) -> Iterator[AmqpClient]:
    client = AmqpClient.connect(serving.address)
    yield client
    client.close()


def busy_channel(client: AmqpClient) -> AmqpChannel:
    """With an exclusive queue, a consumer, and messages that are published, out, and ready."""
    channel = client.channel()
    queue = channel.declare().queue
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    channel.call(m.BasicQos(prefetch_count=3), m.BasicQosOk)
    channel.consume(queue)
    for _ in range(10):
        channel.publish("", queue, b"x" * 10_000)
    return channel


# --- counting ---


def census() -> Counter[str]:
    """Counts the objects of every class that a broker could leave behind."""
    kinds = Counter(type(one) for one in gc.get_objects())
    names = {f"{kind.__module__}.{kind.__qualname__}": count for kind, count in kinds.items()}
    return Counter({n: c for n, c in names.items() if n.startswith(MODULES) and n not in MAY_STAY})


def is_over(serving: Serving) -> bool:
    node = serving.broker.node
    return not node.clients and not any(vhost.queues for vhost in node.vhosts.values())


def leftovers(serving: Serving, before: Counter[str]) -> Counter[str]:
    """The objects that are there now and were not before. It may take some turns until they are gone."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    over, more = False, Counter(["not looked at"])
    while more and time.monotonic() < deadline:
        over = serving.call(lambda: is_over(serving), after_seconds=LOOK_SECONDS)
        more = census() - before if over else more
    assert over, "connections and queues have not ended"
    return more


@pytest.fixture(
    scope="module", params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"]
)
def serving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("broker") / "data", request.param) as serving:
        yield serving


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_nothing_is_left_though_nothing_is_collected(serving: Serving, scenario: Scenario) -> None:
    scenario(serving)  # a first time, for all that is made once and kept
    leftovers(serving, Counter(dict.fromkeys(census(), sys.maxsize)))
    gc.collect()
    gc.disable()
    try:
        before = census()
        for _ in range(ROUNDS):
            scenario(serving)
        assert leftovers(serving, before) == Counter()
    finally:
        gc.enable()
