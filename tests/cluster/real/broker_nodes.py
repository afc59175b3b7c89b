"""Real brokers that are one cluster, as processes, with real clients."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.etcd_process import EtcdProcess
from tests.support.process import BrokerProcess

WAIT_SECONDS = 180.0  # leaders spread a minute after they were elected
ASK_SECONDS = 0.05
RESOURCE_LOCKED = 405
REPLICATING = """
cluster_replicate = "durable"
cluster_shards = 4
"""


class Nodes:
    """The brokers of a cluster, by name."""

    def __init__(self, path: Path, etcd: EtcdProcess, stack: ExitStack) -> None:
        self.path = path
        self.etcd = etcd
        self.stack = stack
        self.running: dict[str, BrokerProcess] = {}

    def start(self, name: str, *arguments: str) -> BrokerProcess:
        flags = ("--cluster", "demo", "--etcd", self.etcd.endpoint, "--node", name, *arguments)
        process = BrokerProcess(self.path / name, *flags)
        self.running[name] = self.stack.enter_context(process)
        return process

    def parameters(self, name: str) -> pika.URLParameters:
        """How a client connects to a node."""
        return pika.URLParameters(self.running[name].address.url())

    def channel(self, name: str) -> BlockingChannel:
        connection = pika.BlockingConnection(self.parameters(name))
        self.stack.callback(close, connection)
        return connection.channel()

    def declare_replicated(self, node: str, queue: str, **arguments: str | int) -> None:
        """Declare a durable queue, as soon as the cluster has shards."""

        def is_declared() -> bool:
            try:
                self.channel(node).queue_declare(queue, durable=True, arguments=dict(arguments))
            except pika.exceptions.ChannelClosedByBroker as error:
                if error.reply_code != RESOURCE_LOCKED:
                    raise
                return "connect there" in error.reply_text  # it is made, and another node leads it
            return True

        eventually(is_declared)


def start_replicating(nodes: Nodes, name: str) -> None:
    """Start a broker that replicates durable queues."""
    config = nodes.path / "warren.toml"
    config.write_text(REPLICATING)
    nodes.start(name, "--config", str(config))


def leader(cluster: Nodes, queue: str) -> tuple[str, BlockingChannel]:
    """The node that leads a queue, and a channel there."""
    found: list[tuple[str, BlockingChannel]] = []

    def is_found() -> bool:
        for name, process in cluster.running.items():
            if process.process.poll() is None:
                channel = cluster.channel(name)
                try:
                    channel.queue_declare(queue, passive=True)
                except pika.exceptions.ChannelClosedByBroker as error:
                    if error.reply_code != RESOURCE_LOCKED:
                        raise
                else:
                    found.append((name, channel))
                    return True
        return False

    eventually(is_found)
    return found[0]


def close(connection: pika.BlockingConnection) -> None:
    """Its broker may have been killed, which the client has not noticed."""
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()


def closed_with(code: int, ask: Callable[[], object]) -> str:
    """The text with which the broker closes the channel."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        ask()
    assert caught.value.reply_code == code
    return str(caught.value.reply_text)


def eventually(what: Callable[[], bool]) -> None:
    """Wait until something holds that no event tells us of."""
    assert comes_true(what, WAIT_SECONDS), "it does not become true"


def comes_true(what: Callable[[], bool], within_seconds: float) -> bool:
    """Wait until something holds, or until there was enough time for it."""
    deadline = time.monotonic() + within_seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(ASK_SECONDS)
    return True
