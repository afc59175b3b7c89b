"""AMQPStorm's management API, about live objects: what programs and their tests do with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from amqpstorm.connection import Connection
from amqpstorm.exception import AMQPConnectionError
from amqpstorm.management.api import ManagementApi
from amqpstorm.management.exception import ApiError
from amqpstorm.message import Message

from tests.clients.conftest import serve_until
from tests.support.process import BrokerProcess


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("storm") / "data") as process:
        yield process
        process.check_log()


@pytest.fixture
def api(process: BrokerProcess) -> Iterator[ManagementApi]:
    with ManagementApi(process.http_url, "guest", "guest") as api:
        yield api


@pytest.fixture
def connection(process: BrokerProcess) -> Iterator[Connection]:
    connection = Connection(process.address.host, "guest", "guest", port=process.address.port)
    yield connection
    if connection.is_open:
        connection.close()


def test_queue_is_declared_listed_purged_and_deleted(api: ManagementApi, name: str) -> None:
    api.queue.declare(name, durable=True, arguments={"x-max-length": 5})
    api.queue.declare(name, durable=True, arguments={"x-max-length": 5})
    assert api.queue.declare(name, passive=True)["arguments"] == {"x-max-length": 5}
    assert [row["name"] for row in api.queue.list(name=name)] == [name]
    assert [row["name"] for row in api.queue.list(name=f"^{name}$", use_regex=True, show_all=True)] == [name]
    api.basic.publish("x", name, exchange="amq.default")
    assert api.queue.get(name)["messages"] == 1
    api.queue.purge(name)
    assert api.queue.get(name)["messages"] == 0
    api.queue.delete(name)
    with pytest.raises(ApiError) as absent:
        api.queue.get(name)
    assert absent.value.error_code == 404


def test_exchange_is_declared_bound_and_deleted(api: ManagementApi, name: str) -> None:
    api.exchange.declare(name, "topic", durable=True)
    assert api.exchange.get(name)["type"] == "topic"
    assert name in {row["name"] for row in api.exchange.list()}
    api.queue.declare(name)
    api.queue.bind(name, name, "a.#")
    api.exchange.bind(name, "amq.topic", "k")
    assert {row["routing_key"] for row in api.queue.bindings(name)} == {name, "a.#"}
    assert [row["source"] for row in api.exchange.bindings("amq.topic") if row["destination"] == name]
    [key] = [row["properties_key"] for row in api.queue.bindings(name) if row["source"] == name]
    api.queue.unbind(name, name, properties_key=key.replace("%", "%25"))
    api.exchange.unbind(name, "amq.topic", "k")
    assert {row["routing_key"] for row in api.queue.bindings(name)} == {name}
    api.exchange.delete(name)
    with pytest.raises(ApiError):
        api.exchange.get(name)


def test_declaring_otherwise_is_refused(api: ManagementApi, name: str) -> None:
    api.queue.declare(name, durable=True)
    with pytest.raises(ApiError) as refused:
        api.queue.declare(name, durable=False)
    assert refused.value.error_code == 400


def test_messages_are_published_and_got(api: ManagementApi, name: str) -> None:
    api.queue.declare(name)
    properties: dict[str, Any] = {"content_type": "text/plain", "headers": {"n": 1}}
    published = api.basic.publish("hello", name, exchange="amq.default", properties=properties)
    assert published == {"routed": True}
    for requeue in (True, False):
        [message] = api.basic.get(name, requeue=requeue)
        assert isinstance(message, Message)
        assert (message.body, message.properties["headers"]) == ("hello", {"n": 1})
    assert api.basic.get(name) == []


def test_connection_and_channel_are_described_and_closed(
    api: ManagementApi, connection: Connection, name: str
) -> None:
    channel = connection.channel()
    channel.queue.declare(name, exclusive=True)
    [mine] = [row for row in api.connection.list() if row["client_properties"]["product"] == "AMQPStorm"]
    assert api.connection.get(mine["name"])["channels"] == 1
    assert api.channel.get(f"{mine['name']} (1)")["number"] == 1
    assert f"{mine['name']} (1)" in {row["name"] for row in api.channel.list()}
    api.connection.close(mine["name"], reason="so it is")
    with pytest.raises(AMQPConnectionError, match="CONNECTION_FORCED - so it is"):
        serve_until(connection.check_for_errors, lambda: False)


def test_broker_is_alive_and_tells_of_itself(api: ManagementApi) -> None:
    assert api.aliveness_test("/") == {"status": "ok"}
    assert api.cluster_name() == {"name": "warren"}
    assert api.overview()["object_totals"]["queues"] >= 1
    assert api.node("warren")["running"] is True
    assert [node["name"] for node in api.nodes()] == ["warren"]
    assert api.healthchecks.get() == {"status": "ok"}
    assert api.whoami()["name"] == "guest"
