"""Exchanges over HTTP: as RabbitMQ lists, declares and deletes them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http_api import Api
from warren import commands
from warren.amqp.table import Table

PREDECLARED = {
    "",
    "amq.direct",
    "amq.fanout",
    "amq.headers",
    "amq.match",
    "amq.rabbitmq.trace",
    "amq.topic",
}


async def put(api: Api, name: str, **body: Any) -> int:
    return (await api.send("PUT", f"/api/exchanges/%2F/{name}", body)).status


async def test_exchanges_are_listed_and_described(api: Api) -> None:
    await put(api, "e", type="topic", durable=True, arguments={"alternate-exchange": "amq.fanout"})
    await api.request("PUT", "/api/vhosts/other")
    everywhere = (await api.get("/api/exchanges")).json
    here = (await api.get("/api/exchanges/%2F")).json
    assert {row["name"] for row in here} == PREDECLARED | {"e"}
    assert len(everywhere) == len(here) + len(PREDECLARED)
    assert (await api.get("/api/exchanges/%2F/e")).json == {
        "name": "e",
        "vhost": "/",
        "type": "topic",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {"alternate-exchange": "amq.fanout"},
        "user_who_performed_action": "",
        "incoming": [],
        "outgoing": [],
    }
    definition: Table = {"alternate-exchange": "amq.fanout"}
    api.broker.execute(commands.PutPolicy(vhost="/", name="p", pattern="^e", definition=definition))
    assert (await api.get("/api/exchanges/%2F/e")).json["policy"] == "p"


async def test_default_exchange_is_named_amq_default_in_paths(api: Api) -> None:
    assert (await api.get("/api/exchanges/%2F/amq.default")).json["name"] == ""


async def test_declaring_is_201_and_again_204_and_otherwise_400(api: Api) -> None:
    assert await put(api, "e", type="direct", durable=True) == 201
    assert await put(api, "e", type="direct", durable="true") == 204
    answer = await api.send("PUT", "/api/exchanges/%2F/e", {"type": "fanout", "durable": True})
    assert (answer.status, answer.json) == (
        400,
        {
            "error": "bad_request",
            "reason": "inequivalent arg 'type' for exchange 'e' in vhost '/': "
            "received 'fanout' but current is 'direct'",
        },
    )


async def test_exchange_is_direct_and_transient_unless_told_otherwise(api: Api) -> None:
    assert await put(api, "e") == 201
    exchange = api.vhost.exchanges["e"]
    assert (exchange.type, exchange.durable, exchange.auto_delete) == ("direct", False, False)


@pytest.mark.parametrize(
    "body",
    [
        {"type": "strange"},
        {"type": 5},
        {"durable": "perhaps"},
        {"arguments": "none"},
        {"arguments": {"n": 2**70}},
        {"arguments": {"\ud800": 1}},
        {"arguments": {"x" * 256: 1}},
        {"arguments": {"alternate-exchange": 5}},
    ],
)
async def test_definition_that_makes_no_sense_is_400(api: Api, body: dict[str, Any]) -> None:
    assert await put(api, "e", **body) == 400
    assert "e" not in api.vhost.exchanges


async def test_reserved_and_too_long_names_are_refused(api: Api) -> None:
    assert await put(api, "amq.mine") == 401
    assert await put(api, "e" * 256) == 400
    assert await put(api, "amq.default") == 401


async def test_exchange_is_deleted_unless_it_has_to_be_unused(api: Api) -> None:
    await put(api, "e")
    api.declare("q")
    api.broker.execute(commands.Bind(vhost="/", source="e", destination="q", to_queue=True))
    answer = await api.request("DELETE", "/api/exchanges/%2F/e?if-unused=true")
    assert (answer.status, answer.json["reason"]) == (400, "exchange 'e' in vhost '/' in use")
    assert (await api.request("DELETE", "/api/exchanges/%2F/e")).status == 204
    assert "e" not in api.vhost.exchanges
    for method in ("DELETE", "GET"):
        assert (await api.request(method, "/api/exchanges/%2F/e")).status == 404


async def test_predeclared_exchange_cannot_be_deleted(api: Api) -> None:
    assert (await api.request("DELETE", "/api/exchanges/%2F/amq.topic")).status == 401
    assert "amq.topic" in api.vhost.exchanges


async def test_user_without_configure_permission_changes_nothing(api: Api) -> None:
    await put(api, "e")
    answer = await api.send("PUT", "/api/exchanges/%2F/new", {}, user="manager")
    assert (answer.status, answer.json["error"]) == (401, "not_authorised")
    assert (await api.request("DELETE", "/api/exchanges/%2F/e", user="manager")).status == 401
    assert "new" not in api.vhost.exchanges
    assert "e" in api.vhost.exchanges
