"""The scenarios that the design of the cluster names, by their numbers there, and what has to come of them.

Scenarios 3 (b), 4, 8 and 10 are schedules in `schedules.py`. Number 15 is about clients, which are not
simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.cluster.simulation.etcd import Etcd
from tests.cluster.simulation.node import Node
from tests.cluster.simulation.stage import LOG, Stage
from tests.cluster.simulation.world import SETTINGS, TICK
from warren.cluster.config import Known
from warren.cluster.effects import Role
from warren.cluster.settings import IN_FLIGHT_BYTES_MAX, Settings
from warren.storage.replication import LogId, Records


def test_1_a_leader_that_was_paused_delivers_nothing_and_follows() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    stage.publish(a, 3)
    stage.run_for(0.3)
    confirmed = stage.confirmed()
    a.paused_until = stage.time + 10.0
    stage.until(lambda: stage.is_open(b))
    stage.publish(b, 2)
    stage.wait(2.0)
    a.paused_until = 0.0
    assert not a.participant.shards[0].may_deliver(a.now()), "its first turn finds the lease lapsed"
    stage.run_for(1.0)
    assert a.participant.shards[0].role is Role.FOLLOWER
    assert stage.confirmed() >= confirmed + 2
    stage.until(lambda: stage.isr() == {a.store, b.store, c.store})
    stage.heal()


def test_2_neither_side_goes_on_if_none_can_have_enough_copies() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    stage.cut(c, a, b)
    stage.without_etcd.update((a.place, b.place))
    stage.publish(a, 2)
    stage.run_for(8.0)
    assert a.participant.shards[0].role is Role.SUSPENDED
    assert c.participant.shards[0].role is Role.OPENING, "it is elected, and cannot open alone"
    assert stage.confirmed() == 1
    stage.without_etcd.clear()
    stage.join()
    stage.heal()
    assert stage.record.epoch > 1


def test_2_two_of_an_in_sync_set_of_two_go_on_without_etcd() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    stage.cut(c, a, b)
    stage.until(lambda: stage.isr() == {a.store, b.store})
    stage.without_etcd.update((a.place, b.place))
    before = stage.confirmed()
    stage.publish(a, 2)
    stage.run_for(8.0)
    assert stage.is_open(a)
    assert stage.confirmed() == before + 2
    assert c.participant.shards[0].role is Role.FOLLOWER, "it may not stand"
    assert stage.record.epoch == 1


def test_3_a_store_that_was_shrunk_out_cannot_be_elected() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    stage.cut(c, a, b)
    stage.without_etcd.add(c.place)
    stage.holds = lambda request: request.node == a.place
    stage.until(lambda: bool(stage.held))
    stage.carry_out_held()  # the shrink is written, and its answer lost
    stage.holds = lambda _: False
    stage.crash(a)
    stage.without_etcd.clear()
    stage.join()
    stage.until(lambda: stage.is_open(b) or stage.is_open(c))
    assert stage.leader() is b
    stage.heal()


def test_5_a_new_leader_admits_nobody_who_lacks_what_it_had_at_first() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    stage.crash(c)
    stage.until(lambda: stage.isr() == {a.store, b.store})
    stage.publish(a, 9)
    stage.run_for(0.5)
    c.wipe()
    stage.operate(0)
    c.boot()
    stage.reads_wait = True  # so that the empty store gets nothing
    stage.crash(a)
    stage.run_for(6.0)
    assert c.store not in stage.isr()
    stage.reads_wait = False
    stage.heal()


def test_6_a_leader_that_restarts_at_once_gets_another_epoch() -> None:
    stage = Stage()
    a, *_ = stage.begin()
    epoch = stage.record.epoch
    stage.publish(a, 2)
    a.crash()
    a.boot()
    stage.heal()
    assert stage.record.epoch > epoch


def test_7_all_restart_in_any_order_after_a_power_cut() -> None:
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        stage = Stage()
        a, *_ = stage.begin()
        stage.publish(a, 5)
        stage.run_for(0.3)
        confirmed = stage.confirmed()
        for node in stage.nodes:
            stage.crash(node)
        for place in order:
            stage.nodes[place].boot()
            stage.run_for(1.0)
        stage.until(lambda stage=stage: any(map(stage.is_open, stage.nodes)))  # type: ignore[misc]
        assert sum(map(len, stage.checks.confirmed[0].values())) == confirmed
        stage.heal()


def test_9_a_wiped_disk_is_another_store_and_joins_in_place_of_the_old_one() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    stage.crash(c)
    stage.until(lambda: stage.isr() == {a.store, b.store})
    old = b.store
    stage.crash(b)
    b.wipe()
    b.boot()
    stage.run_for(6.0)
    assert old in stage.isr(), "the set is at its minimum, so nobody leaves it"
    assert not stage.is_open(a)
    stage.operate(0)
    stage.until(lambda: stage.isr() == {a.store, b.store})
    stage.until(lambda: stage.is_open(a))
    stage.heal()


def test_11_12_without_etcd_all_goes_on_until_a_follower_dies() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    stage.etcd.is_up = False
    before = stage.confirmed()
    stage.publish(a, 3)
    stage.run_for(20.0)
    assert stage.confirmed() == before + 3
    stage.crash(c)
    stage.publish(a, 1)
    stage.run_for(5.0)
    assert a.participant.shards[0].role is Role.SUSPENDED
    assert stage.confirmed() == before + 3
    stage.etcd.is_up = True
    stage.until(lambda: stage.is_open(a) and stage.confirmed() == before + 4)
    assert stage.isr() == {a.store, b.store}
    stage.heal()


def test_13_rolling_restarts_hand_over_and_lose_nothing() -> None:
    stage = Stage()
    stage.begin()
    for node in stage.nodes:
        stage.publish(stage.leader(), 2)
        leads = stage.is_open(node)
        began = stage.time
        node.participant.drain(node.now())
        node.carry_out()
        stage.until(lambda node=node: not stage.is_open(node) and any(map(stage.is_open, stage.nodes)))  # type: ignore[misc]
        if leads:
            assert stage.time - began < 0.5
        stage.crash(node)
        node.boot()
        stage.until(lambda: len(stage.isr()) == 3 and any(map(stage.is_open, stage.nodes)))
    assert stage.confirmed() >= 7
    stage.heal()


def test_14_files_of_a_queue_that_was_deleted_meanwhile_go() -> None:
    stage = Stage()
    a, _, c = stage.begin()
    stage.crash(c)
    a.delete_log(0, LOG)
    new = stage.logs[0][0]
    assert new != LOG
    stage.until(lambda: a.publish(0, new, 2))
    c.boot()
    stage.heal()
    assert LOG not in c.disk.durable.shards[0]
    assert new in c.disk.durable.shards[0]


def test_a_leader_with_a_failing_disk_hands_over() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    a.is_failing = True
    a.participant.disk_fails(a.now())
    stage.publish(a, 2)
    stage.until(lambda: stage.is_open(b) or stage.is_open(c))
    assert stage.confirmed() >= 3, "both were on all other members, which open with them"
    stage.heal()


def test_a_follower_with_a_failing_disk_leaves_the_in_sync_set() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    b.is_failing = True
    b.participant.disk_fails(b.now())
    stage.publish(a, 2)
    stage.until(lambda: stage.isr() == {a.store, c.store})
    stage.until(lambda: stage.confirmed() == 3)
    stage.heal()


def test_the_preferred_leader_gets_its_shard_back() -> None:
    stage = Stage()
    a, *_ = stage.begin()
    stage.crash(a)
    stage.until(lambda: any(map(stage.is_open, stage.nodes)))
    a.boot()
    stage.until(lambda: stage.is_open(a))
    stage.heal()


def test_a_shard_that_an_operator_has_moved_stays_where_it_is() -> None:
    stage = Stage()
    a, b, _ = stage.begin()
    stage.publish(a, 3)
    stage.until(lambda: a.participant.shards[0].move(b.store, a.now()))
    stage.until(lambda: stage.is_open(b))
    stage.publish(b, 2)
    stage.run_for(3 * SETTINGS.preferred_after)
    assert stage.is_open(b), "it is the preferred leader now"
    assert stage.confirmed() >= 6
    stage.heal()


def test_a_replica_moves_to_another_node() -> None:
    stage = Stage(nodes=4)
    a, b, c = stage.begin()
    d = stage.nodes[3]
    stage.publish(a, 6)
    stage.move(0, a.store)  # the leader itself moves
    stage.until(lambda: stage.isr() == {b.store, c.store, d.store})
    assert not stage.record.leaving
    stage.heal()
    assert d.disk.durable.shards[0][LogId(1)]


def test_a_store_that_leaves_the_in_sync_set_often_waits_longer() -> None:
    stage = Stage(settings=Settings())
    a, b, c = stage.begin()
    waits = []
    for _ in range(4):
        stage.cut(c, a, b)
        stage.until(lambda: c.store not in stage.isr())
        stage.join()
        began = stage.time
        stage.until(lambda: c.store in stage.isr())
        waits.append(round(stage.time - began))
    assert waits == [1, 2, 4, 8]


def test_a_follower_comes_back_when_only_the_link_of_its_leader_has_ended() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    stage.publish(a, 3)
    stage.network.renew(a, b)  # with what was on its way
    stage.publish(a, 2)
    stage.until(lambda: stage.confirmed() >= 6)
    stage.run_for(3.0)
    assert stage.isr() == {a.store, b.store, c.store}
    stage.heal()


def hangs(etcd: Etcd) -> None:
    etcd.is_up = False


def refuses(etcd: Etcd) -> None:
    etcd.refuses.update(range(3))


def refuses_changes(etcd: Etcd) -> None:
    etcd.is_read_only = True


def goes_on(stage: Stage, leader: Node, seconds: float = 20.0) -> None:
    """Whatever is tried meanwhile, the leader takes and confirms what is published all the time."""
    end = stage.time + seconds
    while stage.time < end:
        before = stage.confirmed()
        stage.publish(leader)
        stage.run_for(2 * TICK)
        assert stage.confirmed() == before + 1


without_etcd = pytest.mark.parametrize("goes_away", [hangs, refuses, refuses_changes])


@without_etcd
def test_without_etcd_a_leader_does_not_stop_for_the_preferred_one(
    goes_away: Callable[[Etcd], None],
) -> None:
    """A node that was restarted shortly before etcd went away would get its shards back."""
    stage = Stage()
    a, b, _ = stage.begin()
    stage.crash(a)
    stage.until(lambda: stage.is_open(b))
    a.boot()
    stage.until(lambda: a.store in stage.isr())
    goes_away(stage.etcd)
    goes_on(stage, b, 3 * SETTINGS.preferred_after)


@without_etcd
def test_without_etcd_a_leader_that_paused_goes_on(goes_away: Callable[[Etcd], None]) -> None:
    """Its followers do not stand, or do not stay in doubt whether they may be elected."""
    stage = Stage()
    a, *_ = stage.begin()
    goes_away(stage.etcd)
    a.paused_until = stage.time + 1.2 * SETTINGS.grace
    stage.run_for(1.2 * SETTINGS.grace + 1.0)
    goes_on(stage, a)


@without_etcd
def test_without_etcd_a_shard_is_not_moved_and_not_stopped_either(
    goes_away: Callable[[Etcd], None],
) -> None:
    stage = Stage()
    a, b, _ = stage.begin()
    goes_away(stage.etcd)
    assert a.participant.shards[0].move(b.store, a.now())
    goes_on(stage, a)
    goes_back(stage.etcd)
    goes_on(stage, a)  # whoever asked for it has given up


@without_etcd
def test_without_etcd_a_node_that_is_drained_or_ends_goes_on_as_long_as_it_is_there(
    goes_away: Callable[[Etcd], None],
) -> None:
    stage = Stage()
    a, b, _ = stage.begin()
    goes_away(stage.etcd)
    a.participant.leave(a.now())
    a.carry_out()
    goes_on(stage, a)
    goes_back(stage.etcd)
    stage.until(lambda: stage.is_open(b))


@without_etcd
def test_without_etcd_a_follower_that_restarts_gets_in_step_again(
    goes_away: Callable[[Etcd], None],
) -> None:
    stage = Stage()
    a, b, _ = stage.begin()
    goes_away(stage.etcd)
    b.crash()
    b.boot()
    stage.run_for(1.0)
    goes_on(stage, a)


def goes_back(etcd: Etcd) -> None:
    etcd.is_up, etcd.is_read_only = True, False
    etcd.refuses.clear()


def test_a_leader_whose_hand_over_was_not_sent_goes_on_at_once() -> None:
    """Etcd goes away just after it was seen to be there."""
    stage = Stage()
    a, b, _ = stage.begin()
    stage.holds = lambda request: request.record is not None and request.record.epoch > 1
    assert a.participant.shards[0].move(b.store, a.now())
    a.carry_out()
    stage.until(lambda: bool(stage.held))
    assert a.participant.shards[0].role is Role.SUSPENDED
    stage.etcd.refuses.add(a.place)
    stage.etcd.requests, stage.held = stage.held, []
    stage.holds = lambda _: False
    stage.run_for(2 * TICK)
    goes_on(stage, a)


def test_a_hand_over_that_may_have_been_sent_stops_the_leader_until_that_is_known() -> None:
    stage = Stage()
    a, b, _ = stage.begin()
    stage.holds = lambda request: request.record is not None and request.record.epoch > 1
    assert a.participant.shards[0].move(b.store, a.now())
    a.carry_out()
    stage.until(lambda: bool(stage.held))
    stage.answer_unknown(stage.held[0])
    stage.etcd.refuses.add(a.place)
    stage.run_for(20.0)
    assert a.participant.shards[0].role is Role.SUSPENDED
    stage.carry_out_held()
    stage.until(lambda: stage.is_open(b))


def test_a_plan_that_comes_to_nothing_does_not_delay_the_next_one() -> None:
    """The store that should lead is gone when the leader sees that etcd takes what it writes."""
    stage = Stage()
    a, b, c = stage.begin()
    stage.holds = lambda request: request.node == a.place
    assert a.participant.shards[0].move(b.store, a.now())
    a.carry_out()
    stage.until(lambda: bool(stage.held))
    stage.crash(b)
    stage.holds = lambda _: False
    stage.carry_out_held()
    stage.run_for(0.5)
    assert stage.is_open(a)
    began = stage.time
    a.participant.drain(a.now())
    a.carry_out()
    stage.until(lambda: stage.is_open(c))
    assert stage.time - began < SETTINGS.hand_over_patience
    stage.heal()


def test_a_node_that_nobody_can_take_over_from_leads_on_while_it_is_drained() -> None:
    stage = Stage()
    nodes = a, b, c = stage.begin()
    for node in nodes:
        node.participant.prefer({}, avoid=[b.store, c.store])
    a.participant.drain(a.now())
    a.carry_out()
    goes_on(stage, a)
    for node in nodes:
        node.participant.prefer({}, avoid=[b.store])
    stage.until(lambda: stage.is_open(c))


def test_a_shard_is_led_while_all_nodes_are_drained_one_after_the_other() -> None:
    stage = Stage()
    drained: list[str] = []
    for node in stage.begin():
        drained.append(node.store)
        for other in stage.nodes:
            other.participant.prefer({}, avoid=drained)  # type: ignore[arg-type] # ids are texts
        node.participant.drain(node.now())
        node.carry_out()
        stage.run_for(6.0)
        goes_on(stage, stage.leader(), 2.0)


def test_a_store_that_syncs_nothing_and_is_counted_out_gets_a_bounded_amount() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    b.is_failing = True  # it reads what it is sent, and acks nothing
    stage.publish(a)
    stage.until(lambda: stage.isr() == {a.store, c.store})
    leader = a.participant.shards[0].leader
    assert leader is not None
    large = Records(LogId(999), 1, 1, 8, 1, 1, bytes(1024 * 1024))
    for _ in range(64):
        leader.append([large], a.now())
        session = leader.sessions.get(b.store)
        assert session is None or session.in_flight <= IN_FLIGHT_BYTES_MAX
    assert b.store not in leader.sessions
    assert leader.sessions[c.store].in_flight >= 64 * 1024 * 1024, "a member is waited for"


def test_a_store_whose_session_was_ended_gets_into_sync_when_its_disk_works_again() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    b.is_failing = True
    stage.publish(a)
    stage.until(lambda: stage.isr() == {a.store, c.store})
    leader = a.participant.shards[0].leader
    assert leader is not None
    leader.refuse(b.store, leader.sessions[b.store].session)
    a.carry_out()
    goes_on(stage, a, 5.0)
    b.is_failing = False
    stage.until(lambda: stage.isr() == {a.store, b.store, c.store})
    stage.heal()


def fails(node: Node) -> None:
    node.participant.shards[0].step_failed(node.now())
    node.carry_out()


def test_a_member_that_begins_anew_for_ever_is_counted_out() -> None:
    """Whatever it is to write fails, so it never owes an ack for long."""
    stage = Stage()
    a, b, c = stage.begin()
    c.is_failing = True
    stage.publish(a)
    for _ in range(4):
        stage.run_for(0.2)
        fails(c)
        stage.run_for(SETTINGS.ask_again)
    assert stage.isr() == {a.store, b.store}
    stage.run_for(0.2)
    assert stage.confirmed() == 2
    c.is_failing = False
    stage.heal()


def test_a_leader_that_is_alone_in_sync_begins_another_term_when_something_has_failed() -> None:
    stage = Stage(settings=replace(SETTINGS, min_in_sync=1))
    a, b, c = stage.begin()
    stage.crash(b)
    stage.crash(c)
    stage.until(lambda: stage.isr() == {a.store})
    epoch = stage.record.epoch
    fails(a)
    stage.run_for(SETTINGS.failure_patience / 2)
    assert stage.roles() == ["SUSPENDED", "DOWN", "DOWN"]
    assert stage.record.epoch == epoch
    stage.until(lambda: stage.is_open(a))
    assert stage.record.epoch == epoch + 1
    before = stage.confirmed()
    stage.publish(a)
    stage.run_for(0.2)
    assert stage.confirmed() == before + 1
    stage.heal()


def test_a_leader_that_has_failed_and_whose_only_other_member_is_lost_goes_on_with_a_new_one() -> None:
    stage = Stage()
    a, b, c = stage.begin()
    stage.crash(b)
    stage.until(lambda: stage.isr() == {a.store, c.store})
    stage.without_etcd.add(a.place)  # or it would hand over to whoever it has not missed yet
    stage.crash(c)
    fails(a)
    stage.run_for(1.0)
    stage.without_etcd.clear()
    b.boot()
    stage.until(lambda: stage.is_open(a))
    assert stage.isr() == {a.store, b.store}
    stage.heal()


def test_an_etcd_that_was_put_back_to_an_older_state_is_told_and_elects_nobody() -> None:
    stage = Stage()
    a, b, _ = stage.begin()
    old = stage.etcd.records[0]
    stage.crash(a)
    stage.until(lambda: stage.is_open(b))
    a.boot()
    stage.until(lambda: stage.is_open(a) and len(stage.isr()) == 3)
    stage.is_restored = True
    stage.etcd.records[0] = Known(old.revision, old.record)
    goes_on(stage, a, SETTINGS.record_read_every + 1.0)
    assert all(node.participant.shards[0].reads.is_lost for node in stage.nodes)
    assert stage.losses == 3, "each store says it once"
    for node in stage.nodes:
        node.crash()
        node.boot()
    stage.run_for(20.0)
    assert set(stage.roles()) == {"FOLLOWER"}
    assert stage.losses == 6
