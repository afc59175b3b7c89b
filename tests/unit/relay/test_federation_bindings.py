"""Which bindings go upstream, and how far."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.broker.exchange.routing import binding
from warren.amqp.table import Int16, Table
from warren.relay.federation_bindings import Way, hops_left, wanted_bindings

WAY = Way(
    cluster_name="here",
    vhost="v",
    place="v:x A",
    upstream_name="up",
    upstream_vhost="w",
    max_hops=3,
)


def bound_from(*stations: Any) -> Table:
    return {"x-bound-from": list(stations)}


def test_binding_tells_upstream_where_it_comes_from() -> None:
    found = wanted_bindings([binding("q", "k", {"a": 1})], WAY)
    ((key, _encoded),) = found
    assert key == "k"
    (arguments,) = found.values()
    station = {"cluster-name": "here", "vhost": "v", "exchange": "v:x A", "hops": 3}
    assert arguments == {"a": 1, "x-bound-from": [station]}
    assert isinstance(station_of(arguments)["hops"], Int16)  # as RabbitMQ sends it


def station_of(arguments: Table) -> dict[str, Any]:
    stations: Any = arguments["x-bound-from"]
    return dict(stations[0])


def test_bindings_that_are_equal_but_for_their_destination_are_one() -> None:
    bindings = [binding("q", "k"), binding("other", "k"), binding("q", "l"), binding("q", "k", {"a": 1})]
    assert sorted(key for key, _ in wanted_bindings(bindings, WAY)) == ["k", "k", "l"]


@pytest.mark.parametrize(
    ("arguments", "hops"),
    [
        ({}, 3),
        (bound_from({"cluster-name": "down", "vhost": "v", "hops": 3}), 2),
        (bound_from({"cluster-name": "down", "vhost": "v", "hops": 9}), 3),
        (bound_from({"cluster-name": "down", "vhost": "v", "hops": 1}), 0),
        (bound_from({"cluster-name": "up", "vhost": "w", "hops": 3}), 0),
        (bound_from({"cluster-name": "up", "vhost": "v", "hops": 3}), 2),
        (bound_from({"cluster-name": "down", "hops": 3}, {"cluster-name": "up", "vhost": "w"}), 0),
        (bound_from({"cluster-name": "down"}), 0),
        (bound_from("nonsense"), 0),
        ({"x-bound-from": "a client's"}, 3),
    ],
)
def test_binding_goes_as_far_as_messages_may_come(arguments: Table, hops: int) -> None:
    assert hops_left(arguments, WAY) == hops
    assert len(wanted_bindings([binding("q", "k", arguments)], WAY)) == (1 if hops else 0)
