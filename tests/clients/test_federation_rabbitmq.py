"""Federation with a real RabbitMQ, as upstream and as downstream."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

import warren
from tests.clients.conftest import needs_rabbitmq
from tests.support.federation import (
    V,
    are_running,
    bind,
    bodies_of,
    count_in,
    declare_exchange,
    declare_queue,
    federate,
    has_key,
    named_broker,
    publish,
    received_from,
    set_upstream,
    stations,
    take,
    until,
)
from tests.support.rabbitmq import RabbitMQ, run_rabbitmq
from warren.broker import commands as c

pytestmark = [needs_rabbitmq, pytest.mark.slow, pytest.mark.timeout(600)]

WAIT_SECONDS_MAX = 60
TRY_AGAIN_SECONDS = 0.1
GUEST = f"Basic {base64.b64encode(b'guest:guest').decode()}"


class RabbitApi:
    """The HTTP API of the RabbitMQ."""

    def __init__(self, rabbit: RabbitMQ, session: aiohttp.ClientSession) -> None:
        self.rabbit = rabbit
        self.session = session

    @property
    def url(self) -> str:
        return self.rabbit.amqp_url()

    async def call(self, method: str, path: str, content: object = None) -> Any:
        url = URL(f"{self.rabbit.http_url}/api/{path}", encoded=True)
        async with self.session.request(method, url, json=content) as answer:
            text = await answer.text()
            assert answer.ok, f"{method} {path}: {answer.status} {text}"
            return json.loads(text) if text else None

    async def put(self, path: str, **content: object) -> None:
        await self.call("PUT", path, content)

    async def set_upstream(self, name: str, uri: str, **fields: object) -> None:
        value = {"uri": uri, "reconnect-delay": 1, **fields}
        await self.put(f"parameters/federation-upstream/%2F/{name}", value=value)

    async def federate(self, name: str, upstream: str, apply_to: str) -> None:
        """Federate what has this name."""
        definition = {"federation-upstream": upstream}
        await self.put(
            f"policies/%2F/{name}", pattern=f"^{name}$", definition=definition, **{"apply-to": apply_to}
        )

    async def bind(self, exchange: str, queue: str, key: str) -> None:
        await self.put(f"queues/%2F/{queue}", durable=True)
        await self.call("POST", f"bindings/%2F/e/{exchange}/q/{queue}", {"routing_key": key})

    async def keys_of(self, exchange: str) -> list[str]:
        bindings = await self.call("GET", f"exchanges/%2F/{exchange}/bindings/source")
        return sorted(binding["routing_key"] for binding in bindings)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not await condition():  # noqa: ASYNC110 - over HTTP one can only ask
                await asyncio.sleep(TRY_AGAIN_SECONDS)

    async def until_linked(self, name: str) -> None:
        """Wait until the link of an exchange or queue of this name runs."""

        async def is_linked() -> bool:
            links = await self.call("GET", "federation-links")
            found = [link for link in links if name in {link.get("exchange"), link.get("queue")}]
            return [link["status"] for link in found] == ["running"]

        await self.until(is_linked)


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    directory = tmp_path_factory.mktemp("rabbitmq") / "node"
    with run_rabbitmq(directory, "rabbitmq_federation", "rabbitmq_federation_management") as running:
        yield running


@pytest.fixture
async def theirs(rabbit: RabbitMQ) -> AsyncIterator[RabbitApi]:
    async with aiohttp.ClientSession(headers={"Authorization": GUEST}) as session:
        yield RabbitApi(rabbit, session)


@pytest.fixture
async def ours(tmp_path: Path) -> AsyncIterator[warren.Broker]:
    async with named_broker("ours", tmp_path) as broker:
        yield broker


def uri_of(broker: warren.Broker) -> str:
    """For RabbitMQ a path of / would be a vhost without a name."""
    return f"amqp://guest:guest@{broker.address}"


async def test_exchange_of_ours_gets_messages_of_rabbitmq(theirs: RabbitApi, ours: warren.Broker) -> None:
    declare_exchange(ours, "down")
    bind(ours, "down", "q", "a.#")
    set_upstream(ours, "rabbit", theirs.url)
    federate(ours, "^down$")
    await until(lambda: are_running(ours, 1))
    assert await theirs.keys_of("down") == ["a.#"]
    internal = await theirs.call("GET", "exchanges/%2F/federation%3A%20down%20-%3E%20ours%20A")
    assert (internal["type"], internal["internal"]) == ("x-federation-upstream", True)
    await publish(theirs.url, "down", "b.1", b"of no interest")
    await publish(theirs.url, "down", "a.1", b"one", headers={"mine": 1})
    (message,) = await take(ours.url, "q", 1)
    assert (message.body, message.routing_key, message.headers["mine"]) == (b"one", "a.1", 1)
    (station,) = received_from(message)
    assert station["cluster-name"] == (await theirs.call("GET", "cluster-name"))["name"]
    bind(ours, "down", "q", "c")
    ours.execute(c.Unbind(vhost=V, source="down", destination="q", to_queue=True, routing_key="a.#"))

    async def has_followed() -> bool:
        return await theirs.keys_of("down") == ["c"]

    await theirs.until(has_followed)
    ours.execute(c.DeletePolicy(vhost=V, name="federated"))

    async def is_tidy() -> bool:
        names = [
            row["name"] for row in await theirs.call("GET", "queues") + await theirs.call("GET", "exchanges")
        ]
        return not [name for name in names if name.startswith("federation: down")]

    await theirs.until(is_tidy)


async def test_exchange_of_rabbitmq_gets_messages_of_ours(theirs: RabbitApi, ours: warren.Broker) -> None:
    await theirs.put("exchanges/%2F/up", type="topic")
    await theirs.bind("up", "from-ours", "a.#")
    await theirs.set_upstream("ours", uri_of(ours))
    await theirs.federate("up", "ours", "exchanges")
    await theirs.until_linked("up")
    await until(lambda: has_key(ours, "up", "a.#"))
    internal = [
        each for each in ours.node.vhosts[V].exchanges.values() if each.internal and "up" in each.name
    ]
    assert [each.type for each in internal] == ["x-federation-upstream"]
    await publish(ours.url, "up", "b.1", b"of no interest")
    await publish(ours.url, "up", "a.1", b"one")
    (message,) = await take(theirs.url, "from-ours", 1)
    assert (message.body, message.routing_key) == (b"one", "a.1")
    (station,) = received_from(message)
    assert station["cluster-name"] == "ours"
    await theirs.call("DELETE", "bindings/%2F/e/up/q/from-ours/a.%23")
    await until(lambda: not has_key(ours, "up", "a.#"))
    await theirs.call("DELETE", "policies/%2F/up")
    await until(lambda: not [name for name in ours.node.vhosts[V].exchanges if name.startswith("federation")])


async def test_exchange_is_federated_with_rabbitmq_both_ways(theirs: RabbitApi, ours: warren.Broker) -> None:
    declare_exchange(ours, "both")
    bind(ours, "both", "q", "#")
    await theirs.put("exchanges/%2F/both", type="topic")
    await theirs.bind("both", "both-q", "#")
    set_upstream(ours, "rabbit", theirs.url, max_hops=2)
    federate(ours, "^both$")
    await theirs.set_upstream("ours-both", uri_of(ours), **{"max-hops": 2})
    await theirs.federate("both", "ours-both", "exchanges")
    await theirs.until_linked("both")
    await until(lambda: are_running(ours, 1) and has_key(ours, "both", "#"))
    await publish(ours.url, "both", "k", b"ours")
    await publish(theirs.url, "both", "k", b"theirs")
    for url, queue in ((ours.url, "q"), (theirs.url, "both-q")):
        found = await take(url, queue, 2)
        assert sorted(bodies_of(found)) == [b"ours", b"theirs"]
        assert sorted(stations(message) for message in found) == [0, 1]
    # whatever goes round in a circle would be here before these
    await publish(ours.url, "both", "k", b"last of ours")
    await publish(theirs.url, "both", "k", b"last of theirs")
    for url, queue in ((ours.url, "q"), (theirs.url, "both-q")):
        assert sorted(bodies_of(await take(url, queue, 2))) == [b"last of ours", b"last of theirs"]
    await theirs.call("DELETE", "policies/%2F/both")


async def test_queue_of_ours_gets_messages_of_rabbitmq(theirs: RabbitApi, ours: warren.Broker) -> None:
    declare_queue(ours, "queue-down")
    set_upstream(ours, "rabbit", theirs.url)
    federate(ours, "^queue-down$", "queues")
    await until(lambda: are_running(ours, 1))
    await publish(theirs.url, "", "queue-down", b"one", b"two")
    assert count_in(ours, "queue-down") == 0
    messages = await take(ours.url, "queue-down", 2)
    assert bodies_of(messages) == [b"one", b"two"]
    assert messages[0].headers["x-original-routing-key"] == "queue-down"


async def test_queue_of_rabbitmq_gets_messages_of_ours(theirs: RabbitApi, ours: warren.Broker) -> None:
    await theirs.put("queues/%2F/queue-up", durable=True)
    await theirs.set_upstream("ours-queue", uri_of(ours))
    await theirs.federate("queue-up", "ours-queue", "queues")
    await theirs.until_linked("queue-up")
    await publish(ours.url, "", "queue-up", b"one", b"two")
    assert count_in(ours, "queue-up") == 2
    assert bodies_of(await take(theirs.url, "queue-up", 2)) == [b"one", b"two"]
    await until(lambda: count_in(ours, "queue-up") == 0)
    await theirs.call("DELETE", "policies/%2F/queue-up")
