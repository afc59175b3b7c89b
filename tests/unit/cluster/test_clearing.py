"""Copies that a store does not keep any more: removed when etcd says so, and never during a session."""

from __future__ import annotations

import pytest

from tests.unit.cluster.nodes import RECORD, RUNS, A, Alone, B, C, D
from warren.cluster.config import Known, Leadership, ShardRecord
from warren.cluster.effects import ConfirmGone, RemoveCopies, TakeInventory
from warren.cluster.messages import Beacon, Inventory, Refused

LED = RECORD._replace(epoch=1, leader=Leadership(A, RUNS[A]))
JOINING = LED._replace(joining=(D,), adds=1)


def outsider() -> Alone:
    """D, which knows that A, B and C keep the shard."""
    node = Alone(D)
    node.link(A)
    learn(node, LED)
    return node


def learn(node: Alone, record: ShardRecord) -> Known:
    node.revision += 1
    known = Known(node.revision, record)
    node.shard.learn(known, 0.0)
    return known


def asked(node: Alone) -> ConfirmGone:
    node.shard.clear(0.0)
    (effect,) = node.take(ConfirmGone)
    return effect


def test_copies_go_when_etcd_says_that_the_store_keeps_none() -> None:
    node = outsider()
    effect = asked(node)
    node.shard.gone_confirmed(effect.number, Known(node.revision, LED), 0.1)
    assert node.take(RemoveCopies) == [RemoveCopies(0, effect.number)]


@pytest.mark.parametrize("record", [LED, LED._replace(replicas=(A, B, D), isr=(A, B, D)), JOINING])
def test_copies_stay_if_the_record_names_the_store_by_now(record: ShardRecord) -> None:
    node = outsider()
    effect = asked(node)
    node.shard.gone_confirmed(effect.number, Known(node.revision + 1, record), 0.1)
    assert bool(node.take(RemoveCopies)) == (record == LED)


def test_a_record_that_is_older_than_what_the_store_knows_is_not_believed() -> None:
    """Etcd may have been restored from a copy."""
    node = outsider()
    effect = asked(node)
    node.hear(A, Beacon(0.0, ((0, 7),)))
    node.shard.gone_confirmed(effect.number, Known(node.revision + 1, LED), 0.1)
    assert node.take(RemoveCopies) == []
    other = Alone(D, epoch=7)
    learn(other, LED)
    other.shard.clear(0.0)
    assert other.take(ConfirmGone) == []


def test_nothing_is_asked_by_a_store_that_is_named_or_knows_no_record() -> None:
    for record in (None, JOINING):
        node = Alone(D)
        if record is not None:
            learn(node, record)
        node.shard.clear(0.0)
        assert node.take(ConfirmGone) == []


def test_no_session_is_opened_until_all_copies_are_gone() -> None:
    node = outsider()
    effect = asked(node)
    node.shard.gone_confirmed(effect.number, Known(node.revision, LED), 0.0)
    learn(node, JOINING)
    node.hear(A, Beacon(0.0, ((0, 1),)), 0.0)
    assert node.take(TakeInventory) == []
    node.shard.copies_removed(effect.number)
    node.participant.tick(0.1)
    assert len(node.take(TakeInventory)) == 1


def test_an_answer_that_comes_too_late_removes_nothing() -> None:
    node = outsider()
    effect = asked(node)
    node.participant.tick(30.0)
    node.shard.gone_confirmed(effect.number, Known(node.revision, LED), 30.0)
    assert node.take(RemoveCopies) == []
    again = asked(node)
    assert again.number != effect.number


def test_a_leader_gives_no_session_to_a_store_that_keeps_nothing() -> None:
    node = Alone(A)
    node.link(B, C, D)
    node.lead()
    node.hear(D, Inventory(0, 1, 77, (), is_last=True))
    ((to, _),) = node.sent(Refused)
    assert to == D
    assert node.shard.leader is not None
    assert D not in node.shard.leader.sessions


def test_a_store_that_is_added_needs_a_new_session() -> None:
    node = Alone(A)
    node.link(B, C, D)
    node.lead()
    assert node.shard.leader is not None
    record = node.shard.leader.record
    learn(node, record._replace(joining=(D,), adds=1))
    node.hear(D, Inventory(0, 1, 77, (), is_last=True))
    assert D in node.shard.leader.sessions
    learn(node, record._replace(joining=(D,), adds=2))
    assert D not in node.shard.leader.sessions
    assert D in {to for to, _ in node.sent(Refused)}
