"""Who is there, who is away, and who never comes back."""

from __future__ import annotations

from collections.abc import Iterable

from tests.unit.cluster.nodes import RECORD, A, B, C, D
from warren.cluster.config import StoreId
from warren.cluster.known_stores import DRAINING, IN, REMOVED, KnownStores, NodeFacts
from warren.cluster.placement import Stores

NEW = StoreId("new")
LONG = 100.0  # longer than a store may be away


def known(*stores: StoreId) -> KnownStores:
    """A's, with a node for each store."""
    made = KnownStores(A, min_in_sync=2, replace_after=60.0)
    for store in stores:
        put(made, store, store)
    return made


def put(
    stores: KnownStores, name: str, store: StoreId, state: str = IN, former: Iterable[StoreId] = ()
) -> None:
    stores.nodes[name] = NodeFacts(store, state, frozenset(former))


def test_a_store_that_is_away_comes_back() -> None:
    found = known(A, B, C).look({B}, [], 0.0)
    assert found == Stores((A, B, C), able=frozenset((A, B)), gone=frozenset())


def test_a_store_whose_node_has_another_one_is_gone_at_once() -> None:
    stores = known(A, B)
    put(stores, "c", NEW, former=[C])
    found = stores.look({B, NEW}, [], 0.0)
    assert found == Stores((A, B, NEW), able=frozenset((A, B, NEW)), gone=frozenset((C,)))


def test_a_store_that_its_node_has_again_is_not_gone() -> None:
    stores = known(A, B)
    put(stores, "c", C, former=[NEW])
    assert stores.look({B}, [], 0.0).gone == {NEW}


def test_a_node_that_is_drained_keeps_its_copies_and_gets_none() -> None:
    stores = known(A, B)
    put(stores, "c", C, DRAINING)
    found = stores.look({B, C}, [], 0.0)
    assert found == Stores((A, B, C), able=frozenset((A, B)), gone=frozenset())
    assert stores.avoided == [C]


def test_a_node_that_was_removed_keeps_nothing_though_it_is_there() -> None:
    stores = known(A, B)
    put(stores, "c", C, REMOVED)
    found = stores.look({B, C}, [], 0.0)
    assert found == Stores((A, B), able=frozenset((A, B)), gone=frozenset((C,)))


def test_a_store_that_was_away_for_too_long_is_gone_until_it_is_seen() -> None:
    stores = known(A, B, C)
    stores.look({B, C}, [], 0.0)
    assert stores.look({B}, [], 59.0).gone == set()
    assert stores.look({B}, [], LONG).gone == {C}
    assert stores.look({B, C}, [], LONG).gone == set()


def test_a_store_that_a_leader_counts_on_is_not_gone() -> None:
    stores = known(A, B, C)
    stores.look({B, C}, [], 0.0)
    assert stores.look({B}, [RECORD], LONG).gone == set()
    assert stores.look({B}, [RECORD._replace(isr=(B, C))], LONG).gone == {C}, "it could not be counted out"


def test_a_node_that_sees_half_of_the_others_declares_nobody_gone() -> None:
    stores = known(A, B, C, D)
    stores.look({B, C, D}, [], 0.0)
    assert stores.look({B}, [], LONG).gone == set()
    assert stores.look({B, C}, [], LONG).gone == {D}
