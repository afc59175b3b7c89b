"""Terms that begin and end leave nothing behind: queues that were deleted meanwhile do not come back, and a
broker that stops under load hands over all that it has confirmed.
"""

from __future__ import annotations

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.broker_nodes import Nodes, close, eventually, leader, start_replicating
from tests.cluster.real.http_client import HttpClient
from tests.cluster.real.test_kills import QUEUE, Publisher, drained
from tests.cluster.real.test_replicated import publish, take

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = "abc"
MANY = 60


@pytest.fixture
def cluster(nodes: Nodes) -> Nodes:
    for name in NAMES:
        start_replicating(nodes, name)
    return nodes


def numbers(cluster: Nodes, name: str) -> set[str]:
    """The numbers of the queues of which a node's disk has logs with records."""
    return {file.parent.name for file in (cluster.path / name / "shards").glob("*/*/*.seg")}


def kill(cluster: Nodes, name: str) -> None:
    cluster.running.pop(name).kill()


@pytest.mark.parametrize("is_leader_away", [True, False])
def test_messages_of_a_deleted_queue_do_not_come_back(cluster: Nodes, *, is_leader_away: bool) -> None:
    """A queue is deleted and declared again while a node is down that has the old one's files."""
    cluster.declare_replicated("a", "q")
    first, channel = leader(cluster, "q")
    publish(channel, "q", 0, 20)
    (old,) = numbers(cluster, first)
    eventually(lambda: all(numbers(cluster, name) == {old} for name in NAMES))
    away = first if is_leader_away else next(name for name in NAMES if name != first)
    kill(cluster, away)

    name, channel = leader(cluster, "q")
    channel.queue_delete("q")
    cluster.declare_replicated(name, "q")
    _, channel = leader(cluster, "q")
    publish(channel, "q", 100, 5)
    start_replicating(cluster, away)

    eventually(lambda: all(len(numbers(cluster, name) - {old}) == 1 for name in NAMES))
    eventually(lambda: all(old not in numbers(cluster, name) for name in NAMES))
    _, channel = leader(cluster, "q")
    assert take(channel, "q", 5) == [100, 101, 102, 103, 104]
    assert channel.queue_declare("q", passive=True).method.message_count == 0


def test_logs_of_queues_that_are_deleted_while_nobody_leads_them_go(cluster: Nodes) -> None:
    cluster.declare_replicated("a", "stays")
    first, channel = leader(cluster, "stays")
    names = [f"q{number}" for number in range(8)]
    eventually(lambda: is_declared_in(cluster, first, "shop", names))
    for name in names:
        publish(channel_in(cluster, first, "shop"), name, 0, 3)
    publish(channel, "stays", 0, 3)
    eventually(lambda: all(len(numbers(cluster, name)) == len(names) + 1 for name in NAMES))

    second, last = (name for name in NAMES if name != first)
    kill(cluster, first)
    kill(cluster, second)
    HttpClient(cluster.running[last].http_url).delete("vhosts/shop")  # of three, one node leads nothing
    start_replicating(cluster, first)
    start_replicating(cluster, second)

    eventually(lambda: all(len(numbers(cluster, name)) == 1 for name in NAMES))
    _, channel = leader(cluster, "stays")
    assert take(channel, "stays", 3) == [0, 1, 2]


def channel_in(cluster: Nodes, name: str, vhost: str) -> BlockingChannel:
    parameters = cluster.parameters(name)
    parameters.virtual_host = vhost
    connection = pika.BlockingConnection(parameters)
    cluster.stack.callback(close, connection)
    return connection.channel()


def is_declared_in(cluster: Nodes, node: str, vhost: str, names: list[str]) -> bool:
    """A node that leads shards leads each queue that is declared there. If another one leads a queue, all
    begins anew.
    """
    http = HttpClient(cluster.running[node].http_url)
    http.put(f"vhosts/{vhost}", {})
    try:
        channel = channel_in(cluster, node, vhost)
        for name in names:
            channel.queue_declare(name, durable=True)
    except pika.exceptions.ChannelClosedByBroker:
        http.delete(f"vhosts/{vhost}")
        return False
    return True


def test_broker_that_stops_under_load_hands_over_what_it_has_confirmed(cluster: Nodes) -> None:
    cluster.declare_replicated("a", QUEUE)
    publisher = Publisher(cluster)
    publisher.start()
    try:
        for name in NAMES:
            until = publisher.confirmed + 50
            eventually(lambda until=until: publisher.confirmed > until)  # type: ignore[misc]
            cluster.running[name].terminate()
            cluster.running[name].process.wait()
            start_replicating(cluster, name)
        until = publisher.confirmed + 50
        eventually(lambda: publisher.confirmed > until)
    finally:
        publisher.is_over.set()
        publisher.join()
    found = drained(cluster)
    assert set(range(publisher.confirmed)) <= set(found)
    first = list(dict.fromkeys(found))
    assert first == sorted(first)


def test_node_that_takes_over_many_queues_serves_all_of_them(cluster: Nodes) -> None:
    names = [f"q{number}" for number in range(MANY)]
    for name in names:
        cluster.declare_replicated("a", name)
    leaders = {name: leader(cluster, name) for name in names}
    for name, (_, channel) in leaders.items():
        publish(channel, name, 0, 2)
    kill(cluster, leaders[names[0]][0])
    for name in names:
        _, channel = leader(cluster, name)
        assert take(channel, name, 2) == [0, 1]
