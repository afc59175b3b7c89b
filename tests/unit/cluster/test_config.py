"""The record of a shard: what each change makes, what it refuses, and that nothing else is possible."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.cluster import config
from warren.cluster.config import (
    BadRecord,
    IllegalChange,
    Leadership,
    RunId,
    ShardRecord,
    StoreId,
    read_record,
    record_text,
)

A, B, C, D, E = map(StoreId, "abcde")
LEADER = Leadership(A, RunId("run"))
RECORD = ShardRecord(3, LEADER, (A, B, C), (A, B, C))


def test_a_member_of_the_in_sync_set_is_elected_in_the_next_epoch() -> None:
    new = config.elect(RECORD, Leadership(B, RunId("r")))
    assert (new.epoch, new.leader, new.isr) == (4, Leadership(B, RunId("r")), RECORD.isr)


def test_nobody_else_is_elected() -> None:
    with pytest.raises(IllegalChange):
        config.elect(RECORD._replace(isr=(A, B)), Leadership(C, RunId("r")))


def test_an_operator_has_a_replica_lead_that_is_not_in_sync() -> None:
    record = config.add(RECORD._replace(isr=(A, B)), D, instead_of=B, min_in_sync=2)
    forced = config.force(record, Leadership(C, RunId("r")))
    assert forced == record._replace(epoch=4, leader=Leadership(C, RunId("r")), isr=(C,))
    assert read_record(record_text(forced)) == forced
    assert config.named_change(record, forced, min_in_sync=2) is None, "the protocol never does so by itself"
    assert config.admit(forced, A, min_in_sync=2).isr == (C, A), "others come in sync again"


@pytest.mark.parametrize("store", [A, B, D, E])
def test_only_a_replica_that_is_not_in_sync_is_forced(store: StoreId) -> None:
    record = config.add(RECORD._replace(isr=(A, B)), D, instead_of=B, min_in_sync=2)
    with pytest.raises(IllegalChange):
        config.force(record, Leadership(store, RunId("r")))


def test_a_leader_hands_over_to_another_store() -> None:
    assert config.hand_over(RECORD, Leadership(C, RunId("r"))).epoch == 4
    with pytest.raises(IllegalChange):
        config.hand_over(RECORD, Leadership(A, RunId("another")))
    with pytest.raises(IllegalChange):
        config.hand_over(ShardRecord(0, None, (A,), (A,)), LEADER)


def test_a_leader_that_hands_over_may_leave_the_in_sync_set_with_that() -> None:
    left = config.hand_over(RECORD, Leadership(C, RunId("r")), leaves=True, min_in_sync=2)
    assert (left.isr, left.replicas, left.epoch) == ((B, C), RECORD.replicas, 4)
    with pytest.raises(IllegalChange):
        config.hand_over(RECORD, Leadership(C, RunId("r")), leaves=True, min_in_sync=3)


def test_a_minimum_that_was_raised_later_keeps_nobody_from_coming_in() -> None:
    """Two of four are in sync, as the settings asked for once; four are asked for now."""
    small = config.add(RECORD._replace(isr=(A, B)), D, min_in_sync=4)
    assert config.admit(small, C, min_in_sync=4).isr == (A, B, C)
    with pytest.raises(IllegalChange):
        config.shrink(small, frozenset({B}), min_in_sync=4)


@pytest.mark.parametrize("gone", [frozenset({B, C}), frozenset({A}), frozenset(), frozenset({D})])
def test_the_in_sync_set_keeps_its_leader_and_its_minimum(gone: frozenset[StoreId]) -> None:
    with pytest.raises(IllegalChange):
        config.shrink(RECORD, gone, min_in_sync=2)


def test_a_store_leaves_the_in_sync_set_and_comes_back() -> None:
    small = config.shrink(RECORD, frozenset({B}), min_in_sync=2)
    assert small.isr == (A, C)
    assert small.replicas == RECORD.replicas
    assert set(config.admit(small, B, min_in_sync=2).isr) == {A, B, C}


def test_a_joiner_stands_in_at_the_place_of_the_one_that_leaves() -> None:
    joining = config.add(RECORD, D, instead_of=B, min_in_sync=2)
    assert (joining.joining, joining.leaving, joining.isr) == ((D,), (B,), RECORD.isr)
    swapped = config.swap(joining, D, B, min_in_sync=2)
    assert swapped == ShardRecord(3, LEADER, (A, D, C), (A, C, D), adds=1)


def test_a_joiner_that_replaces_nobody_makes_one_replica_more() -> None:
    joined = config.admit(config.add(RECORD, D, min_in_sync=2), D, min_in_sync=2)
    assert joined.replicas == (A, B, C, D)
    assert joined.joining == ()


def test_a_swap_at_the_minimum_keeps_the_size() -> None:
    record = config.add(RECORD._replace(isr=(A, B)), D, instead_of=B, min_in_sync=2)
    assert config.swap(record, D, B, min_in_sync=2).isr == (A, D)


def test_a_leader_is_neither_swapped_nor_removed() -> None:
    record = config.add(RECORD, D, instead_of=A, min_in_sync=2)
    with pytest.raises(IllegalChange):
        config.swap(record, D, A, min_in_sync=2)
    with pytest.raises(IllegalChange):
        config.remove(record, A, min_in_sync=2)


def test_a_joiner_can_be_given_up() -> None:
    for leaver in (None, B):
        joining = config.add(RECORD, D, instead_of=leaver, min_in_sync=2)
        assert config.remove(joining, D, min_in_sync=2) == RECORD._replace(adds=1)


@pytest.mark.parametrize(
    "record",
    [
        RECORD._replace(isr=(A,)),
        RECORD._replace(isr=(A, D)),
        RECORD._replace(isr=(B, C)),
        RECORD._replace(joining=(A,)),
        RECORD._replace(leaving=(D,)),
        RECORD._replace(replicas=(A, B, B)),
        RECORD._replace(leader=None),
        RECORD._replace(epoch=-1),
        RECORD._replace(epoch=0),
    ],
)
def test_what_must_hold_of_a_record_is_checked(record: ShardRecord) -> None:
    with pytest.raises(IllegalChange):
        config.check(record, min_in_sync=2)


def test_records_are_read_as_they_were_written() -> None:
    record = config.add(RECORD, D, instead_of=B, min_in_sync=2)
    assert read_record(record_text(record)) == record
    assert read_record(record_text(config.create((A, B), min_in_sync=2))) == config.create(
        (A, B), min_in_sync=2
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        '{"epoch": "3", "leader": null, "replicas": [], "isr": []}',
        '{"epoch": true, "leader": {"store": "a", "run": "r"}, "replicas": ["a"], "isr": ["a"]}',
        '{"epoch": 0, "leader": null, "replicas": "abc", "isr": []}',
        '{"epoch": 0, "leader": null, "replicas": [1], "isr": [1]}',
        '{"epoch": 1, "leader": {"store": "b", "run": "r"}, "replicas": ["a"], "isr": ["a"]}',
    ],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(BadRecord):
        read_record(text)


STORES = st.sampled_from((A, B, C, D, E))
NAMES = ("elect", "hand_over", "move", "leave", "shrink", "admit", "swap", "add", "remove")


@st.composite
def changes(draw: st.DrawFn, record: ShardRecord) -> ShardRecord:
    """A record after any change that somebody may try."""
    name = draw(st.sampled_from(NAMES))
    store, other = draw(STORES), draw(STORES)
    leader = Leadership(store, RunId(draw(st.sampled_from("rs"))))
    instead = draw(st.sampled_from((None, other)))
    makes = {
        "elect": partial(config.elect, record, leader),
        "hand_over": partial(config.hand_over, record, leader),
        "move": partial(config.hand_over, record, leader, for_good=True),
        "leave": partial(config.hand_over, record, leader, leaves=True, min_in_sync=2),
        "shrink": partial(config.shrink, record, frozenset({store, other}), min_in_sync=2),
        "admit": partial(config.admit, record, store, min_in_sync=2),
        "swap": partial(config.swap, record, store, other, min_in_sync=2),
        "add": partial(config.add, record, store, instead_of=instead, min_in_sync=2),
        "remove": partial(config.remove, record, store, min_in_sync=2),
    }
    try:
        return makes[name]()
    except IllegalChange:
        return record


@given(st.data())
def test_any_changes_lead_to_legal_records_and_have_a_name(data: st.DataObject) -> None:
    record = config.create((A, B, C), min_in_sync=2)
    for _ in range(12):
        new = data.draw(changes(record))
        config.check(new, min_in_sync=2)
        assert config.named_change(record, new, min_in_sync=2) is not None
        assert new.epoch in (record.epoch, record.epoch + 1)
        assert len(set(record.isr) & set(new.isr)) >= 1, "somebody who had everything is in the new set"
        assert read_record(record_text(new)) == new
        record = new


def test_a_change_of_nobody_has_no_name() -> None:
    assert config.named_change(RECORD, RECORD._replace(epoch=7), min_in_sync=2) is None
    assert config.named_change(RECORD, RECORD._replace(isr=(A, B, C, D)), min_in_sync=2) is None
    assert (
        config.named_change(RECORD._replace(isr=(A, B)), RECORD._replace(isr=(A, C)), min_in_sync=2) is None
    )
