"""Messages that a broker itself sends on, to a queue that another broker leads: dead letters and delayed
messages. Real brokers, a real etcd, a real client, and brokers that are killed.
"""

from __future__ import annotations

import contextlib

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.broker_nodes import RESOURCE_LOCKED, Nodes, eventually, leader, start_replicating
from tests.cluster.real.test_replicated import publish

pytestmark = pytest.mark.slow

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def cluster(nodes: Nodes) -> Nodes:
    """Three brokers that replicate durable queues."""
    for name in "abc":
        start_replicating(nodes, name)
    return nodes


def declare_apart(cluster: Nodes, source: str, target: str, **arguments: str | int) -> tuple[str, str]:
    """Declare two queues that different nodes lead. Return these nodes."""
    found: list[tuple[str, str]] = []
    cluster.declare_replicated("a", target)

    def are_apart() -> bool:
        """Shards may still be moving to the nodes that should lead them."""
        behind, _ = leader(cluster, target)
        cluster.declare_replicated(next(name for name in "abc" if name != behind), source, **arguments)
        before, channel = leader(cluster, source)
        found.append((before, behind))
        if before == behind:
            with contextlib.suppress(pika.exceptions.AMQPError):
                channel.queue_delete(source)
        return before != behind

    eventually(are_apart)
    return found[-1]


def numbers(channel: BlockingChannel, queue: str) -> list[int]:
    """Take what is in a queue now."""
    taken = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        taken.append(int(body))
    return taken


def count(cluster: Nodes, queue: str) -> int:
    _, channel = leader(cluster, queue)
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_dead_letters_go_to_a_queue_that_another_node_leads(cluster: Nodes) -> None:
    dying: dict[str, str | int] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-message-ttl": 100,
    }
    before, behind = declare_apart(cluster, "dying", "dead", **dying)
    assert before != behind
    publish_surely(cluster, "dying", 0, 300)
    eventually(lambda: count(cluster, "dead") >= 300)
    _, channel = leader(cluster, "dead")
    method, properties, _ = channel.basic_get("dead")
    assert method is not None
    assert properties is not None
    assert properties.headers["x-first-death-queue"] == "dying"
    channel.basic_nack(method.delivery_tag)
    take_all(cluster, "dead", set(range(300)))
    eventually(lambda: count(cluster, "dying") == 0)


def publish_surely(cluster: Nodes, queue: str, first: int, number: int) -> None:
    """Publish until each message is confirmed, whoever leads the queue."""
    left = list(range(first, first + number))
    while left:
        try:
            _, channel = leader(cluster, queue)
            channel.confirm_delivery()
            while left:
                channel.basic_publish("", queue, b"%d" % left[0], PERSISTENT)
                left.pop(0)
        except pika.exceptions.AMQPError:
            continue  # another node leads now, or will soon


def take_all(cluster: Nodes, queue: str, wanted: set[int]) -> list[int]:
    """Take messages until all that are wanted have come."""
    taken: list[int] = []

    def is_all_there() -> bool:
        try:
            _, channel = leader(cluster, queue)
            taken.extend(numbers(channel, queue))
        except pika.exceptions.AMQPError:
            return False
        return wanted <= set(taken)

    eventually(is_all_there)
    return taken


def test_no_dead_letter_is_lost_when_either_leader_is_killed(cluster: Nodes) -> None:
    dying: dict[str, str | int] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-message-ttl": 20,
    }
    before, behind = declare_apart(cluster, "dying", "dead", **dying)
    publish_surely(cluster, "dying", 0, 100)
    cluster.running.pop(behind).kill()
    publish_surely(cluster, "dying", 100, 100)
    start_replicating(cluster, behind)
    publish_surely(cluster, "dying", 200, 50)
    cluster.running.pop(before).kill()
    publish_surely(cluster, "dying", 250, 50)
    take_all(cluster, "dead", set(range(300)))
    eventually(lambda: count(cluster, "dying") == 0)


def test_rejected_messages_wait_for_a_leader_and_do_not_stop_the_others(cluster: Nodes) -> None:
    routed: dict[str, str | int] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    _, behind = declare_apart(cluster, "work", "dead", **routed)
    publish_surely(cluster, "work", 0, 20)
    cluster.running.pop(behind).kill()
    taken: set[int] = set()

    def is_worked_off() -> bool:
        """Every second message dies."""
        with contextlib.suppress(pika.exceptions.AMQPError):
            _, channel = leader(cluster, "work")
            while (got := channel.basic_get("work"))[0] is not None:
                method, _, body = got
                taken.add(int(body))
                if int(body) % 2:
                    channel.basic_reject(method.delivery_tag, requeue=False)
                else:
                    channel.basic_ack(method.delivery_tag)
        return taken == set(range(20))

    eventually(is_worked_off)
    take_all(cluster, "dead", set(range(1, 20, 2)))


def test_delayed_messages_reach_a_queue_that_another_node_leads(cluster: Nodes) -> None:
    cluster.declare_replicated("a", "late")
    behind, _ = leader(cluster, "late")
    delayed = next(name for name in "abc" if name != behind)
    channel = cluster.channel(delayed)
    channel.exchange_declare(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    channel.queue_bind("late", "later")

    def is_taken() -> bool:
        """Somebody leads the queue in which the exchange keeps what is not due."""
        for name in cluster.running:
            channel = cluster.channel(name)
            channel.confirm_delivery()
            properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 500})
            with contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
                for number in range(10):
                    channel.basic_publish("later", "", b"%d" % number, properties)
                return True
        return False

    eventually(is_taken)
    assert set(take_all(cluster, "late", set(range(10)))) == set(range(10))


def commit_for_ever(channel: BlockingChannel) -> None:
    while True:
        channel.tx_commit()
        channel.basic_publish("", "q", b"3", PERSISTENT)


def test_commit_at_a_leader_that_hands_over_is_answered(cluster: Nodes) -> None:
    cluster.declare_replicated("a", "q")
    name, channel = leader(cluster, "q")
    channel.tx_select()
    channel.basic_publish("", "q", b"1", PERSISTENT)
    channel.tx_commit()
    channel.basic_publish("", "q", b"2", PERSISTENT)
    cluster.running[name].terminate()
    ended = cluster.running.pop(name)
    with pytest.raises(pika.exceptions.AMQPError):  # 405, or the connection ends with its broker
        commit_for_ever(channel)
    ended.process.wait()
    assert 1 in take_all(cluster, "q", {1})


def test_dead_letters_of_queues_that_live_on_one_node_wait_for_the_other_node(nodes: Nodes) -> None:
    for name in "ab":
        nodes.start(name)
    nodes.channel("b").queue_declare("dead", durable=True)
    dying: dict[str, str | int] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-message-ttl": 200,
    }
    eventually(lambda: has_queue(nodes, "a", "dead"))
    channel = nodes.channel("a")
    channel.queue_declare("dying", durable=True, arguments=dying)
    publish(channel, "dying", 0, 20)
    eventually(lambda: length(nodes, "b", "dead") == 20)
    nodes.running.pop("b").kill()
    publish(channel, "dying", 20, 20)
    eventually(lambda: length(nodes, "a", "dying") == 0)
    publish(channel, "dying", 40, 20)
    nodes.running.pop("a").kill()
    nodes.start("b")
    nodes.start("a")  # what has expired meanwhile dies when the node knows where the queues are
    taken: set[int] = set()

    def is_all_there() -> bool:
        taken.update(numbers(nodes.channel("b"), "dead"))
        return taken == set(range(60))

    eventually(is_all_there)


def has_queue(nodes: Nodes, node: str, queue: str) -> bool:
    """Whether a node knows of a queue that lives on another one."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        nodes.channel(node).queue_declare(queue, passive=True)
    return bool(caught.value.reply_code == RESOURCE_LOCKED)


def length(nodes: Nodes, node: str, queue: str) -> int:
    return int(nodes.channel(node).queue_declare(queue, durable=True, passive=True).method.message_count)
