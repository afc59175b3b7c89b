"""Shovels and federation in a real cluster: each relay runs on one node, and moves when that is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.broker_nodes import Nodes, close, eventually, leader, start_replicating
from tests.cluster.real.http_client import HttpClient
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.slow

RUNNING = "running"


@pytest.fixture
def remote(nodes: Nodes, tmp_path: Path) -> BrokerProcess:
    """A broker that is alone."""
    return nodes.stack.enter_context(BrokerProcess(tmp_path / "remote"))


def channel_to(nodes: Nodes, broker: BrokerProcess) -> BlockingChannel:
    connection = pika.BlockingConnection(pika.URLParameters(broker.address.url()))
    nodes.stack.callback(close, connection)
    return connection.channel()


def runners(nodes: Nodes, path: str, state: str) -> list[str]:
    """The nodes that say that they run the one relay there is."""
    found: dict[str, list[dict[str, Any]]] = {
        name: HttpClient(process.http_url).get(path)
        for name, process in nodes.running.items()
        if process.process.poll() is None
    }
    return [name for name, rows in found.items() if any(row[state] == RUNNING for row in rows)]


def declare(nodes: Nodes, kind: str, name: str, value: dict[str, Any]) -> None:
    node = next(name for name, process in nodes.running.items() if process.process.poll() is None)
    HttpClient(nodes.running[node].http_url).put(f"parameters/{kind}/%2F/{name}", {"value": value})


def publish(channel: BlockingChannel, exchange: str, key: str, bodies: list[bytes]) -> None:
    for body in bodies:
        channel.basic_publish(exchange, key, body, pika.BasicProperties(delivery_mode=2))


def taken(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """So many messages, and there are no more."""
    eventually(lambda: channel.queue_declare(queue, passive=True).method.message_count >= count)
    found: list[bytes] = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        found.append(body)
    return sorted(found)


def test_a_shovel_runs_where_its_queue_is_led_and_moves_with_it(nodes: Nodes, remote: BrokerProcess) -> None:
    for name in "abc":
        start_replicating(nodes, name)
    nodes.declare_replicated("a", "orders")
    first, channel = leader(nodes, "orders")
    there = channel_to(nodes, remote)
    there.queue_declare("orders", durable=True)
    uri = remote.address.url()
    declare(nodes, "shovel", "s", {"src-uri": "amqp://", "src-queue": "orders", "dest-uri": uri})
    eventually(lambda: runners(nodes, "shovels", "state") == [first])
    channel.confirm_delivery()
    publish(channel, "", "orders", [b"1", b"2", b"3"])
    assert taken(there, "orders", 3) == [b"1", b"2", b"3"]
    nodes.running[first].kill()
    second, channel = leader(nodes, "orders")
    assert second != first
    eventually(lambda: runners(nodes, "shovels", "state") == [second])
    channel.confirm_delivery()
    publish(channel, "", "orders", [b"4", b"5"])
    found = taken(there, "orders", 2)
    assert set(found) >= {b"4", b"5"}
    states = {
        row["state"] for row in HttpClient(nodes.running[third(nodes, first, second)].http_url).get("shovels")
    }
    assert states == {"elsewhere"}


def third(nodes: Nodes, *others: str) -> str:
    (name,) = nodes.running.keys() - set(others)
    return name


def test_a_shovel_between_other_brokers_carries_each_message_once(
    nodes: Nodes, remote: BrokerProcess
) -> None:
    for name in "abc":
        nodes.start(name)
    there = channel_to(nodes, remote)
    there.queue_declare("copies", durable=True)
    uri = remote.address.url()
    value = {"src-uri": uri, "src-exchange": "amq.topic", "src-exchange-key": "#"}
    declare(nodes, "shovel", "s", value | {"dest-uri": uri, "dest-queue": "copies"})
    eventually(lambda: runners(nodes, "shovels", "state") == ["a"])
    publish(there, "amq.topic", "k", [b"1", b"2"])
    assert taken(there, "copies", 2) == [b"1", b"2"]
    nodes.running["a"].kill()
    eventually(lambda: runners(nodes, "shovels", "state") == ["b"])
    publish(there, "amq.topic", "k", [b"3"])
    assert taken(there, "copies", 1) == [b"3"]


def test_a_federated_exchange_has_one_link_in_the_cluster(nodes: Nodes, remote: BrokerProcess) -> None:
    for name in "abc":
        nodes.start(name)
    channel = nodes.channel("b")
    channel.exchange_declare("events", "topic", durable=True)
    channel.queue_declare("got", durable=True)  # it lives on b
    channel.queue_bind("got", "events", "#")
    declare(nodes, "federation-upstream", "up", {"uri": remote.address.url()})
    policy = {"pattern": "events", "definition": {"federation-upstream": "up"}, "apply-to": "exchanges"}
    HttpClient(nodes.running["a"].http_url).put("policies/%2F/federated", policy)
    eventually(lambda: runners(nodes, "federation-links", "status") == ["b"])
    publish(channel_to(nodes, remote), "events", "k", [b"1", b"2", b"3"])
    assert taken(channel, "got", 3) == [b"1", b"2", b"3"]
