"""Definitions from a real RabbitMQ to WarrenMQ and back: the same objects, and users keep their passwords."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from tests.support.management_client import ManagementClient
from tests.support.process import BrokerProcess
from tests.support.rabbitmq import IS_INSTALLED, RabbitMQ, run_rabbitmq
from warren.broker.passwords import rabbit_hash

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not IS_INSTALLED, reason="Debian's rabbitmq-server is not installed"),
]
SALT = b"salt"
PASSWORDS = {"sha256": "first pässword", "sha512": "second", "md5": "third"}
KINDS = (
    "users", "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters", "policies",
    "queues", "exchanges", "bindings",
)  # fmt: skip
ALL_RULES = {
    "x-message-ttl": 60_000, "x-expires": 3_600_000, "x-max-length": 100, "x-max-length-bytes": 2**33,
    "x-overflow": "reject-publish", "x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "k",
    "x-max-priority": 5, "x-single-active-consumer": True, "x-queue-mode": "lazy",
}  # fmt: skip
PLUGINS = ("rabbitmq_shovel", "rabbitmq_federation", "rabbitmq_consistent_hash_exchange")
POLICIES = {
    "mirrored": {
        "ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic", "ha-promote-on-failure": "always",
        "ha-promote-on-shutdown": "when-synced", "queue-master-locator": "min-masters",
    },
    "queues": {
        "message-ttl": 1000, "max-length": 5, "max-length-bytes": 1000, "overflow": "reject-publish-dlx",
        "dead-letter-exchange": "", "dead-letter-routing-key": "x", "dead-letter-strategy": "at-least-once",
        "queue-mode": "lazy", "queue-version": 2, "delivery-limit": 3, "max-in-memory-length": 5,
        "max-in-memory-bytes": 500, "expires": 10_000_000,
    },
    "streams": {
        "max-age": "1D", "max-length-bytes": 100_000, "initial-cluster-size": 1,
        "queue-leader-locator": "least-leaders", "stream-max-segment-size-bytes": 500_000,
    },
    "exchanges": {"alternate-exchange": "amq.fanout"},
    "federated": {"federation-upstream-set": "all"},
    "federated from": {"federation-upstream": "up"},
    "federated like": {"federation-upstream-pattern": "^u"},
}  # fmt: skip
PARAMETERS: dict[str, object] = {
    "shovel/shop/move": {
        "src-protocol": "amqp091", "src-uri": "amqp://guest:secret@127.0.0.1:1/%2F", "src-queue": "ünï",
        "dest-protocol": "amqp091", "dest-uri": ["amqp://127.0.0.1:1"], "dest-queue": "brief",
        "reconnect-delay": 1_000_000, "dest-publish-properties": {"delivery_mode": 2},
    },
    "federation-upstream/shop/up": {"uri": "amqp://127.0.0.1:1", "max-hops": 2, "reconnect-delay": 1_000_000},
    "federation-upstream-set/shop/set": [{"upstream": "up"}],
}  # fmt: skip
QUORUM_RULES = {
    "x-queue-type": "quorum", "x-quorum-initial-group-size": 1, "x-max-in-memory-length": 10,
    "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    "x-dead-letter-exchange": "dead", "x-queue-leader-locator": "client-local",
}  # fmt: skip
VERSION_RULES = {"x-queue-type": "classic", "x-queue-version": 2, "x-queue-master-locator": "min-masters"}
POLICY = {"pattern": "^a", "definition": {"max-length": 9, "ha-mode": "all"}, "apply-to": "queues"}
OPERATOR_POLICY = {"pattern": "^b", "definition": {"expires": 99_999}, "priority": 3, "apply-to": "queues"}


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with run_rabbitmq(tmp_path_factory.mktemp("rabbitmq") / "home", *PLUGINS) as found:
        yield found


@pytest.fixture(scope="module")
def warren(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("warren") / "data") as broker:
        yield broker


@pytest.fixture(scope="module")
def exported(rabbitmq: RabbitMQ, warren: BrokerProcess) -> dict[str, Any]:
    """What RabbitMQ exported, and WarrenMQ has imported."""
    there, here = ManagementClient(rabbitmq.http_url), ManagementClient(warren.http_url)
    fill(there)
    definitions: dict[str, Any] = there.call("GET", "definitions")
    here.call("POST", "definitions", definitions)
    return definitions


def fill(there: ManagementClient) -> None:
    """Make something of everything, in the vhost `shop`."""
    there.call("PUT", "vhosts/shop", {"description": "all of it", "tags": "a,b"})
    there.call("PUT", "vhosts/a%2Fb%20%C3%BC", {})
    for name, password in PASSWORDS.items():
        hashed = rabbit_hash(f"rabbit_password_hashing_{name}", password, SALT)
        user = {"password_hash": hashed.value, "hashing_algorithm": hashed.algorithm}
        there.call("PUT", f"users/{name}", user | {"tags": "management,policymaker"})
        there.call("PUT", f"permissions/shop/{name}", {"configure": "^a", "write": ".*", "read": ""})
    there.call("PUT", "users/nobody", {"password_hash": "", "tags": ""})
    topics = {"exchange": "topics", "write": "^{username}", "read": ".*"}
    there.call("PUT", "topic-permissions/shop/md5", topics)
    there.call("PUT", "user-limits/md5/max-channels", {"value": 7})
    there.call("PUT", "vhost-limits/shop/max-queues", {"value": 70})
    there.call("PUT", "vhost-limits/shop/max-connections", {"value": 30})
    there.call("PUT", "policies/shop/p", POLICY)
    there.call("PUT", "operator-policies/shop/op", OPERATOR_POLICY)
    for name, definition in POLICIES.items():
        policy = {"pattern": f"^{name}", "definition": definition, "priority": -5, "apply-to": "all"}
        there.call("PUT", f"policies/shop/{quote(name)}", policy)
    for path, value in PARAMETERS.items():
        there.call("PUT", f"parameters/{path}", {"value": value})
    there.call("PUT", "global-parameters/g", {"value": {"a": [1, "zwei", 2.5, True, None]}})
    there.call("PUT", "global-parameters/n", {"value": 7})
    there.call("PUT", "cluster-name", {"name": "the old one"})
    fill_topology(there)


def fill_topology(there: ManagementClient) -> None:
    for name, kind in (("topics", "topic"), ("headed", "headers"), ("dead", "fanout"), ("plain", "direct")):
        there.call("PUT", f"exchanges/shop/{name}", {"type": kind, "durable": True})
    hashing = {"type": "x-consistent-hash", "durable": True, "arguments": {"hash-header": "h"}}
    there.call("PUT", "exchanges/shop/hashing", hashing)
    inner = {"type": "direct", "durable": False, "auto_delete": True, "internal": True}
    there.call("PUT", "exchanges/shop/inner", inner | {"arguments": {"alternate-exchange": "dead"}})
    for name, arguments in (
        ("all", ALL_RULES),
        ("quorum", {"x-queue-type": "quorum", "x-delivery-limit": 4}),
        ("stream", {"x-queue-type": "stream", "x-max-age": "7D"}),
        ("version", VERSION_RULES),
        ("safe", QUORUM_RULES),
        ("ünï", {}),
    ):
        path = quote(name)
        there.call("PUT", f"queues/shop/{path}", {"durable": True, "arguments": arguments})
    there.call("PUT", "queues/shop/brief", {"durable": False, "auto_delete": True})
    there.call("POST", "bindings/shop/e/topics/q/all", {"routing_key": "a.#"})
    there.call("POST", "bindings/shop/e/topics/e/inner", {"routing_key": "b"})
    headers = {"x-match": "all", "number": 5, "text": "t", "flag": True}
    there.call("POST", "bindings/shop/e/headed/q/quorum", {"arguments": headers})
    there.call("POST", "bindings/shop/e/amq.direct/q/brief", {"routing_key": "k"})
    there.call("POST", "bindings/shop/e/hashing/q/safe", {"routing_key": "10"})
    nested = {"number": -1, "real": 1.5, "list": [1, "2"], "table": {"a": [True]}}
    for arguments in ({}, nested):
        there.call("POST", "bindings/shop/e/plain/e/topics", {"routing_key": "k", "arguments": arguments})


def rows(definitions: dict[str, Any], kind: str, like: dict[str, Any]) -> list[str]:
    """The rows of a kind as texts, with those fields that this kind has in `like`."""
    fields = {field for row in like[kind] for field in row}
    return sorted(
        json.dumps(
            {field: _ordered(value) for field, value in row.items() if field in fields}, sort_keys=True
        )
        for row in definitions[kind]
    )


def _ordered(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


@pytest.mark.parametrize("kind", KINDS)
def test_what_rabbitmq_exports_is_the_same_after_an_import(
    exported: dict[str, Any], warren: BrokerProcess, kind: str
) -> None:
    again = ManagementClient(warren.http_url).call("GET", "definitions")
    assert exported[kind], "RabbitMQ has some of each kind"
    assert rows(again, kind, exported) == rows(exported, kind, exported)


@pytest.mark.parametrize("name", PASSWORDS)
def test_users_log_in_with_their_old_passwords(
    exported: dict[str, Any], warren: BrokerProcess, name: str
) -> None:
    assert exported["users"]
    here = ManagementClient(warren.http_url)
    whoami = here.call("GET", "whoami", login=(name, PASSWORDS[name]))
    assert whoami == {"name": name, "tags": ["management", "policymaker"]}
    address, login = warren.address, pika.PlainCredentials(name, PASSWORDS[name])
    parameters = pika.ConnectionParameters(address.host, address.port, "shop", login)
    with pika.BlockingConnection(parameters) as connection:
        assert connection.channel().is_open


def test_definitions_of_a_vhost_load_as_well(
    exported: dict[str, Any], rabbitmq: RabbitMQ, warren: BrokerProcess
) -> None:
    assert exported["vhosts"]
    there, here = ManagementClient(rabbitmq.http_url), ManagementClient(warren.http_url)
    of_vhost = there.call("GET", "definitions/shop")
    here.call("PUT", "vhosts/copy", {})
    here.call("POST", "definitions/copy", of_vhost)
    again = here.call("GET", "definitions/copy")
    for kind in ("queues", "exchanges", "bindings"):
        assert rows(again, kind, of_vhost) == rows(of_vhost, kind, of_vhost)
    here.call("DELETE", "vhosts/copy")


def test_what_warren_exports_loads_in_rabbitmq(
    exported: dict[str, Any], rabbitmq: RabbitMQ, warren: BrokerProcess
) -> None:
    there, here = ManagementClient(rabbitmq.http_url), ManagementClient(warren.http_url)
    here.call("PUT", "users/ours", {"password": "scrypt", "tags": "monitoring"})
    here.call("PUT", "user-limits/ours/max-publish-rate", {"value": 10})
    definitions = here.call("GET", "definitions")
    for vhost in ("shop", "a%2Fb%20%C3%BC"):
        there.call("DELETE", f"vhosts/{vhost}")
    for name in ("g", "n"):
        there.call("DELETE", f"global-parameters/{name}")
    for user in exported["users"]:
        if user["name"] != "guest":
            there.call("DELETE", f"users/{user['name']}")
    there.call("POST", "definitions", definitions)
    back = there.call("GET", "definitions")
    assert {"ours", *(user["name"] for user in exported["users"])} == {user["name"] for user in back["users"]}
    back["users"] = [user for user in back["users"] if user["name"] != "ours"]
    for kind in KINDS:
        assert rows(back, kind, exported) == rows(exported, kind, exported), kind
    for name, password in PASSWORDS.items():
        assert there.call("GET", "whoami", login=(name, password))["name"] == name


def test_import_is_there_after_a_restart(exported: dict[str, Any], tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerProcess(data_dir) as broker:
        ManagementClient(broker.http_url).call("POST", "definitions", exported)
        broker.kill()
    with BrokerProcess(data_dir) as broker:
        again = ManagementClient(broker.http_url).call("GET", "definitions")
    durable = {
        **exported,
        "queues": [row for row in exported["queues"] if row["durable"]],
        "exchanges": [row for row in exported["exchanges"] if row["durable"]],
        "bindings": [row for row in exported["bindings"] if row["destination"] not in {"brief", "inner"}],
    }
    for kind in KINDS:
        assert rows(again, kind, exported) == rows(durable, kind, exported), kind
