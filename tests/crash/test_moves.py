"""Messages are moved, copied and deleted in a queue that is consumed, and the broker is killed meanwhile.

WARREN_MOVE_MESSAGES=1000000   how many messages; with `pytest -s`, figures are printed
WARREN_KILL_SEED=…             what to decide by chance as in that run
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.taker import Taker
from tests.support.amqp import AmqpClient
from tests.support.frames import published
from tests.support.process import BrokerProcess
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties

MESSAGES = int(os.environ.get("WARREN_MOVE_MESSAGES", "4000"))
SEED = int(os.environ.get("WARREN_KILL_SEED", random.randrange(1_000_000)))
KILLS = 3
TOGETHER = 500
TOKEN = base64.b64encode(b"guest:guest").decode()
SELECTOR = "number >= 0 AND colour = 'red'"
TIMEOUT_SECONDS = 300 + MESSAGES // 1000


class Stage:
    """A broker that is killed and started again, and the client that takes messages from it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.chance = random.Random(SEED)
        self.taker = Taker()
        self.broker = self.start()

    def start(self) -> BrokerProcess:
        return BrokerProcess(self.data_dir).__enter__()

    def connect(self) -> AmqpClient:
        return AmqpClient.connect(self.broker.address)

    def api(self, method: str, path: str, **body: Any) -> Any:
        request = urllib.request.Request(  # noqa: S310 - our own broker, and so below
            self.broker.http_url + path,
            method=method,
            headers={"Authorization": f"Basic {TOKEN}"},
            data=json.dumps(body).encode() if method == "POST" else None,
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            return json.load(answer)

    def fill(self, queue: str) -> None:
        with self.connect() as client:
            channel = client.channel()
            channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            confirmed = 0
            for first in range(0, MESSAGES, TOGETHER):
                client.send_raw(
                    b"".join(_message(queue, number) for number in range(first, first + TOGETHER))
                )
                while confirmed < first + TOGETHER - 10 * TOGETHER:
                    confirmed = channel.expect(m.BasicAck).delivery_tag
            while confirmed < MESSAGES:
                confirmed = channel.expect(m.BasicAck).delivery_tag

    def declare(self, *queues: str) -> None:
        with self.connect() as client:
            channel = client.channel()
            for queue in queues:
                channel.declare(queue, exclusive=False, durable=True)

    def drain(self, queue: str) -> Counter[bytes]:
        """The bodies of all messages that a queue has."""
        with self.connect() as client:
            channel = client.channel()
            count = channel.declare(queue, exclusive=False, passive=True).message_count
            channel.consume(queue, no_ack=True)
            return Counter(channel.expect_delivery().body for _ in range(count))

    def run_killed(self, verb: str, expected: int, takes_from: tuple[str, ...], **body: Any) -> None:
        """Run a job to its end, in several attempts: in all but the last the broker is killed meanwhile."""
        for _ in range(KILLS):
            job = self.begin(verb, takes_from, **body)
            goal = self.chance.randint(0, expected // KILLS)
            while job["state"] == "running" and job["done"] < goal:
                job = self.api("GET", f"/api/message-jobs/{job['id']}")
            self.tell(f"{verb} killed", job)
            self.broker.kill()
            self.taker.join()
            self.broker = self.start()
        begun = time.monotonic()
        job = self.begin(verb, takes_from, **body)
        while job["state"] == "running":
            job = self.api("GET", f"/api/message-jobs/{job['id']}?wait=10")
        assert job["state"] == "done", job
        self.tell(f"{verb} done in {time.monotonic() - begun:.1f} s", job)
        self.restart()

    def begin(self, verb: str, takes_from: tuple[str, ...], **body: Any) -> Any:
        self.taker.start(self.broker.address, takes_from)
        return self.api("POST", f"/api/queues/%2F/a/{verb}?wait=0", **body)

    def restart(self) -> None:
        """Kill once more, when the job is done."""
        self.broker.check_log()
        self.broker.kill()
        self.taker.join()
        self.broker = self.start()

    def tell(self, what: str, job: Any) -> None:
        url = f"{self.broker.http_url}/metrics"
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            turns = re.findall(r"^warren_slow_turn.*$", answer.read().decode(), re.MULTILINE)
        memory = self.broker.resident_bytes() >> 20
        taken = self.taker.taken.total()
        sys.stdout.write(f"{what}: {job['done']} messages; {taken} taken; {memory} MiB; {turns}\n")

    def close(self) -> None:
        self.broker.__exit__()
        self.taker.join()


def _message(queue: str, number: int) -> bytes:
    properties = BasicProperties(
        delivery_mode=2, headers={"number": number, "colour": "red" if number % 3 else "blue"}
    )
    return published("", queue, b"%d" % number, properties)


def is_red(body: bytes) -> bool:
    return bool(int(body) % 3)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    sys.stdout.write(f"WARREN_KILL_SEED={SEED}\n")
    stage = Stage(tmp_path / "data")
    yield stage
    stage.close()


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_killed_move_leaves_each_message_in_one_queue(stage: Stage) -> None:
    stage.declare("a", "b")
    stage.fill("a")
    stage.run_killed("move", MESSAGES * 2 // 3, ("a", "b"), to="b", selector=SELECTOR)
    left, moved, taken = stage.drain("a"), stage.drain("b"), stage.taker.taken
    everywhere = left + moved + taken
    assert not [body for body, count in everywhere.items() if count > 1], "nothing is in two places"
    missing = {b"%d" % number for number in range(MESSAGES)} - everywhere.keys()
    assert missing <= stage.taker.maybe, "nothing is lost"
    assert all(is_red(body) for body in moved)
    assert sum(map(is_red, left)) <= 1, "the one that was out when the broker was killed for the last time"


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_killed_copy_and_delete_touch_nothing_else(stage: Stage) -> None:
    stage.declare("a", "b")
    stage.fill("a")
    stage.run_killed("copy", MESSAGES * 2 // 3, ("a",), to="b", selector=SELECTOR)
    copied = stage.drain("b")
    assert all(is_red(body) for body in copied)
    assert max(copied.values()) <= KILLS + 1, "one for each attempt"
    stage.run_killed("delete-messages", MESSAGES // 3, ("a",), selector=SELECTOR)
    left, taken = stage.drain("a"), stage.taker.taken
    assert not [body for body, count in (left + taken).items() if count > 1]
    blue = {b"%d" % number for number in range(MESSAGES) if not is_red(b"%d" % number)}
    assert blue - (left + taken).keys() <= stage.taker.maybe
    assert sum(map(is_red, left)) <= 1, "the one that was out when the broker was killed for the last time"
