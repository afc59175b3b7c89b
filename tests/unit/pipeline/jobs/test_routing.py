"""what-if's topologies: routed as a broker does, and refused with a line that says where they are wrong."""

from __future__ import annotations

import json

import pytest

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs.routing import Routes


def routes(**content: list[dict[str, object]]) -> Routes:
    return Routes(json.dumps(content), name="--topology plan.json")


def bound(kind: str, *bindings: tuple[str, str, dict[str, object]], **arguments: object) -> Routes:
    return routes(
        exchanges=[{"name": "x", "type": kind, "arguments": arguments}],
        queues=[{"name": name} for name in sorted({binding[0] for binding in bindings})],
        bindings=[
            {"source": "x", "destination": name, "routing_key": key, "arguments": table}
            for name, key, table in bindings
        ],
    )


@pytest.mark.parametrize(
    ("kind", "key", "wanted"),
    [
        ("direct", "a.b", ["one"]),
        ("fanout", "a.b", ["many", "one"]),
        ("topic", "a.b", ["many", "one"]),
        ("topic", "a.b.c", ["many"]),
    ],
)
def test_each_type_of_exchange_routes_as_in_a_broker(kind: str, key: str, wanted: list[str]) -> None:
    assert bound(kind, ("one", "a.b", {}), ("many", "a.#", {})).route("/", "x", key) == wanted


def test_headers_are_compared_with_values_of_their_types() -> None:
    found = bound("headers", ("n", "", {"size": 3}), ("t", "", {"size": "3"}))
    assert found.route("/", "x", "", {"size": "3"}, header_types={"size": "int32"}) == ["n"]
    assert found.route("/", "x", "", {"size": "3"}) == ["t"]
    assert found.route("/", "x", "", {"size": None}) == []
    assert found.route("/", "x", "") == []


def test_copies_are_further_keys() -> None:
    found = bound("direct", ("a", "a", {}), ("b", "b", {}))
    assert found.route("/", "x", "a", {"CC": '["b", "nowhere"]'}, header_types={"CC": "array"}) == ["a", "b"]


def test_hash_of_a_property_keeps_a_message_with_its_queue() -> None:
    found = bound("x-consistent-hash", ("a", "1", {}), ("b", "1", {}), **{"hash-property": "message_id"})
    ways = {found.route("/", "x", "", message_id=f"m{n}")[0] for n in range(50)}  # type: ignore[index]
    assert ways == {"a", "b"}
    assert found.route("/", "x", "k", message_id="m1") == found.route("/", "x", "l", message_id="m1")


def test_hash_of_the_time_of_publishing_spreads_messages_too() -> None:
    found = bound("x-consistent-hash", ("a", "1", {}), ("b", "1", {}), **{"hash-property": "timestamp"})
    ways = {found.route("/", "x", "", timestamp=n)[0] for n in range(50)}  # type: ignore[index]
    assert ways == {"a", "b"}


def test_default_exchange_leads_to_the_queue_of_that_name() -> None:
    found = routes(queues=[{"name": "orders"}])
    assert found.route("/", "", "orders") == ["orders"]
    assert found.route("/", "", "nowhere") == []


def test_exchange_or_vhost_that_is_not_there_is_told_from_one_without_a_way() -> None:
    found = routes(exchanges=[{"name": "x", "type": "direct"}])
    assert found.route("/", "x", "k") == []
    assert found.route("/", "gone", "k") is None
    assert found.route("other", "x", "k") is None


@pytest.mark.parametrize("by_policy", [False, True])
def test_alternate_exchange_takes_what_finds_no_way(by_policy: bool) -> None:
    alternate = {"alternate-exchange": "rest"}
    found = routes(
        exchanges=[
            {"name": "x", "type": "direct", "arguments": {} if by_policy else alternate},
            {"name": "rest", "type": "fanout"},
        ],
        queues=[{"name": "q"}, {"name": "unroutable", "arguments": {"x-queue-type": "stream"}}],
        bindings=[
            {"source": "x", "destination": "q", "routing_key": "k"},
            {"source": "rest", "destination": "unroutable"},
        ],
        policies=[{"name": "p", "pattern": "^x$", "definition": alternate}] if by_policy else [],
    )
    assert found.route("/", "x", "k") == ["q"]
    assert found.route("/", "x", "else") == ["unroutable"]


def test_delayed_message_is_routed_where_it_goes_when_it_is_due() -> None:
    found = bound("x-delayed-message", ("q", "k", {}), **{"x-delayed-type": "direct"})
    for headers in ({"x-delay": "-500"}, {"x-delay": "500"}, {"x-deliver-at": "1900000000000"}):
        types = dict.fromkeys(headers, "int64")
        assert found.route("/", "x", "k", headers, header_types=types) == ["q"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "--topology plan.json is no JSON"),
        ("[]", "must be a JSON object"),
        ('{"queues": {}}', "queues must be a list"),
        ('{"exchanges": [{"name": "x"}]}', r"exchanges\[0\] has no 'type'"),
        ('{"exchanges": [{"name": "x", "type": "odd"}]}', "unknown exchange type 'odd'"),
        ('{"bindings": [{"source": "x", "destination": "q"}]}', r"bindings\[0\].*no exchange 'x'"),
    ],
)
def test_topology_that_makes_no_sense_is_refused_with_the_place(text: str, reason: str) -> None:
    with pytest.raises(PipelineError, match=reason):
        Routes(text, name="--topology plan.json")
