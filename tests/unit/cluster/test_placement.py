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
    Locator,
    Move,
    Stores,
    alive_for_others,
    changes,
    first_replicas,
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


def all_able(*staying: StoreId, gone: Iterable[StoreId] = ()) -> Stores:
    return Stores(staying, frozenset(staying), frozenset(gone))


def led(*replicas: StoreId, isr: tuple[StoreId, ...] = ()) -> ShardRecord:
    """A record of a shard that the first of the in-sync set leads."""
    isr = isr or replicas
    return ShardRecord(1, Leadership(isr[0], RunId("r")), replicas, isr)


@given(st.integers(3, 6), st.integers(0, 3), st.integers(0, 2), st.integers(1, 40))
def test_moves_make_it_even_again_when_stores_come_and_go(
    count: int, coming: int, going: int, shards: int
) -> None:
    every = [StoreId(f"s{number}") for number in range(count + coming)]
    first = first_replicas(every[:count], shards=shards, replicas=3)
    records = {shard: led(*replicas) for shard, replicas in enumerate(first)}
    going = min(going, len(every) - 3)
    stay = every[going:]
    for _ in range(200):
        found = moves(records, all_able(*stay, gone=every[:going]))
        assert len({move.to for move in found}) == len(found), "one copy at a time for each store"
        if not found:
            break
        for move in found:
            carry_out(records, move)
    kept = [store for record in records.values() for store in record.replicas]
    assert set(kept) <= set(stay)
    assert spread(kept, stay) <= 1


@st.composite
def any_records(draw: st.DrawFn, stores: list[StoreId]) -> dict[int, ShardRecord]:
    """Records of any age: uneven, with members that lag, and with moves under way."""
    records = {}
    for shard in range(draw(st.integers(1, 12))):
        replicas = tuple(draw(st.permutations(stores))[:3])
        isr = tuple(draw(st.permutations(replicas))[: draw(st.integers(2, 3))])
        record = led(*replicas, isr=isr)
        others = [store for store in stores if store not in replicas]
        moves_now = draw(st.booleans())
        if others and moves_now:
            leaver = draw(st.sampled_from(replicas))
            record = config.add(record, draw(st.sampled_from(others)), instead_of=leaver, min_in_sync=2)
        records[shard] = record
    return records


def time_passes(record: ShardRecord, gone: Iterable[StoreId]) -> ShardRecord:
    """What a shard's nodes do by themselves, one step: lead, hand over, count out, let join."""
    gone = set(gone)
    members = [store for store in record.isr if store not in gone]
    if record.leader is not None and members and record.leader.store in {*gone, *record.leaving}:
        heirs = [store for store in members if store not in record.leaving] or members
        if heirs[0] != record.leader.store:
            return config.elect(record, Leadership(heirs[0], RunId("r")))
    lost = frozenset(gone.intersection(record.isr))
    if lost and len(record.isr) - len(lost) >= 2:
        return config.shrink(record, lost, min_in_sync=2)
    assert record.leader is not None
    if record.leader.store in gone:
        return record
    joiner = next((store for store in record.joining if store not in gone), None)
    leaver = next((store for store in record.leaving if store != record.leader.store), None)
    if joiner is not None and leaver is not None:
        return config.swap(record, joiner, leaver, min_in_sync=2)
    if joiner is not None and not record.leaving:
        return config.admit(record, joiner, min_in_sync=2)
    behind = next((store for store in record.replicas if store not in {*record.isr, *gone}), None)
    return record if behind is None else config.admit(record, behind, min_in_sync=2)


@given(st.integers(4, 6), st.data())
def test_any_records_become_even_and_never_have_too_few_in_sync(count: int, data: st.DataObject) -> None:
    every = [StoreId(f"s{number}") for number in range(count)]
    records = data.draw(any_records(every))
    gone = data.draw(st.sampled_from(((), (every[0],))))
    stores = all_able(*(store for store in every if store not in gone), gone=gone)
    for _ in range(400):
        before = dict(records)
        records |= changes(records, stores, min_in_sync=2)  # each of them is checked to be legal
        for shard, record in records.items():
            records[shard] = time_passes(record, gone)
            config.check(records[shard], min_in_sync=2)
        if records == before:
            break
    kept = [store for record in records.values() for store in record.replicas]
    assert not set(kept).intersection(gone)
    assert spread(kept, list(stores.staying)) <= 1
    for record in records.values():
        assert not record.joining
        assert not record.leaving
        assert set(record.isr) == set(record.replicas)


def test_a_lost_store_is_replaced_before_anything_is_evened() -> None:
    records = {0: led(A, B), 1: led(A, C)}
    assert moves(records, all_able(A, B, D, gone=[C])) == [Move(1, D, C)]


def test_a_shard_that_cannot_go_on_comes_first() -> None:
    records = {0: led(A, B, C, isr=(A, B)), 1: led(A, B, C, isr=(A, C))}
    assert moves(records, all_able(A, B, D, gone=[C]), min_in_sync=2) == [Move(1, D, C)]


def test_a_store_that_may_come_back_keeps_what_it_has() -> None:
    away = Stores((A, B, C, D), frozenset((A, B, D)), frozenset())
    assert moves({0: led(A, B, C, isr=(A, B))}, away) == []


def test_a_store_gets_one_copy_at_a_time() -> None:
    records = {0: led(A, C), 1: led(A, C), 2: config.add(led(A, C), B, instead_of=C, min_in_sync=1)}
    assert moves(records, all_able(A, B, gone=[C])) == []


def test_copies_of_a_lost_store_wait_for_one_that_has_much_less() -> None:
    records = {0: config.add(led(A, C), D, instead_of=C, min_in_sync=1)}
    records |= {shard: led(A, B) for shard in range(1, 6)}
    records[6] = led(A, C)
    assert moves(records, all_able(A, B, D, gone=[C])) == [], "D gets it next, and B has enough"
    assert moves({6: led(A, C)}, all_able(A, B, D, gone=[C])) == [Move(6, B, C)]


def test_a_move_to_a_store_that_is_gone_is_given_up() -> None:
    joining = config.add(led(A, B), D, instead_of=B, min_in_sync=2)
    assert changes({0: joining}, all_able(A, B, gone=[D]), min_in_sync=2) == {0: led(A, B)._replace(adds=1)}
    assert changes({0: joining}, all_able(A, B, C), min_in_sync=2) == {}, "D may come back"


def test_a_store_that_a_leader_could_count_out_and_does_not_is_there() -> None:
    assert alive_for_others([led(A, B, C), led(A, B, D, isr=(A, D))], min_in_sync=2) == {A, B, C}


def test_a_store_that_leaves_should_not_lead() -> None:
    record = config.add(led(A, B, C), D, instead_of=A, min_in_sync=2)
    assert preferred({0: record}, [A, B, C, D]) == {0: B}


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


def test_the_first_replica_that_is_there_should_lead() -> None:
    record = ShardRecord(4, Leadership(B, RunId("r")), (A, B, C), (A, B))
    assert preferred({0: record}, [A, B, C]) == {0: A}
    assert preferred({0: record}, [B, C]) == {0: B}


def test_a_queue_goes_to_the_emptiest_shard_that_the_clients_node_leads() -> None:
    leaders = {0: A, 1: B, 2: A, 3: C}
    queues = {0: 5, 1: 0, 2: 3, 3: 0}
    assert shard_for_queue(Locator.CLIENT_LOCAL, A, leaders, queues) == 2
    assert shard_for_queue(Locator.CLIENT_LOCAL, D, leaders, queues) == 1, "it leads none"
    assert shard_for_queue(Locator.BALANCED, A, leaders, queues) == 1
    with pytest.raises(ValueError, match="no shards"):
        shard_for_queue(Locator.BALANCED, A, {}, {})


def test_shards_of_a_leader_that_fails_go_to_different_stores() -> None:
    heirs = Counter(replicas[:2] for replicas in first_replicas([A, B, C], shards=60, replicas=3))
    assert set(heirs.values()) == {10}
