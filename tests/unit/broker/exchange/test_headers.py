from __future__ import annotations

from decimal import Decimal

import pytest

from tests.unit.broker.exchange.routing import bind, binding, routed, work_of
from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Int8, Int64, Table
from warren.broker.exchange.headers import COMPARE_WORK, Headers

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
    ({"a": 1.0}, {"a": Decimal(1)}, True),
    ({"a": bytearray(b"\xff")}, {"a": b"\xff"}, True),
    ({"x-match": "any", "a": [1], "b": None}, {"a": [1], "b": 1}, True),
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


MANY = 1_000


@pytest.mark.parametrize("common", [{}, {"kind": "order"}, {"kind": "order", "x-match": "all"}])
def test_message_is_compared_with_few_of_very_many_bindings(common: Table) -> None:
    router = Headers({})
    for number in range(MANY):
        bind(router, f"q{number}", arguments={**common, "a": number})
    properties = BasicProperties(headers={"kind": "order", "a": 5, "b": "x"})
    assert routed(router, "", properties) == ["q5"]
    assert work_of(router, "", properties) < 10 * COMPARE_WORK


def test_every_comparison_is_work() -> None:
    router = Headers({})
    for number in range(MANY):
        bind(router, f"q{number}", arguments={"a": 1, "b": number, "x-match": "any"})
    assert work_of(router, "", BasicProperties(headers={"a": 1})) >= MANY * COMPARE_WORK


def test_nothing_is_left_of_bindings_that_are_removed() -> None:
    router = Headers({})
    wanted: list[Table] = [
        {},
        {"a": 1, "b": [1]},
        {"x-match": "any", "a": None, "b": "x"},
        {"x-match": "any"},
    ]
    made = [bind(router, "q", arguments=arguments) for arguments in wanted]
    for each in made:
        router.unbind(each)
    assert (router.wishes, router.found_by, router.unconditional) == ({}, {}, {})


@pytest.mark.parametrize("match", ["some", "ALL", "", 1, None, ["all"]])
def test_unknown_x_match_is_refused(match: object) -> None:
    with pytest.raises(PreconditionFailed, match="x-match"):
        Headers({}).bind(binding("q", arguments={"x-match": match}))  # type: ignore[dict-item]
