"""Brokers of a cluster are killed at random under load, and started again: nothing confirmed is lost, and
messages of one publisher are in their order.

`CLUSTER_KILLS=20 CLUSTER_SEED=… pytest tests/cluster/real/test_kills.py --log-cli-level=info` takes longer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from random import Random

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.broker_nodes import Nodes, eventually, start_replicating

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

NAMES = "abc"
KILLS = int(os.environ.get("CLUSTER_KILLS", "3"))
BETWEEN_KILLS = 100  # messages that are confirmed
QUEUE = "q"


class Publisher(threading.Thread):
    """Publishes one number after the other, each until it is confirmed, at whatever node leads the queue."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__()
        self.nodes = nodes
        self.confirmed = 0  # the numbers below this are
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            for name in NAMES:
                with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                    self._publish_at(name)

    def _publish_at(self, name: str) -> None:
        with contextlib.closing(pika.BlockingConnection(self.nodes.parameters(name))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            while not self.is_over.is_set():
                channel.basic_publish(
                    "", QUEUE, b"%d" % self.confirmed, pika.BasicProperties(delivery_mode=2)
                )
                self.confirmed += 1


def drained(nodes: Nodes) -> list[int]:
    """All messages of the queue, at the node that leads it."""
    found: list[int] = []

    def is_drained() -> bool:
        for name in NAMES:
            with contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
                found.extend(_take_all(nodes.channel(name)))
                return True
        return False

    eventually(is_drained)
    return found


def _take_all(channel: BlockingChannel) -> list[int]:
    taken: list[int] = []
    while True:
        _, _, body = channel.basic_get(QUEUE, auto_ack=True)
        if body is None:
            return taken
        taken.append(int(body))


def test_kills_lose_nothing_that_was_confirmed(nodes: Nodes) -> None:
    seed = int(os.environ.get("CLUSTER_SEED", Random().randrange(1_000_000)))
    rng = Random(seed)
    for name in NAMES:
        start_replicating(nodes, name)
    nodes.declare_replicated("a", QUEUE)
    publisher = Publisher(nodes)
    publisher.start()
    try:
        for _ in range(KILLS):
            until = publisher.confirmed + rng.randrange(BETWEEN_KILLS)
            eventually(lambda until=until: publisher.confirmed > until)  # type: ignore[misc]
            name = rng.choice(NAMES)
            nodes.running[name].kill()
            start_replicating(nodes, name)
        until = publisher.confirmed + BETWEEN_KILLS
        eventually(lambda: publisher.confirmed > until)
    finally:
        publisher.is_over.set()
        publisher.join()
    found = drained(nodes)
    again = len(found) - len(set(found))
    logging.getLogger(__name__).info(
        "seed %d: %d kills, %d confirmed, %d of them again", seed, KILLS, publisher.confirmed, again
    )
    assert set(range(publisher.confirmed)) <= set(found), f"CLUSTER_SEED={seed}"
    first = list(dict.fromkeys(found))
    assert first == sorted(first), f"out of order, CLUSTER_SEED={seed}"
