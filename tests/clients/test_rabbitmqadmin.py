"""RabbitMQ's own `rabbitmqadmin`, from Debian's package: each of its commands about live objects."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingConnection

from tests.clients.conftest import WAIT_SECONDS_MAX
from tests.support.process import BrokerProcess

ADMIN = shutil.which("rabbitmqadmin")
pytestmark = pytest.mark.skipif(ADMIN is None, reason="Debian's rabbitmq-server is not installed")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("admin") / "data") as process:
        yield process
        process.check_log()


class Admin:
    """Runs the command as a user does, and reads what it prints."""

    def __init__(self, process: BrokerProcess, home: Path) -> None:
        host, _, port = process.http_url.removeprefix("http://").rpartition(":")
        self.command = [ADMIN or "", "--host", host, "--port", port]
        self.home = home  # without a configuration of the user's

    def run(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS_MAX,
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin"},
            check=False,
        )

    def __call__(self, *words: str, given: str | None = None) -> str:
        done = self.run(*words, given=given)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def rows(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self("--format", "raw_json", *words))
        return found


@pytest.fixture
def admin(process: BrokerProcess, tmp_path: Path) -> Admin:
    return Admin(process, tmp_path)


@pytest.fixture
def client(process: BrokerProcess) -> Iterator[BlockingConnection]:
    connection = pika.BlockingConnection(pika.URLParameters(process.address.url()))
    yield connection
    if connection.is_open:
        connection.close()


def test_queues_exchanges_and_bindings_are_declared_and_deleted(admin: Admin, name: str) -> None:
    admin("declare", "exchange", f"name={name}", "type=topic", "durable=false")
    for _again in range(2):
        arguments = json.dumps({"x-max-length": 100})
        admin("declare", "queue", f"name={name}", "durable=true", f"arguments={arguments}")
    admin("declare", "binding", f"source={name}", f"destination={name}", "routing_key=a.#")
    admin("declare", "binding", f"source={name}", f"destination={name}", 'arguments={"n": 1}')
    [queue] = [row for row in admin.rows("list", "queues") if row["name"] == name]
    assert (queue["durable"], queue["arguments"]) == (True, {"x-max-length": 100})
    bindings = [row for row in admin.rows("list", "bindings") if row["source"] == name]
    assert {row["routing_key"] for row in bindings} == {"", "a.#"}
    for binding in bindings:
        key = binding["properties_key"]
        admin(
            "delete",
            "binding",
            f"source={name}",
            "destination_type=queue",
            f"destination={name}",
            f"properties_key={key}",
        )
    assert not [row for row in admin.rows("list", "bindings") if row["source"] == name]
    admin("delete", "queue", f"name={name}")
    admin("delete", "exchange", f"name={name}")
    for kind in ("queues", "exchanges"):
        assert not [row for row in admin.rows("list", kind) if row["name"] == name]


def test_messages_are_published_got_and_purged(admin: Admin, name: str, tmp_path: Path) -> None:
    admin("declare", "queue", f"name={name}")
    properties = json.dumps({"delivery_mode": 2, "headers": {"n": 1}})
    admin("publish", f"routing_key={name}", "payload=first", f"properties={properties}")
    admin("publish", f"routing_key={name}", given="second ü")
    assert "NOT routed" in admin("publish", "routing_key=nobody", "payload=lost")
    got = admin.rows("get", f"queue={name}", "count=5")
    assert [row["payload"] for row in got] == ["first", "second ü"]
    assert got[0]["properties"] == {"delivery_mode": 2, "headers": {"n": 1}}
    admin("get", f"queue={name}", "ackmode=ack_requeue_false", f"payload_file={tmp_path / 'body'}")
    assert (tmp_path / "body").read_bytes() == b"first"
    table = admin("get", f"queue={name}", "ackmode=reject_requeue_true", "encoding=base64")
    assert "base64" in table
    admin("purge", "queue", f"name={name}")
    assert admin.rows("get", f"queue={name}") == []


def test_columns_and_sorting_are_rabbitmqs(admin: Admin, name: str) -> None:
    for letter in "bca":
        admin("declare", "queue", f"name={name}-{letter}")
    shown = admin("--format", "tsv", "--sort", "name", "--sort-reverse", "list", "queues", "name", "messages")
    rows = [line.split("\t") for line in shown.splitlines() if name in line]
    assert rows == [[f"{name}-{letter}", "0"] for letter in "cba"]


def test_connections_channels_and_consumers_are_listed_and_closed(
    admin: Admin, client: BlockingConnection, name: str
) -> None:
    channel = client.channel()
    channel.queue_declare(name)
    channel.basic_consume(name, lambda *_delivery: None, consumer_tag=name)
    [consumer] = [row for row in admin.rows("list", "consumers") if row["consumer_tag"] == name]
    connection = consumer["channel_details"]["connection_name"]
    assert connection in {row["name"] for row in admin.rows("list", "connections")}
    assert f"{connection} (1)" in {row["name"] for row in admin.rows("list", "channels")}
    assert connection in admin("list", "connections")
    admin("close", "connection", f"name={connection}")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        client.process_data_events(time_limit=WAIT_SECONDS_MAX)
    assert closed.value.reply_code == 320
    assert closed.value.reply_text == "CONNECTION_FORCED - Closed via management plugin"


def test_overview_and_nodes_are_shown(admin: Admin) -> None:
    assert "3.13" in admin("show", "overview")
    [node] = admin.rows("list", "nodes")
    assert (node["name"], node["running"]) == ("warren", True)
    assert "/" in {row["name"] for row in admin.rows("list", "vhosts")}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("declare", "exchange", "name=amq.topic", "type=direct"), "inequivalent arg 'type'"),
        (("delete", "queue", "name=absent"), "Not found: "),
        (("declare", "queue", "name=amq.mine"), "Access refused: "),
        (("publish", "routing_key=q", "payload=x", "payload_encoding=rot13"), "rot13"),
    ],
)
def test_errors_are_told(admin: Admin, words: tuple[str, ...], reason: str) -> None:
    done = admin.run(*words)
    assert done.returncode == 1
    assert reason in done.stdout + done.stderr
