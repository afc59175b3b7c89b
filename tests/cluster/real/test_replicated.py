"""Queues that are replicated: real brokers, a real etcd, a real client, and brokers that are killed."""

from __future__ import annotations

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.broker_nodes import Nodes, leader, start_replicating

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(nodes: Nodes) -> Nodes:
    """Three brokers that replicate durable queues."""
    for name in "abc":
        start_replicating(nodes, name)
    return nodes


def publish(channel: BlockingChannel, queue: str, first: int, count: int) -> None:
    """Return when all messages are confirmed."""
    channel.confirm_delivery()
    for number in range(first, first + count):
        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))


def take(channel: BlockingChannel, queue: str, count: int) -> list[int]:
    taken = []
    for _ in range(count):
        _, _, body = channel.basic_get(queue, auto_ack=True)
        assert body is not None
        taken.append(int(body))
    return taken


def test_confirmed_messages_survive_the_death_of_their_leader(cluster: Nodes) -> None:
    cluster.declare_replicated("a", "q")
    name, channel = leader(cluster, "q")
    publish(channel, "q", 0, 100)
    assert take(channel, "q", 10) == list(range(10))
    cluster.running.pop(name).kill()

    second, channel = leader(cluster, "q")
    assert second != name
    publish(channel, "q", 100, 50)
    start_replicating(cluster, name)

    # What the two others have is enough for the next one, and the one that was away gets all of it.
    _, channel = leader(cluster, "q")
    left = take(channel, "q", channel.queue_declare("q", passive=True).method.message_count)
    assert left[-140:] == list(range(10, 150)), "acks may be lost with a leader, and messages are not"


def test_queues_bindings_and_deletes_hold_on_every_node(cluster: Nodes) -> None:
    cluster.declare_replicated("a", "q", **{"x-max-priority": 3})
    b = cluster.channel("b")
    b.exchange_declare("events", "topic", durable=True)
    b.queue_bind("q", "events", "#")
    name, channel = leader(cluster, "q")
    channel.confirm_delivery()
    for number, priority in enumerate((1, 3, 2)):
        properties = pika.BasicProperties(delivery_mode=2, priority=priority)
        channel.basic_publish("events", "new", b"%d" % number, properties)
    cluster.running.pop(name).kill()
    name, channel = leader(cluster, "q")
    assert take(channel, "q", 3) == [1, 2, 0], "priorities hold at the new leader"
    channel.queue_delete("q")
    cluster.declare_replicated(name, "q")
    _, channel = leader(cluster, "q")
    assert channel.queue_declare("q", passive=True).method.message_count == 0


def test_broker_that_stops_hands_its_queues_over(cluster: Nodes) -> None:
    cluster.declare_replicated("b", "q")
    name, channel = leader(cluster, "q")
    publish(channel, "q", 0, 20)
    cluster.running[name].terminate()
    ended = cluster.running.pop(name)
    second, channel = leader(cluster, "q")
    assert take(channel, "q", 20) == list(range(20))
    ended.process.wait()
    assert second != name
