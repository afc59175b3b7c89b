"""Names in which not all is ASCII, or not even UTF-8, which AMQP allows: they are the same on all nodes, and
after a takeover. Queues and exchanges are those whose names can be printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.real.broker_nodes import RESOURCE_LOCKED, Nodes, eventually, start_replicating
from tests.cluster.real.http_client import HttpClient
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.frames import GUEST
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table

pytestmark = pytest.mark.slow

HALF = "\udcff"  # stands for a byte that is not UTF-8
VHOST, USER, KEY, TAG = (name + HALF for name in ("vhost", "user", "key", "tag"))
EXCHANGE, QUEUE, STREAM, DEAD = (name + "-é" for name in ("exchange", "queue", "stream", "dead"))
WAIT_SECONDS = 60.0
QUEUES: dict[str, Table] = {
    QUEUE: {"x-dead-letter-exchange": DEAD},
    STREAM: {"x-queue-type": "stream"},
    DEAD: {},
}


@pytest.fixture
def cluster(nodes: Nodes) -> Nodes:
    """Three brokers that replicate durable queues."""
    for name in "abc":
        start_replicating(nodes, name)
    return nodes


@contextmanager
def channel(cluster: Nodes, node: str) -> Iterator[AmqpChannel]:
    client = AmqpClient.connect(cluster.running[node].address, vhost=VHOST)
    client.wait_seconds_max = WAIT_SECONDS
    try:
        yield client.channel()
    finally:
        client.abort()


def ask(cluster: Nodes, node: str, method: m.QueueDeclare) -> bool:
    """Whether the queue is there: at this node, if the question is passive."""
    with channel(cluster, node) as asked:
        asked.send(method)
        answer = asked.expect(m.Method)
    if isinstance(answer, m.ChannelClose):
        assert answer.reply_code == RESOURCE_LOCKED, answer
        return not method.passive and "connect there" in answer.reply_text
    return True


def leader(cluster: Nodes, queue: str) -> str:
    passive = m.QueueDeclare(queue=queue, passive=True, arguments={})
    found: list[str] = []

    def is_found() -> bool:
        found.extend(node for node in cluster.running if ask(cluster, node, passive))
        return bool(found)

    eventually(is_found)
    return found[0]


def publish(at: AmqpChannel, exchange: str, key: str, *bodies: bytes) -> None:
    """Return when all of them are confirmed."""
    at.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for body in bodies:
        at.publish(exchange, key, body, BasicProperties(delivery_mode=PERSISTENT, headers={HALF: HALF}))
        at.expect(m.BasicAck)


def read(at: AmqpChannel, offset: str, count: int) -> list[bytes]:
    """The stream's messages, acked one by one: the broker keeps the offset under the consumer's tag."""
    at.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    arguments: Table = {"x-stream-automatic-offset-tracking": True}
    at.consume(STREAM, TAG, arguments=arguments | ({"x-stream-offset": offset} if offset else {}))
    bodies = []
    for _ in range(count):
        delivery = at.expect_delivery()
        bodies.append(delivery.body)
        at.send(m.BasicAck(delivery_tag=delivery.method.delivery_tag))
    return bodies


def test_they_are_the_same_on_all_nodes_and_after_a_takeover(cluster: Nodes) -> None:
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    of_vhost = {"vhost": VHOST} | rights
    content = {
        "vhosts": [{"name": VHOST}],
        "users": [{"name": USER, "password": GUEST, "tags": []}],
        "permissions": [{"user": user} | of_vhost for user in (GUEST, USER)],
    }
    HttpClient(cluster.running["a"].http_url).post("definitions", content)
    for queue, arguments in QUEUES.items():
        declare = m.QueueDeclare(queue=queue, durable=True, arguments=arguments)
        eventually(lambda declare=declare: ask(cluster, "a", declare))  # type: ignore[misc]
    with channel(cluster, "b") as b:
        for exchange, queue in ((EXCHANGE, QUEUE), (DEAD, DEAD)):
            b.declare_exchange(exchange, "direct", durable=True)
            b.bind(queue, exchange, KEY)

    with channel(cluster, leader(cluster, QUEUE)) as first:
        publish(first, EXCHANGE, KEY, b"1", b"2")
        got = first.get(QUEUE, no_ack=False)
        first.send(m.BasicReject(delivery_tag=got.method.delivery_tag, requeue=False))
    with channel(cluster, leader(cluster, STREAM)) as first:
        publish(first, "", STREAM, b"1", b"2", b"3")
        assert read(first, "first", 2) == [b"1", b"2"]
        first.publish("", STREAM, b"4", BasicProperties(delivery_mode=PERSISTENT))
        assert first.expect_delivery().body == b"3"
        first.expect(m.BasicAck)

    cluster.running.pop(leader(cluster, STREAM)).kill()
    with channel(cluster, leader(cluster, STREAM)) as second:
        assert read(second, "", 2) == [b"3", b"4"], "it goes on where its name has come to"
    users = HttpClient(cluster.running[leader(cluster, QUEUE)].http_url).get("users")
    assert "user?" in [user["name"] for user in users]
    with channel(cluster, leader(cluster, QUEUE)) as second:
        assert second.drain(QUEUE)[-1:] == [b"2"]
    with channel(cluster, leader(cluster, DEAD)) as second:
        assert second.drain(DEAD) == [b"1"]
