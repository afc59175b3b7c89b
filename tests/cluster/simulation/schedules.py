"""Schedules that chance finds rarely or never, each of them for the rule that it would break."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tests.cluster.simulation.disk import DiskRules
from tests.cluster.simulation.node import Node
from tests.cluster.simulation.stage import Stage
from warren.cluster.settings import Rules

Schedule: TypeAlias = Callable[[Rules, DiskRules], None]
SLOW, FAST = 0.8, 1.2  # clocks; their ratio is less than that of grace and lease


def late_admission(rules: Rules, disk_rules: DiskRules) -> None:
    """An admission whose outcome is not known is written after more was confirmed."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.cut(c, a, b)
    stage.until(lambda: len(stage.isr()) == 2)
    stage.holds = lambda request: len(request.record.isr) == 3 if request.record else False
    stage.join()
    stage.until(lambda: bool(stage.held))
    stage.cut(c, a, b)
    stage.run_for(2.0)  # the joiner is gone again
    stage.answer_unknown(stage.held[0])
    stage.run_for(0.5)  # the record is read: the admission is not in it
    stage.publish(a)
    stage.run_for(0.5)
    stage.carry_out_held()
    stage.holds = lambda _: False
    stage.join()
    stage.heal()


def deposed_leader_calls_first(rules: Rules, disk_rules: DiskRules) -> None:
    """Scenario 4: a follower restarts, and a leader that was deposed while it was paused calls it first."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.without_etcd.add(a.place)
    a.paused_until = stage.time + 1000.0
    stage.until(lambda: stage.is_open(b) and len(stage.isr()) == 2)
    before = stage.confirmed()
    stage.publish(b)
    stage.until(lambda: stage.confirmed() > before)
    stage.crash(b)
    stage.without_etcd.add(c.place)
    c.crash()
    c.boot()
    a.paused_until = 0.0
    stage.cut(b, a, c)
    stage.run_for(3.0)
    stage.without_etcd.clear()
    stage.join()
    stage.heal()


def cut_off_leader(rules: Rules, disk_rules: DiskRules) -> None:
    """A leader is cut off, and another one delivers."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.publish(a, 6)
    stage.run_for(0.5)
    stage.without_etcd.add(a.place)
    stage.cut(a, b, c)
    stage.until(lambda: stage.is_open(b))
    stage.publish(b, 6)
    stage.wait(1.0)
    stage.without_etcd.clear()
    stage.join()
    stage.heal()


def _overtake(stage: Stage, a: Node, b: Node, c: Node) -> None:
    """The record says that B leads; A does not know, is cut off, and its clock is slow."""
    stage.cut(a, b, c)
    stage.without_etcd.add(a.place)
    a.offset += (a.rate - SLOW) * stage.time
    a.rate = SLOW
    for node in (b, c):
        node.offset += (node.rate - FAST) * stage.time
        node.rate = FAST
    stage.holds = lambda _: False
    stage.carry_out_held()
    stage.wait(5.0)
    assert stage.is_open(b) or stage.is_open(c), stage.roles()
    stage.without_etcd.clear()
    stage.join()
    stage.heal()


def echo_while_standing(rules: Rules, disk_rules: DiskRules) -> None:
    """A store stands, then hears the leader again, and is elected all the same."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.publish(a, 8)
    stage.run_for(0.5)
    stage.holds = lambda request: request.node == b.place
    stage.without_etcd.add(a.place)
    stage.without_etcd.add(c.place)
    stage.cut(a, b)
    stage.until(lambda: bool(stage.held))
    stage.join()
    stage.run_for(0.6)
    stage.without_etcd.clear()
    _overtake(stage, a, b, c)


def stand_again_unsent(rules: Rules, disk_rules: DiskRules) -> None:
    """A store stands, and does not learn what came of it; it stands again, and nothing is sent."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.publish(a, 8)
    stage.run_for(0.5)
    stage.holds = lambda request: request.node == b.place
    stage.without_etcd.update((a.place, c.place))
    stage.cut(a, b)
    stage.until(lambda: bool(stage.held))
    stage.answer_unknown(stage.held[0])
    stage.etcd.refuses.add(b.place)
    stage.run_for(0.3)
    stage.join()
    stage.run_for(0.6)
    stage.etcd.refuses.clear()
    stage.without_etcd.clear()
    _overtake(stage, a, b, c)


def restart_and_stand(rules: Rules, disk_rules: DiskRules) -> None:
    """A store that has just echoed restarts, hears nothing, and stands at once."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.publish(a, 8)
    stage.run_for(0.5)
    stage.cut(a, b, c)
    b.crash()
    b.boot()
    _overtake(stage, a, b, c)


def hand_over_unknown(rules: Rules, disk_rules: DiskRules) -> None:
    """A leader hands over, does not learn that it did, and is cut off."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.publish(a, 8)
    stage.run_for(0.5)
    stage.holds = lambda request: request.node == a.place and request.record != stage.record
    a.participant.drain(a.now())
    a.carry_out()
    stage.until(lambda: bool(stage.held))
    _overtake(stage, a, b, c)


def hand_over_given_up(rules: Rules, disk_rules: DiskRules) -> None:
    """A leader gives up on a hand-over whose outcome is not known, and it is written then."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.publish(a, 8)
    stage.holds = lambda request: request.node == a.place and request.record != stage.record
    a.participant.prefer({0: b.store})
    stage.until(lambda: bool(stage.held))
    a.participant.prefer({})
    stage.answer_unknown(stage.held[0])
    stage.until(lambda: stage.is_open(a) or len(stage.held) > 1)
    while len(stage.held) > 1:  # it tries again until it gives up
        stage.answer_unknown(stage.held.pop())
        stage.run_for(0.2)
    stage.until(lambda: stage.is_open(a))
    _overtake(stage, a, b, c)


def stale_evidence(rules: Rules, disk_rules: DiskRules) -> None:
    """A process was found dead; another one of its store leads since."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.publish(a, 8)
    stage.run_for(0.3)
    stage.without_etcd.update((b.place, c.place))
    stage.cut(c, a)  # so that B alone finds that A is gone
    a.crash()
    stage.run_for(0.2)
    a.boot()
    stage.join()
    stage.holds = lambda request: request.node == b.place
    stage.until(lambda: stage.is_open(a))
    stage.without_etcd.discard(b.place)
    stage.until(lambda: bool(stage.held) or stage.time > 5.0)
    _overtake(stage, a, b, c)


def unsynced_heir(rules: Rules, disk_rules: DiskRules) -> None:
    """A follower whose disk is slow is elected, and counts what it has not synced."""
    stage = Stage(rules, disk_rules)
    a, b, _ = stage.begin()
    b.is_failing = True  # nobody is told: it is slow only
    stage.publish(a)
    stage.run_for(0.3)
    stage.crash(a)
    stage.run_for(4.0)
    b.is_failing = False
    stage.heal()


def deposed_leader_resumes(rules: Rules, disk_rules: DiskRules) -> None:
    """A leader that was paused goes on as if nothing had happened: it is refused."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.without_etcd.update((a.place, c.place))
    a.paused_until = stage.time + 1000.0
    stage.until(lambda: stage.is_open(b) and len(stage.isr()) == 2)
    before = stage.confirmed()
    stage.publish(b)
    stage.until(lambda: stage.confirmed() > before)
    stage.cut(b, a, c)
    a.paused_until = 0.0
    stage.run_for(2.0)
    stage.without_etcd.clear()
    stage.join()
    stage.heal()


def damaged_heir(rules: Rules, disk_rules: DiskRules) -> None:
    """Scenario 10: a follower with a damaged segment does not lead, but gets it anew."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.publish(a, 8)
    stage.run_for(0.5)
    stage.cut(b, a, c)
    assert stage.damage(b, 0)
    c.paused_until = stage.time + 4.0
    stage.crash(a)
    stage.join()
    stage.run_for(10.0)
    assert not stage.is_open(b)
    stage.heal()
    stage.look_whether_healed()
    assert not stage.checks.excused


def interrupted_repair(rules: Rules, disk_rules: DiskRules) -> None:
    """A follower restarts while its damaged segment is sent anew: it lacks it, and nothing is damaged."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.publish(a, 8)
    stage.run_for(0.5)
    stage.crash(c)
    stage.until(lambda: len(stage.isr()) == 2)
    stage.reads_wait = True
    assert stage.damage(b, 0)
    stage.run_for(1.0)
    stage.crash(a)
    b.crash()
    stage.reads_wait = False
    b.boot()
    stage.run_for(5.0)
    a.boot()
    stage.run_for(5.0)
    assert stage.is_open(a)
    stage.heal()


def early_confirm(rules: Rules, disk_rules: DiskRules) -> None:
    """Scenario 3 (b): an admission is written, and the leader confirms without the joiner."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.cut(c, a, b)
    stage.until(lambda: len(stage.isr()) == 2)
    stage.holds = lambda request: len(request.record.isr) == 3 if request.record else False
    stage.join()
    stage.until(lambda: bool(stage.held))
    stage.cut(c, a, b)
    stage.publish(a)
    stage.run_for(0.5)
    stage.carry_out_held()
    stage.holds = lambda _: False
    stage.crash(a)
    stage.join()
    stage.heal()


def diverged_tail(rules: Rules, disk_rules: DiskRules) -> None:
    """Scenario 8: an old leader has records and marks that nobody else has; others take their positions."""
    stage = Stage(rules, disk_rules)
    a, b, c = stage.begin()
    stage.publish(a, 3)  # a segment is full
    stage.run_for(0.3)
    stage.cut(a, b, c)
    stage.publish(a, 3)
    a.expire(0, stage.logs[0][0])
    a.sync()
    stage.crash(a)
    stage.join()
    stage.until(lambda: stage.is_open(b) or stage.is_open(c))
    before = stage.confirmed()
    stage.publish(stage.leader(), 5)
    stage.until(lambda: stage.confirmed() >= before + 5)
    a.boot()
    stage.heal()


def _four(rules: Rules, disk_rules: DiskRules) -> tuple[Stage, Node, Node]:
    """A stage on which the shard has four stores, its leader, and the last of them."""
    stage = Stage(rules, disk_rules, nodes=4)
    leader, *_ = stage.begin()
    last = stage.nodes[3]
    stage.publish(leader, 5)
    stage.run_for(0.3)
    stage.add(0, last)
    stage.until(lambda: last.store in stage.isr())
    stage.replicas = 4
    return stage, leader, last


def removal_by_old_news(rules: Rules, disk_rules: DiskRules) -> None:
    """A store is added again, has everything, and does not know: it believes that it keeps nothing."""
    stage, _, d = _four(rules, disk_rules)
    stage.remove(0, d)
    stage.run_for(0.3)
    stage.without_etcd.add(d.place)
    stage.add(0, d)
    stage.until(lambda: d.store in stage.isr())
    d.clear(0)
    stage.run_for(3.0)
    stage.without_etcd.clear()
    stage.heal()


def removed_and_added(rules: Rules, disk_rules: DiskRules) -> None:
    """A store leaves, removes its copies, and is added again, while the leader sees only the last of it."""
    stage, a, d = _four(rules, disk_rules)
    stage.without_etcd.add(a.place)
    stage.cut(d, *stage.nodes[:3])
    stage.remove(0, d)
    stage.settle()
    d.clear(0)
    stage.settle()
    stage.settle()
    assert not d.disk.durable.shards[0]
    stage.without_etcd.clear()
    stage.add(0, d)
    stage.run_for(1.0)
    stage.join()
    stage.heal()


DIRECTED: dict[str, Schedule] = {
    "late_cas": late_admission,
    "durable_epochs": deposed_leader_calls_first,
    "fence": deposed_leader_resumes,
    "lease": cut_off_leader,
    "no_echo_while_standing": echo_while_standing,
    "earlier_doubt": stand_again_unsent,
    "grace_after_boot": restart_and_stand,
    "stop_before_hand_over": hand_over_unknown,
    "doubtful_hand_over": hand_over_given_up,
    "exact_evidence": stale_evidence,
    "barrier": unsynced_heir,
    "only_whole_stand": damaged_heir,
    "note_damage": interrupted_repair,
    "early_admission": early_confirm,
    "marks_go": diverged_tail,
    "confirm_gone": removal_by_old_news,
    "fresh_session": removed_and_added,
    "by_epoch": diverged_tail,
}
