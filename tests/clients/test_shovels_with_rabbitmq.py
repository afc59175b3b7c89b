"""Shovels between a real RabbitMQ and WarrenMQ: ours from there and to there, and RabbitMQ's own."""

from __future__ import annotations

import json
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote

import pika
import pytest

from tests.support.process import BrokerProcess
from tests.support.rabbitmq import IS_INSTALLED, RabbitMQ, run_rabbitmq

pytestmark = [
    pytest.mark.skipif(not IS_INSTALLED, reason="Debian's rabbitmq-server is not installed"),
    pytest.mark.timeout(600),
]
COUNT = 3000
WAIT_SECONDS_MAX = 120
LOGIN = "Basic " + b64encode(b"guest:guest").decode()
PROPERTIES = pika.BasicProperties(
    content_type="text/plain",
    headers={"number": 5, "text": "ü", "nested": {"list": [1, "two", None, True]}, "big": 2**40},
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="r",
    message_id="m",
    timestamp=1_700_000_000,
    type="t",
    app_id="a",
)


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    directory = tmp_path_factory.mktemp("rabbitmq") / "node"
    with run_rabbitmq(directory, "rabbitmq_shovel", "rabbitmq_shovel_management") as found:
        yield found


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("ours") / "data") as process:
        yield process
        process.check_log()


def put_shovel(http_url: str, name: str, **definition: object) -> None:
    value = {key.replace("_", "-"): given for key, given in definition.items()}
    request = urllib.request.Request(  # noqa: S310 - our own brokers
        f"{http_url}/api/parameters/shovel/%2F/{quote(name)}",
        data=json.dumps({"value": value}).encode(),
        headers={"Authorization": LOGIN, "Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        assert answer.status in {201, 204}


def publish(url: str, queue: str) -> list[bytes]:
    bodies = [b"%d" % number for number in range(COUNT)] + [b"", b"large" * 100_000]
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    for body in bodies:
        channel.basic_publish("", queue, body, PROPERTIES)
    connection.close()
    return bodies


def check_arrived(url: str, queue: str, bodies: list[bytes]) -> None:
    """All of these are in the queue, in order, with their properties."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    arriving = channel.consume(queue, auto_ack=True, inactivity_timeout=WAIT_SECONDS_MAX)
    for number, body in enumerate(bodies):
        method, properties, got = next(arriving)
        assert method is not None, f"{number} of {len(bodies)} have arrived"
        assert got == body
        assert properties == PROPERTIES
    assert channel.cancel() == 0, "more have arrived"
    assert channel.basic_get(queue)[0] is None
    connection.close()


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
@pytest.mark.parametrize("runs_in", ["ours", "rabbitmq"])
@pytest.mark.parametrize("goes_to", ["ours", "rabbitmq"])
def test_messages_arrive_as_they_were(
    rabbitmq: RabbitMQ, ours: BrokerProcess, ack_mode: str, runs_in: str, goes_to: str
) -> None:
    urls = {"ours": ours.address.url(), "rabbitmq": rabbitmq.amqp_url() + "%2F"}
    source, destination = (
        (urls["rabbitmq"], urls["ours"]) if goes_to == "ours" else (urls["ours"], urls["rabbitmq"])
    )
    queue = f"{ack_mode} to {goes_to}, run by {runs_in}"
    bodies = publish(source, queue)
    put_shovel(
        ours.http_url if runs_in == "ours" else rabbitmq.http_url,
        queue,
        src_uri=source,
        src_queue=queue,
        dest_uri=destination,
        dest_queue=queue,
        ack_mode=ack_mode,
    )
    check_arrived(destination, queue, bodies)
