"""The commands for operators against real brokers, as a script uses them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pika
import pytest

from tests.clients.conftest import WAIT_SECONDS_MAX, needs_rabbitmq, serve_until
from tests.support.process import Address, BrokerProcess
from tests.support.rabbitmq import RabbitMQ
from warren.cli.main import main

pytestmark = pytest.mark.slow

BROKERS = ["warren", pytest.param("rabbitmq", marks=needs_rabbitmq)]

Run = Callable[..., Any]


class Serving(NamedTuple):
    address: Address
    http_url: str


@pytest.fixture(scope="module", params=BROKERS)
def serving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    if request.param == "rabbitmq":
        rabbitmq: RabbitMQ = request.getfixturevalue("rabbitmq")
        yield Serving(Address("127.0.0.1", rabbitmq.port), with_login(rabbitmq.http_url))
        return
    with BrokerProcess(tmp_path_factory.mktemp("commands") / "data") as broker:
        yield Serving(broker.address, with_login(broker.http_url))


def with_login(url: str) -> str:
    return url.replace("://", "://guest:guest@")


@pytest.fixture
def run(
    serving: Serving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs a command in the test's vhost, and gives what it printed as JSON."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("WARREN_URL", serving.http_url)

    def run(words: str, *more: str, code: int = 0, vhost: str | None = "commands") -> Any:
        where = [] if vhost is None else ["-p", vhost]
        assert main([*words.split(), *more, *where, "--json"]) == code, capsys.readouterr().err
        out = capsys.readouterr().out
        return json.loads(out) if out else None

    return run


@pytest.fixture(autouse=True)
def vhost(run: Run) -> Iterator[None]:
    run("vhosts add commands --description tests", vhost=None)
    yield
    run("vhosts delete commands", vhost=None)


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


def test_queues(run: Run) -> None:
    run("queues declare a --argument x-max-length=10")
    run("queues declare b --transient --auto-delete")
    assert names(run("queues ls --sort name")) == ["a", "b"]
    assert names(run("queues ls --name ^b --regex")) == ["b"]
    assert run("queues ls name durable --sort name") == [
        {"name": "a", "durable": True},
        {"name": "b", "durable": False},
    ]
    assert run("queues show a")["arguments"] == {"x-max-length": 10}
    run("queues delete b")
    assert names(run("queues ls")) == ["a"]


def test_messages(run: Run) -> None:
    run("queues declare q")
    assert run("publish q hello --property message_id=m --header n=1") == {"routed": True}
    assert run("publish nowhere hello", code=1) == {"routed": False}
    [message] = run("get q")
    assert (message["payload"], message["properties"]["headers"]) == ("hello", {"n": 1})
    [message] = run("get q --ackmode ack_requeue_false")
    assert message["redelivered"]
    assert run("get q --count 5") == []
    run("publish q x")
    run("purge q")
    assert run("get q") == []
    run("queues delete q --if-empty")


def test_exchanges_and_bindings(run: Run) -> None:
    run("queues declare q")
    run("exchanges declare e --type topic")
    run("exchanges declare f --type fanout")
    assert run("exchanges show e")["type"] == "topic"
    run("bindings add e q --key a.*")
    run("bindings add e q --key a.* --argument x=1")
    run("bindings add e f --to-exchange --key b")
    assert run("exchanges publish e a.b hello") == {"routed": True}
    rows = [row for row in run("bindings ls") if row["source"] == "e"]
    assert sorted((row["destination"], row["routing_key"], str(row["arguments"])) for row in rows) == [
        ("f", "b", "{}"),
        ("q", "a.*", "{'x': 1}"),
        ("q", "a.*", "{}"),
    ]
    run("bindings rm e q --key a.*")
    run("bindings rm e q --key a.* --argument x=1")
    run("bindings rm e f --to-exchange --key b")
    assert [row for row in run("bindings ls") if row["source"] == "e"] == []
    run("exchanges delete e --if-unused")


def test_users_and_permissions(run: Run, monkeypatch: pytest.MonkeyPatch, serving: Serving) -> None:
    for command, password in (("users add somebody management", "one"), ("users passwd somebody", "two")):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
        run(command, vhost=None)
    run("permissions set somebody ^a ^b ^c")
    [row] = run("permissions ls --user somebody", vhost=None)
    assert (row["vhost"], row["configure"], row["write"], row["read"]) == ("commands", "^a", "^b", "^c")
    run("topic-permissions set somebody amq.topic ^w ^r")
    assert [row["write"] for row in run("topic-permissions ls")] == ["^w"]
    run("topic-permissions clear somebody")
    url = serving.http_url.replace("guest:guest", "somebody:two")
    assert run(f"whoami --url {url}", vhost=None)["name"] == "somebody"
    run("users tags somebody monitoring policymaker", vhost=None)
    assert run(f"whoami --url {url}", vhost=None)["tags"] == ["monitoring", "policymaker"]
    run(f"users ls --url {url}", vhost=None, code=1)
    run("permissions clear somebody")
    run("users delete somebody", vhost=None)
    assert "somebody" not in names(run("users ls", vhost=None))


def test_policies_limits_and_parameters(run: Run) -> None:
    run("policies set p ^q", '{"max-length": 5}', "--priority", "3", "--apply-to", "queues")
    run("policies set o ^q", '{"max-length": 9}', "--operator")
    assert [(row["name"], row["definition"]) for row in run("policies ls")] == [("p", {"max-length": 5})]
    assert names(run("policies ls --operator")) == ["o"]
    run("policies delete p")
    run("policies delete o --operator")
    run("limits set max-queues 7")
    assert run("limits ls") == [{"vhost": "commands", "limit": "max-queues", "value": 7}]
    run("limits clear max-queues")
    assert run("limits ls") == []
    run("limits set max-channels 9 --user guest")
    assert run("limits ls --user guest") == [{"user": "guest", "limit": "max-channels", "value": 9}]
    run("limits clear max-channels --user guest")
    run("global-parameters set commands-test", '{"a": 1}', vhost=None)
    rows = run("global-parameters ls", vhost=None)
    assert next(row["value"] for row in rows if row["name"] == "commands-test") == {"a": 1}
    run("global-parameters delete commands-test", vhost=None)


def test_shovels(run: Run, serving: Serving) -> None:
    """What both brokers tell of a shovel is the same."""
    run("queues declare a")
    run("publish a hello")
    uri = serving.address.url("commands")
    here = "--src-uri amqp:///commands --src-queue a"
    run(f"shovels declare s {here} --dest-queue b --dest-uri {uri} --reconnect-delay 1")
    rows: list[dict[str, Any]] = []

    def look() -> None:
        rows[:] = run("shovels ls")

    serve_until(look, lambda: [row["state"] for row in rows] == ["running"])
    told = {
        "name": "s",
        "vhost": "commands",
        "type": "dynamic",
        "state": "running",
        "src_uri": "amqp:///commands",
        "src_protocol": "amqp091",
        "src_queue": "a",
        "dest_uri": f"amqp://{serving.address.host}:{serving.address.port}/commands",
        "dest_protocol": "amqp091",
        "dest_queue": "b",
    }
    assert {name: rows[0][name] for name in told} == told
    assert run("shovels show s")["timestamp"] == rows[0]["timestamp"]
    serve_until(look, lambda: bool(run("get b")))
    run("shovels restart s")
    serve_until(look, lambda: [row["state"] for row in rows] == ["running"])
    run("shovels delete s")
    run("shovels delete s", code=1)
    assert run("shovels ls") == []
    assert run("parameters ls --component shovel") == []


def test_definitions(run: Run, tmp_path: Path) -> None:
    run("queues declare kept")
    file = tmp_path / "definitions.json"
    run("definitions export", str(file))
    run("queues delete kept")
    run("definitions import", str(file))
    assert names(run("queues ls")) == ["kept"]


def test_connections_channels_and_consumers(run: Run, serving: Serving) -> None:
    run("queues declare q")
    parameters = pika.URLParameters(serving.address.url("commands"))
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.basic_consume("q", lambda *_delivery: None, consumer_tag="tag")

    def listed(kind: str, count: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []

        def look() -> None:
            rows[:] = run(f"{kind} ls")
            connection.process_data_events(0.1)

        serve_until(look, lambda: len(rows) == count)
        return rows

    [consumer] = listed("consumers", 1)
    assert (consumer["queue"]["name"], consumer["consumer_tag"]) == ("q", "tag")
    [found] = listed("channels", 1)
    assert run("channels show", found["name"], vhost=None)["user"] == "guest"
    [found] = listed("connections", 1)
    assert run("connections show", found["name"], vhost=None)["vhost"] == "commands"
    run("connections close", found["name"], "--reason", "maintenance", vhost=None)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maintenance"):
        connection.process_data_events(WAIT_SECONDS_MAX)


def test_watching(run: Run) -> None:
    run("queues declare q")
    assert run("status", vhost=None)["overview"]["object_totals"]["queues"] >= 1
    assert [row["status"] for row in run("health", vhost=None)] == ["ok"] * 3
    assert "q" in names(run("top --once")["queues"])
    run("top --once --connections --sort name", vhost=None)
    run("queues show absent", code=1)
