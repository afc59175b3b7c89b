"""`warren import rabbitmq` from a real RabbitMQ, killed on the way.

The large one: IMPORT_QUEUES=200 IMPORT_MESSAGES=1500 IMPORT_BATCH=1000 pytest -s
tests/clients/test_import_rabbitmq.py
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.conftest import WAIT_SECONDS_MAX, needs_rabbitmq, serve_until
from tests.support.process import BrokerProcess
from tests.support.rabbitmq import RabbitMQ

pytestmark = [needs_rabbitmq, pytest.mark.slow, pytest.mark.timeout(3600)]

SPECIAL: dict[str, dict[str, object]] = {
    "import-priority": {"x-max-priority": 5},
    "import-quorum": {"x-queue-type": "quorum"},
    "import-topic": {},
}
PLAIN = int(os.environ.get("IMPORT_QUEUES", "4")) - len(SPECIAL)
QUEUES = SPECIAL | {f"import-plain-{number}": {} for number in range(PLAIN)}
MESSAGES = int(os.environ.get("IMPORT_MESSAGES", "2000"))  # in each queue
BATCH = int(os.environ.get("IMPORT_BATCH", "100"))
STREAM = "import-stream"
STREAM_BATCH = max(1, MESSAGES // 30)  # so small that a kill finds the stream half copied
KILLS = 2
RUN_SECONDS_MAX = 1800


def channel_of(url: str) -> BlockingChannel:
    return pika.BlockingConnection(pika.URLParameters(url)).channel()


def with_login(url: str) -> str:
    return url.replace("://", "://guest:guest@")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def there(rabbitmq: RabbitMQ, here: BrokerProcess) -> Iterator[RabbitMQ]:
    """With queues that both have, and messages."""
    ours, theirs = channel_of(here.address.url()), channel_of(rabbitmq.amqp_url())
    for name, arguments in QUEUES.items():
        ours.queue_declare(name, durable=True, arguments=arguments if "priority" in name else {})
        theirs.queue_declare(name, durable=True, arguments=arguments)
    theirs.queue_bind("import-topic", "amq.topic", "a.#")
    fill(theirs)
    ours.connection.close()
    theirs.connection.close()
    yield rabbitmq
    theirs = channel_of(rabbitmq.amqp_url())
    for name in QUEUES:
        theirs.queue_delete(name)
    theirs.connection.close()


def fill(channel: BlockingChannel) -> None:
    for name in QUEUES:
        for number in range(MESSAGES):
            exchange, key = ("amq.topic", f"a.{number % 7}") if name == "import-topic" else ("", name)
            channel.basic_publish(exchange, key, b"%d" % number, properties_of(number))
    serve_until(lambda: None, lambda: all(ready(channel, name) == MESSAGES for name in QUEUES))


def properties_of(number: int) -> pika.BasicProperties:
    return pika.BasicProperties(
        content_type="text/plain",
        delivery_mode=2,
        headers={"number": number, "x-death": [{"count": number, "reason": "expired"}]},
        priority=number % 5,
        message_id=f"{number}",
        timestamp=1_700_000_000 + number,
    )


def run(there: RabbitMQ, here: BrokerProcess, *, batch: int = BATCH) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "warren", "import", "rabbitmq", "--url", with_login(there.http_url),
        "--to", with_login(here.http_url),
        "--no-definitions", "--batch", str(batch), "--json", "-p", "/",
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def ready(channel: BlockingChannel, name: str) -> int:
    count: int = channel.queue_declare(name, passive=True).method.message_count
    return count


def kill_half_way(
    process: subprocess.Popen[str], here: BrokerProcess, at: int, names: Iterable[str] = QUEUES
) -> None:
    """SIGKILL when so many messages are here, and a queue is half moved."""
    channel = channel_of(here.address.url())
    deadline = time.monotonic() + RUN_SECONDS_MAX
    while sum(ready(channel, name) for name in names) < at:
        assert process.poll() is None, "it was done before it could be killed"
        assert time.monotonic() < deadline
    unfinished = [name for name in names if ready(channel, name) < MESSAGES]
    while not any(0 < ready(channel, name) < MESSAGES for name in unfinished):
        assert process.poll() is None, "it was done before it could be killed"
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGKILL)
    process.communicate()
    channel.connection.close()


def test_every_message_arrives_and_at_most_one_batch_a_kill_twice(
    there: RabbitMQ, here: BrokerProcess
) -> None:
    total = MESSAGES * len(QUEUES)
    for kill in range(KILLS):
        at = total * (kill + 1) // (KILLS + 1) + random.randrange(BATCH)
        kill_half_way(run(there, here), here, at)
    began = time.monotonic()
    process = run(there, here)
    out, err = process.communicate(timeout=RUN_SECONDS_MAX)
    assert process.returncode == 0, err + out
    rows = {row["queue"]: row for row in json.loads(out)}
    assert {name: rows[name]["left"] for name in QUEUES} == dict.fromkeys(QUEUES, 0)
    moved, seconds = sum(row["moved"] for row in rows.values()), time.monotonic() - began
    sys.stdout.write(f"the last run moved {moved} of {total} messages in {seconds:.1f} s\n")
    assert rows["import-quorum"]["differences"].startswith("type quorum there, classic here")
    assert_all_is_here(here)


def assert_all_is_here(here: BrokerProcess) -> None:
    channel = channel_of(here.address.url())
    twice = 0
    for name in QUEUES:
        got: Counter[int] = Counter()
        for method, properties, body in channel.consume(name, inactivity_timeout=WAIT_SECONDS_MAX):
            assert method is not None, f"{name} has too few messages"
            number = int(body)
            got[number] += 1
            assert_same(properties, number, name)
            assert method.routing_key == (f"a.{number % 7}" if name == "import-topic" else name)
            channel.basic_ack(method.delivery_tag)
            if len(got) == MESSAGES and ready(channel, name) == 0:
                break
        channel.cancel()
        assert set(got) == set(range(MESSAGES))
        assert list(got) == sorted(got) or name in SPECIAL, "first arrivals are in order"
        twice += sum(got.values()) - MESSAGES
    sys.stdout.write(f"{twice} messages arrived twice\n")
    assert twice <= KILLS * BATCH
    channel.connection.close()


def assert_same(properties: pika.BasicProperties, number: int, name: str) -> None:
    wanted = properties_of(number)
    headers = dict(properties.headers)
    if name == "import-quorum":  # RabbitMQ itself adds how often it has tried to deliver a message
        headers.pop("x-delivery-count", None)
    assert headers == wanted.headers
    properties.headers = wanted.headers
    assert properties == wanted


# --- streams ---


@pytest.fixture
def stream(rabbitmq: RabbitMQ, here: BrokerProcess) -> Iterator[RabbitMQ]:
    """A RabbitMQ with a stream that both have, and messages."""
    ours, theirs = channel_of(here.address.url()), channel_of(rabbitmq.amqp_url())
    for channel in (ours, theirs):
        channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
    theirs.confirm_delivery()
    for number in range(MESSAGES):
        properties = properties_of(number)
        properties.headers = {"number": number, "text": "t"}  # RabbitMQ's streams take no tables in tables
        theirs.basic_publish("", STREAM, b"%d" % number, properties)
    ours.connection.close()
    theirs.connection.close()
    yield rabbitmq
    theirs = channel_of(rabbitmq.amqp_url())
    theirs.queue_delete(STREAM)
    theirs.connection.close()


def test_stream_is_copied_each_message_once_though_killed(stream: RabbitMQ, here: BrokerProcess) -> None:
    for kill in range(KILLS):
        at = MESSAGES * (kill + 1) // (KILLS + 1)
        kill_half_way(run(stream, here, batch=STREAM_BATCH), here, at, [STREAM])
    for _ in ("the rest", "nothing"):
        process = run(stream, here)
        out, err = process.communicate(timeout=RUN_SECONDS_MAX)
        assert process.returncode == 0, err + out
        row = next(row for row in json.loads(out) if row["queue"] == STREAM)
        assert row["differences"] == "copied: the stream there keeps its messages"
        assert row["left"] == 0
    assert row["moved"] == 0
    channel = channel_of(here.address.url())
    assert ready(channel, STREAM) == MESSAGES
    channel.connection.close()
    copied = read_stream(here.address.url())
    assert [int(body) for _properties, body in copied] == list(range(MESSAGES))
    assert copied == read_stream(stream.amqp_url())


def read_stream(url: str) -> list[tuple[pika.BasicProperties, bytes]]:
    """All messages, without the header that tells their offsets."""
    channel = channel_of(url)
    channel.basic_qos(prefetch_count=BATCH)
    found: list[tuple[pika.BasicProperties, bytes]] = []
    arguments = {"x-stream-offset": "first"}
    deliveries = channel.consume(STREAM, inactivity_timeout=WAIT_SECONDS_MAX, arguments=arguments)
    for method, properties, body in deliveries:
        assert method is not None, f"only {len(found)} messages"
        assert properties.headers.pop("x-stream-offset") == len(found)
        found.append((properties, body))
        channel.basic_ack(method.delivery_tag)
        if len(found) == MESSAGES:
            break
    channel.cancel()
    channel.connection.close()
    return found
