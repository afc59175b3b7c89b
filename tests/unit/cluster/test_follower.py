"""A follower: what it takes and refuses, when it acks, and when it stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.cluster.nodes import LOG, RECORD, RUNS, A, Alone, B, C
from warren.cluster.config import Known, Leadership, RunId
from warren.cluster.effects import Apply, Cas, Close, KeepEpoch, KeepWhole, ReadRecord, Role, TakeInventory
from warren.cluster.follower import _pages
from warren.cluster.messages import Ack, Acks, Batch, Beacon, Echo, Inventory, Refused
from warren.cluster.settings import INVENTORY_SEGMENTS_MAX, Settings
from warren.cluster.transactions import Outcome
from warren.storage.replication import Drop, LogId, SegmentState

LED = RECORD._replace(epoch=4, leader=Leadership(A, RUNS[A]))
DROP = (Drop(LOG, 1, 1),)


def following() -> tuple[Alone, int]:
    """B follows A in epoch 4, and has opened a session."""
    node = Alone(B)
    node.learn(LED)
    node.link(A)
    return node, node.session()


def batch(session: int, number: int, *, epoch: int = 4, in_step: bool = False) -> Batch:
    return Batch(0, epoch, session, number, DROP, in_step)


def test_a_follower_opens_a_session_with_what_it_has() -> None:
    node, session = following()
    assert node.sent(Inventory) == [(A, Inventory(0, 4, session, (), is_last=True))]
    assert node.role() is Role.FOLLOWER


def test_a_batch_is_acked_when_it_is_synced_and_not_before() -> None:
    node, session = following()
    node.hear(A, batch(session, 1))
    node.hear(A, batch(session, 2))
    assert node.sent(Acks) == []
    node.sync()
    assert node.sent(Acks) == [(A, Acks((Ack(0, 4, session, 2),)))]


def test_the_epoch_reaches_the_disk_before_any_batch_of_it() -> None:
    node, session = following()
    node.hear(A, batch(session, 1))
    effects = [e for e in node.effects + node.participant.take_effects() if isinstance(e, KeepEpoch | Apply)]
    assert isinstance(effects[0], KeepEpoch)
    assert effects[0].epoch == 4


@pytest.mark.parametrize("number", [1, 3])
def test_a_batch_out_of_line_makes_a_new_session(number: int) -> None:
    node, session = following()
    node.hear(A, batch(session, 1))
    node.take(Apply)
    node.hear(A, batch(session, number))
    assert node.take(Apply) == []
    assert node.session() != session


def test_batches_of_another_session_or_sender_are_not_applied() -> None:
    node, session = following()
    node.hear(A, batch(session + 1, 1))
    node.link(C)
    node.hear(C, batch(session, 1))
    assert node.take(Apply) == []


def test_lower_epochs_are_refused_and_told_why() -> None:
    node, session = following()
    node.hear(A, batch(session, 1, epoch=3))
    node.hear(A, Beacon(1.0, ((0, 3),)))
    assert node.take(Apply) == []
    assert node.sent(Refused) == [(A, Refused(0, 4)), (A, Refused(0, 4))]
    assert node.sent(Echo) == [(A, Echo(1.0, ()))]


def test_what_a_store_has_kept_is_refused_after_a_restart() -> None:
    node = Alone(B, epoch=4)
    node.link(A)
    node.hear(A, Beacon(1.0, ((0, 3),)))
    assert node.sent(Refused) == [(A, Refused(0, 4))]


def test_a_follower_follows_a_beacon_of_a_later_epoch_without_etcd() -> None:
    node = Alone(B, epoch=4)
    node.link(A)
    node.hear(A, Beacon(1.0, ((0, 5),)))
    assert node.sent(Echo) == [(A, Echo(1.0, ((0, 5),)))]
    assert node.take(TakeInventory)


def test_a_link_that_ends_ends_the_session() -> None:
    node, session = following()
    node.hear(A, batch(session, 1))
    node.participant.link_down(A, 1.0)
    node.sync()
    assert node.sent(Acks) == []
    node.link(A, now=1.1)
    assert node.session() != session


def test_a_follower_whose_files_do_not_fit_begins_anew() -> None:
    node, session = following()
    node.shard.apply_failed(0.1)
    node.participant.tick(0.2)
    assert node.session() != session


def test_a_batch_that_does_not_fit_is_not_acked_by_the_next_one() -> None:
    """Both came in one read. The second one touches another log, fits, and is synced."""
    node, session = following()
    node.hear(A, batch(session, 1))
    node.hear(A, batch(session, 2))
    _, second = node.take(Apply)
    node.shard.apply_failed(0.1)
    node.shard.synced(second.token, 0.2)
    assert node.sent(Acks) == []


def test_a_follower_that_is_refused_asks_again_later() -> None:
    node, session = following()
    node.hear(A, Refused(0, 4), 1.0)
    node.participant.tick(1.5)
    assert node.take(TakeInventory) == []
    node.participant.tick(2.1)
    assert node.session() != session


def test_a_follower_that_hears_of_a_later_epoch_asks_for_the_record() -> None:
    node, _ = following()
    node.take(ReadRecord)
    node.hear(A, Refused(0, 9), 1.0)
    assert node.shard.epoch == 9
    assert node.take(ReadRecord)


def test_a_session_in_which_nothing_comes_is_opened_anew() -> None:
    node, session = following()
    node.participant.tick(6.0)
    assert node.session() != session


def test_a_damaged_store_notes_it_before_it_is_repaired() -> None:
    node = Alone(B)
    node.learn(LED)
    node.link(A)
    (taken,) = node.take(TakeInventory)
    node.shard.inventory_taken(taken.session, [(LOG, [SegmentState(1, 3, 80, damaged=True)])], 0.0)
    assert node.take(KeepWhole) == [KeepWhole(0, is_whole=False)]
    assert node.sent(Inventory) == []
    node.participant.tick(0.1)
    assert node.take(TakeInventory) == []
    node.sync(0.2)
    node.participant.tick(0.3)
    session = node.session()
    node.hear(A, batch(session, 1, in_step=True), 0.4)
    assert not node.shard.follower.is_whole
    node.sync(0.5)
    assert node.shard.follower.is_whole
    assert node.take(KeepWhole) == [KeepWhole(0, is_whole=True)]


# --- standing ---


def stands(node: Alone, now: float) -> bool:
    node.participant.tick(now)
    node.read(now)
    return any(cas.record.leader == node.me for cas in node.take(Cas))


def test_a_follower_stands_when_it_has_heard_nothing_for_the_grace_and_its_rank() -> None:
    for store, delay in ((B, 0.0), (C, 0.05)):
        node = Alone(store)
        node.learn(LED)
        node.link(A)
        node.hear(A, Beacon(1.0, ((0, 4),)), 1.0)
        assert not stands(node, 3.49 + delay)
        assert stands(node, 3.51 + delay)


def test_nobody_stands_who_is_not_in_sync() -> None:
    node = Alone(B)
    node.learn(LED._replace(isr=(A, C)))
    assert not stands(node, 100.0)


def test_nobody_stands_who_is_draining_damaged_or_has_a_failing_disk() -> None:
    spoils: list[Callable[[Alone], None]] = [
        lambda node: node.participant.drain(0.0),
        lambda node: node.shard.damage_found(0.0),
        lambda node: node.participant.disk_fails(0.0),
    ]
    for spoil in spoils:
        node = Alone(B)
        node.learn(LED)
        spoil(node)
        assert not stands(node, 100.0)


def test_a_store_that_stood_and_is_drained_before_it_hears_of_it_ends_the_doubt() -> None:
    """It echoes no leader's beacons while it may yet be elected, so that nobody else could deliver."""
    node = Alone(B)
    node.learn(LED)
    node.participant.peer_gone(A, 0.2)
    (stood,) = node.take(Cas)
    node.participant.drain(0.3)
    node.shard.cas_answered(stood.revision, Outcome.UNKNOWN, 0.3)
    node.participant.tick(0.4)
    (touch,) = node.take(Cas)
    assert touch.record == LED


def test_a_leader_whose_process_is_gone_is_not_waited_for() -> None:
    node = Alone(B)
    node.learn(LED)
    node.participant.peer_gone(A, 0.2)
    assert stands(node, 0.2)


def test_a_leader_that_comes_back_in_another_run_is_not_waited_for() -> None:
    node = Alone(B)
    node.learn(LED)
    node.participant.link_up(A, RunId("another"), 0.2)
    assert stands(node, 0.2)


def test_an_older_process_that_is_gone_says_nothing_of_a_leader_elected_since() -> None:
    node = Alone(B)
    node.learn(LED)
    node.participant.peer_gone(A, 0.2)
    assert node.take(Cas), "it stands, and another one was elected before"
    node.learn(LED._replace(epoch=5, leader=Leadership(A, RunId("another"))), 0.3)
    assert not stands(node, 0.5)


def test_a_store_that_led_in_an_earlier_run_stands_at_once_in_a_new_epoch() -> None:
    node = Alone(A)
    node.learn(LED._replace(leader=Leadership(A, RunId("before"))))
    assert node.role() is Role.FOLLOWER
    node.participant.tick(0.1)
    (cas,) = node.take(Cas)
    assert (cas.record.epoch, cas.record.leader) == (5, node.me)


def test_who_stands_echoes_no_other_leader_until_the_outcome_is_known() -> None:
    node = Alone(B)
    node.learn(LED)
    node.link(A)
    assert stands(node, 10.0)
    node.hear(A, Beacon(9.9, ((0, 4),)), 10.1)
    assert node.sent(Echo) == [(A, Echo(9.9, ()))]
    node.shard.cas_answered(1, Outcome.UNKNOWN, 10.2)
    node.participant.tick(10.3)
    (touch,) = node.take(Cas)
    assert touch.record == LED, "the leader is back: the same record again ends the doubt"
    node.shard.cas_answered(1, Known(2, LED), 10.4)
    node.hear(A, Beacon(10.4, ((0, 4),)), 10.4)
    assert node.sent(Echo) == [(A, Echo(10.4, ((0, 4),)))]


def test_a_long_inventory_has_several_pages() -> None:
    many = tuple(SegmentState(base, 1, 8) for base in range(INVENTORY_SEGMENTS_MAX + 5))
    pages = _pages([(LOG, many), (LogId(2), ())])
    assert [is_last for _, is_last in pages] == [False, True]
    assert tuple(s for page, _ in pages for log, part in page if log == LOG for s in part) == many
    assert _pages([]) == [((), True)]


def test_an_inventory_that_never_ends_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.cluster.leader.INVENTORY_LOGS_MAX", 5)
    node = Alone(A)
    node.link(B, C)
    node.lead()
    for page in range(3):
        logs = tuple((LogId(3 * page + number), ()) for number in range(3))
        node.hear(B, Inventory(0, 1, 7, logs, is_last=False))
    assert [close.to for close in node.take(Close)] == [B]


def test_a_leader_puts_pages_together() -> None:
    node = Alone(A, settings=Settings())
    node.link(B, C)
    node.lead()
    node.hear(B, Inventory(0, 1, 7, ((LOG, (SegmentState(1, 1, 8),)),), is_last=False))
    assert node.sent(Batch) == []
    node.hear(B, Inventory(0, 1, 7, ((LogId(2), ()),), is_last=True))
    removed = {change.log for _, batch in node.sent(Batch) for change in batch.changes}
    assert removed == {LOG, LogId(2)}
