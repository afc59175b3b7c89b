"""The scenarios that the design of the cluster names, by their numbers there, and what has to come of them.

Scenarios 3 (b), 4, 8 and 10 are schedules in `schedules.py`. Number 15 is about clients, which are not
simulated.
"""

from __future__ import annotations

from tests.cluster.simulation.stage import LOG, Stage
from tests.cluster.simulation.world import SETTINGS
from warren.cluster.effects import Role
from warren.cluster.settings import Settings
from warren.storage.replication import LogId


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
