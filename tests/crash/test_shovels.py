"""A shovel with ack-mode on-confirm loses nothing, whichever of its two brokers is killed, and when.

A publisher numbers its messages and notes which were confirmed. Both brokers are killed at random, many
times. In the end each confirmed message is there. Their order is kept, but for those that were on their way
at a kill: these come again, behind. `SHOVEL_KILLS` says how many kills, `SHOVEL_SEED` repeats their moments;
with `--log-cli-level=info` the numbers are told.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
import urllib.request
from base64 import b64encode
from pathlib import Path

import pika
import pika.exceptions
import pytest

from tests.support.process import BrokerProcess

KILLS = int(os.environ.get("SHOVEL_KILLS", "6"))
SEED = int(os.environ.get("SHOVEL_SEED", str(random.randrange(10**6))))
PREFETCH = 200
BETWEEN_KILLS_SECONDS = (0.3, 1.5)
LOOK_SECONDS = 0.05
DRAIN_SECONDS_MAX = 120
LOGIN = "Basic " + b64encode(b"guest:guest").decode()


class Pair:
    """The two brokers. Each listens where it did before when it starts again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.brokers: dict[str, BrokerProcess] = {}
        for name in ("source", "destination"):
            self.start(name)

    def start(self, name: str) -> None:
        before = self.brokers.get(name)
        port = () if before is None else ("--port", str(before.address.port))
        broker = self.brokers[name] = BrokerProcess(self.directory / name, *port)
        broker.launch()
        broker.wait_until_ready()

    def kill(self, name: str) -> None:
        self.brokers[name].kill()
        self.start(name)

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def connect(self, name: str) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.URLParameters(self.brokers[name].address.url()))

    def shovel(self) -> None:
        value = {
            "src-uri": "amqp://",
            "src-queue": "from",
            "dest-uri": self.brokers["destination"].address.url(),
            "dest-queue": "to",
            "src-prefetch-count": PREFETCH,
            "reconnect-delay": 0.2,
        }
        request = urllib.request.Request(  # noqa: S310 - our own broker
            f"{self.brokers['source'].http_url}/api/parameters/shovel/%2F/s",
            data=json.dumps({"value": value}).encode(),
            headers={"Authorization": LOGIN},
            method="PUT",
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            assert answer.status == 201


class Publisher(threading.Thread):
    """Publishes numbers, each once. Those whose confirm was lost in a kill may be there or not."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair
        self.confirmed: list[int] = []
        self.number = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.publish()
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(LOOK_SECONDS)  # the broker is down

    def publish(self) -> None:
        connection = self.pair.connect("source")
        channel = connection.channel()
        channel.queue_declare("from", durable=True)
        channel.confirm_delivery()
        while not self.stopping.is_set():
            self.number += 1
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "from", str(self.number).encode(), properties)
            self.confirmed.append(self.number)
        connection.close()


def drained(pair: Pair) -> None:
    """Wait until the source has nothing left."""
    connection = pair.connect("source")
    channel = connection.channel()
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    while channel.queue_declare("from", passive=True).method.message_count or unacked(pair):
        assert time.monotonic() < deadline, "the shovel carries no more"
        time.sleep(LOOK_SECONDS)
    connection.close()


def unacked(pair: Pair) -> int:
    url = f"{pair.brokers['source'].http_url}/api/queues/%2F/from"
    request = urllib.request.Request(url, headers={"Authorization": LOGIN})  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        count: int = json.load(answer)["messages_unacknowledged"]
        return count


def numbers_at(pair: Pair) -> list[int]:
    connection = pair.connect("destination")
    channel = connection.channel()
    found = []
    while (got := channel.basic_get("to", auto_ack=True))[0] is not None:
        found.append(int(got[2]))
    connection.close()
    return found


@pytest.mark.slow
@pytest.mark.timeout(120 + KILLS * 30)
def test_kills_of_either_end_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    pair = Pair(tmp_path)
    publisher = Publisher(pair)
    try:
        pair.shovel()
        publisher.start()
        for _ in range(KILLS):
            time.sleep(chance.uniform(*BETWEEN_KILLS_SECONDS))
            pair.kill(chance.choice(["source", "destination"]))
        publisher.stopping.set()
        publisher.join()
        drained(pair)
        found = numbers_at(pair)
    finally:
        publisher.stopping.set()
        pair.end()
    again = f"SHOVEL_SEED={SEED} SHOVEL_KILLS={KILLS}"
    assert set(publisher.confirmed) <= set(found), f"lost; repeat with {again}"
    first_seen = list(dict.fromkeys(found))
    assert first_seen == sorted(first_seen), f"out of order; repeat with {again}"
    twice = len(found) - len(first_seen)
    assert twice <= KILLS * PREFETCH, f"{twice} twice; repeat with {again}"
    logging.getLogger(__name__).info("%d confirmed, %d arrived twice", len(publisher.confirmed), twice)
