"""The keys are fixed, so that these tests see the same distribution in every run."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, make_node
from tests.unit.broker.exchange.routing import bind, binding, routed, work_of
from warren.amqp import methods as m
from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.exchange.consistent_hash import DRAW_WORK, ConsistentHash

KEYS = [f"key-{number}" for number in range(5_000)]


def make(weights: dict[str, int], arguments: Table | None = None) -> ConsistentHash:
    router = ConsistentHash(arguments or {})
    for name, weight in weights.items():
        bind(router, name, str(weight))
    return router


def places(router: ConsistentHash) -> dict[str, str]:
    """Where each key goes: to one destination, always."""
    found = {}
    for key in KEYS:
        (found[key],) = routed(router, key)
    return found


@pytest.mark.parametrize(
    "weights",
    [{"a": 1, "b": 1}, {"a": 1, "b": 2, "c": 5}, {"a": 10, "b": 10, "c": 10, "d": 10}, {"a": 100, "b": 300}],
)
def test_destinations_share_the_keys_by_weight(weights: dict[str, int]) -> None:
    counts = Counter(places(make(weights)).values())
    for name, weight in weights.items():
        share = weight / sum(weights.values())
        assert counts[name] / len(KEYS) == pytest.approx(share, abs=0.03)


def test_key_keeps_its_destination_whatever_the_order_of_binding() -> None:
    weights = {"a": 1, "b": 2, "c": 3}
    assert places(make(weights)) == places(make(dict(reversed(weights.items()))))


def test_new_destination_takes_over_its_share_and_moves_no_other_key() -> None:
    router = make({"a": 1, "b": 1, "c": 1})
    before = places(router)
    bind(router, "new", "1")
    after = places(router)
    moved = {key for key in KEYS if before[key] != after[key]}
    assert {after[key] for key in moved} == {"new"}
    assert len(moved) / len(KEYS) == pytest.approx(1 / 4, abs=0.03)


def test_removed_destination_gives_away_its_keys_and_moves_no_other() -> None:
    router = make({"a": 1, "b": 1})
    gone = bind(router, "gone", "1")
    before = places(router)
    router.unbind(gone)
    after = places(router)
    moved = {key for key in KEYS if before[key] != after[key]}
    assert moved == {key for key in KEYS if before[key] == "gone"}


def test_keys_stay_where_earlier_versions_sent_them() -> None:
    """The nodes of a cluster may be of different versions for a while."""
    router = make({"a": 1, "b": 2, "c": 3, "d": 1})
    assert "".join(routed(router, key)[0] for key in KEYS[:40]) == "bbddbcbcaccdcccccbcdbdddbbcbbbacdcccbccd"


def test_every_draw_is_work() -> None:
    router = make({f"q{number}": 1 + number % 3 for number in range(100)})
    assert work_of(router, "key") == 100 * DRAW_WORK


def test_exchange_without_bindings_leads_nowhere() -> None:
    assert routed(ConsistentHash({}), "key") == []


@pytest.mark.parametrize("weight", ["", "0", "-1", "1.5", "a", " 1", "½", "²"])
def test_weight_must_be_a_whole_number_above_0(weight: str) -> None:
    with pytest.raises(PreconditionFailed, match="integer greater than 0"):
        ConsistentHash({}).bind(binding("q", weight))


def test_bad_weight_closes_the_channel_with_406() -> None:
    client = FakeClient(make_node(FakeWorld())).open()
    client.declare_exchange("hash", "x-consistent-hash")
    client.declare("q")
    client.send(m.QueueBind(queue="q", exchange="hash", routing_key="heavy", arguments={}))
    client.expect_close(406)
    assert not client.vhost.exchanges["hash"].bindings


def by_header(value: str) -> BasicProperties:
    return BasicProperties(headers={"h": value})


def test_header_named_by_hash_header_decides() -> None:
    router = make({"a": 1, "b": 1, "c": 1}, {"hash-header": "h"})
    keyed = make({"a": 1, "b": 1, "c": 1})
    for key in KEYS[:200]:
        assert routed(router, "same", by_header(key)) == routed(keyed, key)


@pytest.mark.parametrize("name", ["correlation_id", "message_id", "timestamp"])
def test_property_named_by_hash_property_decides(name: str) -> None:
    router = make({"a": 1, "b": 1, "c": 1}, {"hash-property": name})
    keyed = make({"a": 1, "b": 1, "c": 1})
    for number in range(1, 200):
        properties = BasicProperties()
        setattr(properties, name, number if name == "timestamp" else str(number))
        assert routed(router, "same", properties) == routed(keyed, str(number))


@pytest.mark.parametrize("arguments", [{"hash-header": "h"}, {"hash-property": "message_id"}])
def test_messages_without_the_header_or_property_all_go_to_one_destination(arguments: Table) -> None:
    router = make({"a": 1, "b": 1, "c": 1}, arguments)
    assert len({tuple(routed(router, key)) for key in KEYS[:50]}) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"hash-header": "h", "hash-property": "message_id"},
        {"hash-property": "app_id"},
        {"hash-property": 1},
        {"hash-header": ["h"]},
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: Table) -> None:
    with pytest.raises(PreconditionFailed):
        ConsistentHash(arguments)


@pytest.mark.parametrize(
    ("arguments", "by_properties"),
    [({}, False), ({"hash-header": "h"}, True), ({"hash-property": "message_id"}, True)],
)
def test_route_depends_on_properties_only_if_they_are_hashed(arguments: Table, by_properties: bool) -> None:
    assert ConsistentHash(arguments).by_properties is by_properties
