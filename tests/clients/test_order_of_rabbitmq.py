"""Lists of the HTTP API come in the order of a real RabbitMQ that has the same objects."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pika
import pytest

from tests.clients.conftest import needs_rabbitmq, serve_until
from tests.support.management_client import ManagementClient
from tests.support.process import BrokerProcess
from tests.support.rabbitmq import RabbitMQ

pytestmark = [pytest.mark.slow, needs_rabbitmq]

VHOSTS, USERS, EXCHANGES, GLOBALS = ("ob", "oa"), ("oz", "oc"), ("zz", "aa"), ("oz", "od")
QUEUES = ("z", "Z", "a", "10", "9", "_", "é")
POLICIES = {"pz": 1, "pa": 3, "pb": 1, "pc": 0}
NONE = {"configure": "", "write": "", "read": ""}
COLUMNS = {
    "queues": ("vhost", "name"),
    "queues?sort_reverse=true": ("vhost", "name"),
    "queues?sort=durable": ("vhost", "name"),
    "queues?sort=durable&sort_reverse=true": ("vhost", "name"),
    "queues/oa?page=2&page_size=3": ("name",),
    "exchanges": ("vhost", "name"),
    "exchanges?sort=type&sort_reverse=true": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination", "destination_type", "routing_key"),
    "bindings/oa": ("source", "destination", "destination_type", "routing_key"),
    "queues/oa/z/bindings": ("source", "routing_key"),
    "exchanges/oa/aa/bindings/source": ("destination", "destination_type", "routing_key"),
    "exchanges/oa/aa/bindings/destination": ("source", "routing_key"),
    "bindings/oa/e/zz/q/a": ("routing_key",),
    "vhosts": ("name",),
    "users": ("name",),
    "permissions": ("vhost", "user"),
    "users/oz/permissions": ("vhost", "user"),
    "vhosts/oa/permissions": ("vhost", "user"),
    "topic-permissions": ("vhost", "user", "exchange"),
    "policies": ("vhost", "name"),
    "operator-policies": ("vhost", "name"),
    "parameters": ("vhost", "component", "name"),
    "global-parameters": ("name",),
    "vhost-limits": ("vhost",),
    "user-limits": ("user",),
}


def define(api: ManagementClient) -> None:
    for user in USERS:
        api.call("PUT", f"users/{user}", {"password": "p", "tags": ""})
        api.call("PUT", f"user-limits/{user}/max-channels", {"value": 70})
    for name in GLOBALS:
        api.call("PUT", f"global-parameters/{name}", {"value": 1})
    for vhost in VHOSTS:
        api.call("PUT", f"vhosts/{vhost}", {})
        api.call("PUT", f"vhost-limits/{vhost}/max-queues", {"value": 70})
        define_in(api, vhost)


def define_in(api: ManagementClient, vhost: str) -> None:
    for name in QUEUES:
        api.call("PUT", f"queues/{vhost}/{quote(name)}", {"durable": True})
    for name in EXCHANGES:
        api.call("PUT", f"exchanges/{vhost}/{name}", {"type": "topic"})
    for source in EXCHANGES:
        for key in ("k2", "k1", ""):
            for end in ("q/z", "q/a", "e/aa"):
                api.call("POST", f"bindings/{vhost}/e/{source}/{end}", {"routing_key": key})
    for name, priority in POLICIES.items():
        policy = {"pattern": "^none", "definition": {"expires": 1_000_000}, "priority": priority}
        for kind in ("policies", "operator-policies"):
            api.call("PUT", f"{kind}/{vhost}/{name}", policy)
    for user in USERS:
        api.call("PUT", f"permissions/{vhost}/{user}", NONE)
        for exchange in EXCHANGES:
            topics = {"exchange": exchange, "write": "", "read": ""}
            api.call("PUT", f"topic-permissions/{vhost}/{user}", topics)


def defined_on(http_url: str) -> Iterator[ManagementClient]:
    api = ManagementClient(http_url)
    define(api)
    yield api
    made = {"vhosts": VHOSTS, "users": USERS, "global-parameters": GLOBALS}
    for kind, names in made.items():
        for name in names:
            api.call("DELETE", f"{kind}/{name}")


@pytest.fixture(scope="module")
def there(rabbitmq: RabbitMQ) -> Iterator[ManagementClient]:
    yield from defined_on(rabbitmq.http_url)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("warren") / "data") as broker:
        yield broker


@pytest.fixture(scope="module")
def here(broker: BrokerProcess) -> Iterator[ManagementClient]:
    yield from defined_on(broker.http_url)


def shown(api: ManagementClient, path: str) -> list[tuple[str, ...]]:
    """The columns of the rows; but not those of what other tests have made in the same RabbitMQ."""
    found = api.call("GET", path)
    rows = found if isinstance(found, list) else found["items"]
    told = [tuple(row[column] for column in COLUMNS[path]) for row in rows]
    ours = (*VHOSTS, *USERS, *GLOBALS)
    return [each for each in told if each[0] in ours or path.count("oa")]


@pytest.mark.parametrize("path", COLUMNS)
def test_list_comes_in_the_order_of_rabbitmq(
    there: ManagementClient, here: ManagementClient, path: str
) -> None:
    assert shown(here, path) == shown(there, path)
    assert len(shown(here, path)) > 1


def clients_in_order(api: ManagementClient, amqp: pika.URLParameters) -> list[object]:
    """The lists of connections, channels and consumers, after some were made."""
    made = []
    for vhost in VHOSTS:
        amqp.virtual_host = vhost
        made.append(pika.BlockingConnection(amqp))
        for queue in ("z", "a"):
            channel = made[-1].channel()
            for tag in ("t2", "t1"):
                channel.basic_consume(queue, lambda *_: None, consumer_tag=tag + queue)

    def serve() -> None:
        for connection in made:
            connection.process_data_events(0.1)

    def told() -> list[list[object]]:
        """Of these connections only: those of other tests may be shown for a while after they have ended."""
        lists = [api.call("GET", path) for path in ("connections", "channels")]
        ours = [[row for row in rows if row.get("vhost") in VHOSTS] for rows in lists]
        rows = [row for row in consumers(api) if row["queue"]["vhost"] in VHOSTS]
        return [
            [row["vhost"] for row in ours[0]],
            [(row["vhost"], row["number"]) for row in ours[1]],
            [(row["queue"]["vhost"], row["queue"]["name"], row["consumer_tag"]) for row in rows],
        ]

    try:
        serve_until(serve, lambda: [len(rows) for rows in told()] == [2, 4, 8])
        return list(told())
    finally:
        for connection in made:
            connection.close()


def consumers(api: ManagementClient) -> list[dict[str, dict[str, str]]]:
    """Those of one connection as they come: connections go by their ports, which the kernel chooses."""
    rows = api.call("GET", "consumers")
    return sorted(rows, key=lambda row: str(row["queue"]["vhost"]))


def test_clients_are_in_the_order_of_rabbitmq(
    rabbitmq: RabbitMQ, there: ManagementClient, broker: BrokerProcess, here: ManagementClient
) -> None:
    theirs = clients_in_order(there, pika.URLParameters(rabbitmq.amqp_url()))
    ours = clients_in_order(here, pika.URLParameters(broker.address.url()))
    assert ours == theirs
