"""Bindings over HTTP, with RabbitMQ's `properties_key`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.support.http_api import Api
from warren import commands
from warren.management.json_text import ROWS_A_TURN
from warren.management.properties_key import properties_key

TO_QUEUE = "/api/bindings/%2F/e/amq.topic/q/q"


async def bind(api: Api, path: str = TO_QUEUE, **body: Any) -> str:
    """Make a binding; return its path."""
    answer = await api.send("POST", path, body)
    assert answer.status == 201, answer.body
    return path.rpartition("/")[0] + "/" + answer.headers["Location"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", "~"),
        ("orders", "orders"),
        ("orders.*.#", "orders.%2A.%23"),
        ("a b", "a+b"),
        ("a~b", "a%7Eb"),
        ("ü", "%C3%BC"),
    ],
)
def test_properties_key_without_arguments_is_the_encoded_routing_key(key: str, expected: str) -> None:
    assert properties_key(key, {}) == expected


def test_properties_key_with_arguments_has_a_hash() -> None:
    first, other = properties_key("k", {"x": 1}), properties_key("k", {"x": 2})
    assert first.startswith("k~")
    assert first != other
    assert properties_key("", {"x": 1}) == "~" + first.removeprefix("k~")


async def test_binding_is_described(api: Api) -> None:
    api.declare("q")
    place = await bind(api, routing_key="a.#", arguments={"n": 1})
    described = {
        "source": "amq.topic",
        "vhost": "/",
        "destination": "q",
        "destination_type": "queue",
        "routing_key": "a.#",
        "arguments": {"n": 1},
        "properties_key": properties_key("a.#", {"n": 1}),
    }
    assert (await api.get(place)).json == described
    for path in (TO_QUEUE, "/api/exchanges/%2F/amq.topic/bindings/source"):
        assert (await api.get(path)).json == [described]


async def test_every_queue_is_bound_to_the_default_exchange(api: Api) -> None:
    api.declare("q")
    implicit = {
        "source": "",
        "vhost": "/",
        "destination": "q",
        "destination_type": "queue",
        "routing_key": "q",
        "arguments": {},
        "properties_key": "q",
    }
    for path in (
        "/api/bindings",
        "/api/bindings/%2F",
        "/api/queues/%2F/q/bindings",
        "/api/exchanges/%2F/amq.default/bindings/source",
        "/api/bindings/%2F/e/amq.default/q/q",
    ):
        assert (await api.get(path)).json == [implicit], path
    assert (await api.request("DELETE", "/api/bindings/%2F/e/amq.default/q/q/q")).status == 401


async def test_exchanges_are_bound_to_exchanges(api: Api) -> None:
    place = await bind(api, "/api/bindings/%2F/e/amq.topic/e/amq.fanout", routing_key="k")
    found = (await api.get("/api/exchanges/%2F/amq.fanout/bindings/destination")).json
    assert [(row["source"], row["destination_type"]) for row in found] == [("amq.topic", "exchange")]
    assert (await api.request("DELETE", place)).status == 204
    assert (await api.get("/api/exchanges/%2F/amq.fanout/bindings/destination")).json == []


@pytest.mark.parametrize("key", ["", "plain", "a.*.#", "with space", "a~b", "50%", "ü/€", "+"])
@pytest.mark.parametrize("arguments", [{}, {"x-match": "all", "n": 5, "deep": {"a": [1, "b"]}}])
async def test_binding_is_found_and_removed_where_location_says(
    api: Api, key: str, arguments: dict[str, Any]
) -> None:
    api.declare("q")
    await bind(api, routing_key="another")
    place = await bind(api, routing_key=key, arguments=arguments)
    found = (await api.get(place)).json
    assert (found["routing_key"], found["arguments"]) == (key, arguments)
    assert (await api.get(TO_QUEUE + "/" + quote(found["properties_key"], safe=""))).json == found
    assert (await api.request("DELETE", place)).status == 204
    assert [row["routing_key"] for row in (await api.get(TO_QUEUE)).json] == ["another"]
    assert (await api.get(place)).status == 404


async def test_bindings_with_equal_keys_are_told_apart_by_arguments(api: Api) -> None:
    api.declare("q")
    places = {await bind(api, routing_key="k", arguments={"n": n}) for n in range(3)}
    assert len(places) == 3
    assert (await api.request("DELETE", places.pop())).status == 204
    assert len((await api.get(TO_QUEUE)).json) == 2


async def test_queue_that_is_exclusive_to_a_client_is_not_bound(api: Api) -> None:
    owner = api.broker.node.new_client_id()
    api.broker.execute(commands.DeclareQueue(vhost="/", name="q", owner=owner))
    answer = await api.send("POST", TO_QUEUE, {})
    assert answer.status == 400
    assert "exclusive" in answer.json["reason"]


async def test_binding_what_is_not_there_is_404(api: Api) -> None:
    assert (await api.send("POST", TO_QUEUE, {})).status == 404
    api.declare("q")
    assert (await api.send("POST", "/api/bindings/%2F/e/absent/q/q", {})).status == 404
    assert (await api.get("/api/bindings/%2F/e/absent/q/q")).json == []
    assert (await api.get(f"{TO_QUEUE}/absent")).status == 404
    assert (await api.request("DELETE", f"{TO_QUEUE}/absent")).status == 404


async def test_too_long_routing_key_is_400(api: Api) -> None:
    api.declare("q")
    assert (await api.send("POST", TO_QUEUE, {"routing_key": "k" * 256})).status == 400


async def test_user_without_permissions_binds_and_unbinds_nothing(api: Api) -> None:
    api.declare("q")
    place = await bind(api, routing_key="k")
    assert (await api.send("POST", TO_QUEUE, {}, user="manager")).status == 401
    assert (await api.request("DELETE", place, user="manager")).status == 401
    assert len((await api.get(TO_QUEUE)).json) == 1


async def test_binding_is_there_after_a_restart(api: Api) -> None:
    api.declare("q")
    place = await bind(api, routing_key="k", arguments={"n": 1})
    await api.restart()
    assert (await api.get(place)).json["arguments"] == {"n": 1}


async def test_very_many_bindings_are_listed(api: Api) -> None:
    count = 2 * ROWS_A_TURN + 1
    for n in range(count):
        api.broker.execute(commands.DeclareQueue(vhost="/", name=f"q{n}"))
    rows = (await api.get("/api/bindings")).json
    in_order = sorted(f"q{n}" for n in range(count))
    assert [row["destination"] for row in rows] == in_order
    page = (await api.get("/api/bindings/%2F?page=2&page_size=10&columns=destination")).json
    assert (page["filtered_count"], page["items"][0]) == (count, {"destination": in_order[10]})


async def test_bindings_go_by_the_names_of_their_destinations(api: Api) -> None:
    for name in ("one", "two"):
        api.declare(name)
    rows = (await api.get("/api/bindings?name=tw&columns=destination")).json
    assert rows == [{"destination": "two"}]
