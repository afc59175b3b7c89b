from __future__ import annotations

import pytest

from tests.unit.broker.exchange.routing import bind, binding, routed
from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Int8, Int64, Table
from warren.broker.exchange.headers import Headers

CASES: list[tuple[Table, Table, bool]] = [
    # all, the default
    ({"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}, True),
    ({"a": 1, "b": "x"}, {"a": 1}, False),
    ({"a": 1, "b": "x"}, {"a": 1, "b": "y"}, False),
    ({}, {}, True),
    ({}, {"a": 1}, True),
    ({"x-match": "all", "a": 1}, {"a": 1}, True),
    ({"x-match": "all", "a": 1, "x-b": 2}, {"a": 1}, True),
    ({"x-match": "all", "x-b": 2}, {"x-b": 3}, True),
    # any
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"a": 2, "b": 1}, False),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"x-match": "any", "a": 1, "x-b": 2}, {"x-b": 2}, False),
    # all-with-x
    ({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1, "x-b": 2}, True),
    ({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1}, False),
    ({"x-match": "all-with-x", "a": 1}, {"a": 1}, True),  # x-match itself is never compared
    ({"x-match": "all-with-x", "a": 1, "x-bound-from": [{"hops": 1}]}, {"a": 1}, True),  # nor is federation's
    # any-with-x
    ({"x-match": "any-with-x", "a": 1, "x-b": 2}, {"x-b": 2}, True),
    ({"x-match": "any-with-x", "a": 1, "x-b": 2}, {"a": 1}, True),
    ({"x-match": "any-with-x", "a": 1, "x-b": 2}, {"x-b": 3, "x-match": "any-with-x"}, False),
    # values
    ({"a": None}, {"a": "whatever"}, True),
    ({"a": None}, {"a": None}, True),
    ({"a": None}, {}, False),
    ({"a": 1}, {"a": None}, False),
    ({"a": Int8(1)}, {"a": Int64(1)}, True),
    ({"a": 1}, {"a": True}, False),
    ({"a": False}, {"a": 0}, False),
    ({"a": True}, {"a": True}, True),
    ({"a": "1"}, {"a": 1}, False),
    ({"a": [1, {"b": "c"}]}, {"a": [1, {"b": "c"}]}, True),
    ({"a": [1, 2]}, {"a": [2, 1]}, False),
]


@pytest.mark.parametrize(("wanted", "headers", "matches"), CASES)
def test_headers_match_as_the_binding_says(wanted: Table, headers: Table, matches: bool) -> None:
    router = Headers({})
    bind(router, "q", arguments=wanted)
    assert routed(router, "", BasicProperties(headers=headers)) == (["q"] if matches else [])


def test_message_without_headers_matches_what_asks_for_none() -> None:
    router = Headers({})
    bind(router, "none", arguments={})
    bind(router, "some", arguments={"a": 1})
    assert routed(router) == ["none"]


def test_routing_key_does_not_count() -> None:
    router = Headers({})
    bind(router, "q", "key", {"a": 1})
    assert routed(router, "another", BasicProperties(headers={"a": 1})) == ["q"]


def test_unbound_destination_gets_nothing_more() -> None:
    router = Headers({})
    router.unbind(bind(router, "q", arguments={"a": 1}))
    assert routed(router, "", BasicProperties(headers={"a": 1})) == []


@pytest.mark.parametrize("match", ["some", "ALL", "", 1, None, ["all"]])
def test_unknown_x_match_is_refused(match: object) -> None:
    with pytest.raises(PreconditionFailed, match="x-match"):
        Headers({}).bind(binding("q", arguments={"x-match": match}))  # type: ignore[dict-item]
