"""Placement is even, and moves lead there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.cluster import config
from warren.cluster.config import Leadership, RunId, ShardRecord, StoreId
from warren.cluster.placement import (
    HandOver,
    Locator,
    Move,
    first_replicas,
    hand_overs,
    moves,
    preferred,
    shard_for_queue,
)

A, B, C, D = map(StoreId, "abcd")


def spread(counted: Iterable[StoreId], stores: list[StoreId]) -> int:
    counts = Counter(counted)
    return max(counts[store] for store in stores) - min(counts[store] for store in stores)


@given(st.integers(1, 9), st.integers(1, 64), st.data())
def test_a_new_cluster_is_even(count: int, shards: int, data: st.DataObject) -> None:
    stores = [StoreId(f"s{number}") for number in range(count)]
    placed = first_replicas(stores, shards=shards, replicas=data.draw(st.integers(1, count)))
    assert all(len(set(replicas)) == len(replicas) for replicas in placed)
    assert spread((store for replicas in placed for store in replicas), stores) <= 1
    assert spread((replicas[0] for replicas in placed), stores) <= 1


def test_a_cluster_needs_as_many_stores_as_replicas() -> None:
    with pytest.raises(ValueError, match="too few stores"):
        first_replicas([A, B], shards=4, replicas=3)


def carry_out(records: dict[int, ShardRecord], move: Move) -> None:
    record = config.add(records[move.shard], move.to, instead_of=move.instead_of, min_in_sync=1)
    if record.leader is not None and record.leader.store == move.instead_of:
        heir = next(store for store in record.isr if store != move.instead_of)
        record = config.hand_over(record, Leadership(heir, RunId("r")))
    records[move.shard] = config.swap(record, move.to, move.instead_of, min_in_sync=1)


@given(st.integers(3, 6), st.integers(0, 3), st.integers(0, 2), st.integers(1, 40))
def test_moves_make_it_even_again_when_stores_come_and_go(
    count: int, coming: int, going: int, shards: int
) -> None:
    stores = [StoreId(f"s{number}") for number in range(count + coming)]
    first = first_replicas(stores[:count], shards=shards, replicas=3)
    records = {
        shard: ShardRecord(1, Leadership(replicas[0], RunId("r")), replicas, replicas)
        for shard, replicas in enumerate(first)
    }
    stay = stores[min(going, len(stores) - 3) :]
    for _ in range(200):
        found = moves(records, stay)
        assert len({move.to for move in found}) == len(found), "one copy at a time for each store"
        if not found:
            break
        for move in found:
            carry_out(records, move)
    kept = [store for record in records.values() for store in record.replicas]
    assert set(kept) <= set(stay)
    assert spread(kept, stay) <= 1


def test_a_lost_store_is_replaced_before_anything_is_evened() -> None:
    records = {
        0: ShardRecord(1, Leadership(A, RunId("r")), (A, B), (A, B)),
        1: ShardRecord(1, Leadership(A, RunId("r")), (A, C), (A, C)),
    }
    assert moves(records, [A, B, D]) == [Move(1, D, C)]


def test_no_more_moves_are_begun_than_stores_can_take() -> None:
    records = {0: ShardRecord(1, Leadership(A, RunId("r")), (A, C), (A, C))}
    assert moves(records, [A, B], under_way=2) == []
    joining = {0: config.add(records[0], B, instead_of=C, min_in_sync=1)}
    assert moves(joining, [A, B]) == []


@given(st.integers(3, 6), st.integers(1, 30), st.randoms(use_true_random=False))
def test_leaderships_are_even(count: int, shards: int, chance: object) -> None:
    stores = [StoreId(f"s{number}") for number in range(count)]
    placed = first_replicas(stores, shards=shards, replicas=3)
    records = {}
    for shard, replicas in enumerate(placed):
        mixed = list(replicas)
        chance.shuffle(mixed)  # type: ignore[attr-defined] # a Random, which Hypothesis does not say
        records[shard] = ShardRecord(1, Leadership(mixed[0], RunId("r")), tuple(mixed), tuple(mixed))
    wanted = preferred(records, stores)
    assert all(wanted[shard] in records[shard].replicas for shard in records)
    assert spread(wanted.values(), stores) <= 1


def test_the_first_replica_is_preferred_and_gets_its_shard_if_it_is_in_sync() -> None:
    record = ShardRecord(4, Leadership(B, RunId("r")), (A, B, C), (A, B))
    assert hand_overs({0: record}, [A, B, C]) == [HandOver(0, A)]
    assert hand_overs({0: record._replace(isr=(B, C))}, [A, B, C]) == []
    assert preferred({0: record}, [B, C]) == {0: B}


def test_a_queue_goes_to_the_emptiest_shard_that_the_clients_node_leads() -> None:
    leaders = {0: A, 1: B, 2: A, 3: C}
    queues = {0: 5, 1: 0, 2: 3, 3: 0}
    assert shard_for_queue(Locator.CLIENT_LOCAL, A, leaders, queues) == 2
    assert shard_for_queue(Locator.CLIENT_LOCAL, D, leaders, queues) == 1, "it leads none"
    assert shard_for_queue(Locator.BALANCED, A, leaders, queues) == 1
    with pytest.raises(ValueError, match="no shards"):
        shard_for_queue(Locator.BALANCED, A, {}, {})
