"""Exporting definitions over HTTP, in RabbitMQ's form."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from tests.support.http_api import Api
from warren.broker import commands
from warren.broker.commands import Command
from warren.broker.vhost_metadata import VhostMetadata
from warren.session.handshake import COMPATIBLE_VERSION
from warren.version import __version__

ORDERS: dict[str, Any] = {"x-message-ttl": 5, "x-queue-type": "classic"}
METADATA = VhostMetadata("mine", frozenset({"a", "b"}), "quorum")
MADE: tuple[Command, ...] = (
    commands.DeclareExchange(vhost="/", name="shop", type="topic", arguments={"alternate-exchange": "a"}),
    commands.DeclareQueue(vhost="/", name="orders", durable=True, arguments=ORDERS),
    commands.DeclareQueue(vhost="/", name="log", durable=True, arguments={"x-queue-type": "stream"}),
    commands.Bind(vhost="/", source="shop", destination="orders", to_queue=True, routing_key="order.#"),
    commands.Bind(vhost="/", source="amq.fanout", destination="shop", to_queue=False),
    commands.PutPolicy(vhost="/", name="p", pattern="^x", definition={"max-length": 3}, apply_to="queues"),
    commands.PutPolicy(
        vhost="/", name="op", pattern="^x", definition={"max-length": 9}, apply_to="queues", operator=True
    ),
    commands.SetVhostLimits(vhost="/", max_queues=50),
    commands.SetVhostMetadata(vhost="/", metadata=METADATA),
    commands.SetParameter(vhost="/", component="other", name="s", value={"uri": "amqp://x"}),
    commands.SetGlobalParameter(name="g", value=[1]),
    commands.SetUserLimits(user="reader", max_channels=4, max_publish_rate=9),
)
VERSIONS = {
    "rabbit_version": COMPATIBLE_VERSION,
    "rabbitmq_version": COMPATIBLE_VERSION,
    "product_name": "WarrenMQ",
    "product_version": __version__,
}
OF_VHOST: dict[str, list[dict[str, Any]]] = {
    "parameters": [
        {"component": "other", "name": "s", "value": {"uri": "amqp://x"}},
        {
            "component": "operator_policy",
            "name": "op",
            "value": {
                "pattern": "^x",
                "definition": {"max-length": 9},
                "priority": 0,
                "apply-to": "queues",
            },
        },
        {"component": "vhost-limits", "name": "limits", "value": {"max-queues": 50}},
    ],
    "policies": [
        {"name": "p", "pattern": "^x", "apply-to": "queues", "definition": {"max-length": 3}, "priority": 0}
    ],
    "queues": [
        {
            "name": "orders",
            "type": "classic",
            "durable": True,
            "auto_delete": False,
            "arguments": ORDERS,
        },
        {
            "name": "log",
            "type": "stream",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "stream"},
        },
    ],
    "exchanges": [
        {
            "name": "shop",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "a"},
        }
    ],
    "bindings": [
        {
            "source": "amq.fanout",
            "destination": "shop",
            "destination_type": "exchange",
            "routing_key": "",
            "arguments": {},
        },
        {
            "source": "shop",
            "destination": "orders",
            "destination_type": "queue",
            "routing_key": "order.#",
            "arguments": {},
        },
    ],
}
INNER_METADATA = {"description": "mine", "tags": ["a", "b"], "default_queue_type": "quorum"}
TOLD_METADATA = {**INNER_METADATA, "metadata": INNER_METADATA}


async def make_all(api: Api) -> None:
    for command in MADE:
        api.broker.node.execute(command)


async def test_definitions_of_a_vhost_are_exported(api: Api) -> None:
    await make_all(api)
    assert (await api.get("/api/definitions/%2F")).json == {
        **VERSIONS,
        "rabbitmq_definition_format": "single_virtual_host",
        "vhost": "/",
        **TOLD_METADATA,
        "limits": {"max-queues": 50},
        **OF_VHOST,
    }


async def test_all_definitions_are_exported(api: Api) -> None:
    await make_all(api)
    told = (await api.get("/api/definitions")).json
    users = (await api.get("/api/users")).json
    [reader] = [user for user in users if user["limits"]]
    assert reader["limits"] == {"max-channels": 4, "max-publish-rate": 9}
    reader |= {"limits": {"max-channels": 4}, "warren_limits": {"max-publish-rate": 9}}
    for kind, name in (("users", "name"), ("permissions", "user")):
        told[kind].sort(key=itemgetter(name))  # as lists are; exports are not
    assert told == {
        **VERSIONS,
        "rabbitmq_definition_format": "cluster",
        "users": users,
        "vhosts": [{"name": "/", **TOLD_METADATA}],
        "permissions": (await api.get("/api/permissions")).json,
        "topic_permissions": [],
        "global_parameters": [{"name": "g", "value": [1]}],
        **{kind: [{"vhost": "/", **row} for row in rows] for kind, rows in OF_VHOST.items()},
    }


async def test_vhost_without_a_default_type_has_none_in_the_export(api: Api) -> None:
    [vhost] = (await api.get("/api/definitions")).json["vhosts"]
    metadata = {"description": "", "tags": []}
    assert vhost == {"name": "/", **metadata, "metadata": metadata}


async def test_exclusive_queues_are_left_out(api: Api) -> None:
    node = api.broker.node
    node.execute(commands.DeclareQueue(vhost="/", name="mine", owner=node.new_client_id()))
    node.execute(commands.Bind(vhost="/", source="amq.fanout", destination="mine", to_queue=True))
    told = (await api.get("/api/definitions")).json
    assert (told["queues"], told["bindings"]) == ([], [])


async def test_vhost_that_is_not_there_is_400_for_an_export_and_404_for_an_import(api: Api) -> None:
    answer = await api.get("/api/definitions/absent")
    assert (answer.status, answer.json["reason"]) == (400, "vhost_not_found")
    assert (await api.post("/api/definitions/absent", {})).status == 404


async def test_browsers_save_the_export_as_a_file(api: Api) -> None:
    answer = await api.get("/api/definitions?download=backup.json")
    assert answer.headers["Content-Disposition"] == "attachment; filename=backup.json"
    assert "Content-Disposition" not in (await api.get("/api/definitions")).headers


@pytest.mark.parametrize("name", ["", "a%0d%0ab", "a%22b", "a/b"])
async def test_name_that_no_file_can_have_is_400(api: Api, name: str) -> None:
    assert (await api.get(f"/api/definitions?download={name}")).status == 400
