"""A node: links, beacons and roles."""

from __future__ import annotations

from collections import Counter
from itertools import count, product
from typing import cast

import pytest

from tests.unit.cluster.nodes import RECORD, RUNS, A, Alone, B, C, NoLogs
from warren.cluster.config import Known, Leadership, RunId
from warren.cluster.effects import (
    Apply,
    Cas,
    Close,
    KeepEpoch,
    ReadRecord,
    Role,
    RoleChanged,
    TakeInventory,
)
from warren.cluster.messages import Ack, Acks, Batch, Beacon, Echo, Hello, Inventory, Refused
from warren.cluster.participant import Participant
from warren.cluster.reads import MOMENTS
from warren.cluster.roles import ROLES, Occasion
from warren.cluster.settings import Settings
from warren.cluster.shard import Shard


class FailingShard:
    number = 7
    leader = None

    def tick(self, _now: float) -> None:
        raise RuntimeError("it cannot go on")


def test_a_beacon_names_all_shards_that_the_node_leads_and_the_other_keeps() -> None:
    node = Alone()
    other = node.participant.add_shard(1, NoLogs(), epoch=0, now=0.0)
    node.link(B, C)
    node.lead()
    record = RECORD._replace(epoch=1, leader=node.me, replicas=(A, B), isr=(A, B))
    other.learn(Known(1, record), 0.0)
    node.sent(Beacon)
    node.participant.tick(1.0)
    assert dict(node.sent(Beacon)) == {B: Beacon(1.0, ((0, 1), (1, 1))), C: Beacon(1.0, ((0, 1),))}


def test_a_new_leader_sends_its_beacon_at_once() -> None:
    node = Alone()
    node.link(B, C)
    node.lead(0.1)
    assert {to for to, _ in node.sent(Beacon)} == {B, C}


def test_beacons_come_at_their_time_and_only_from_leaders() -> None:
    node = Alone()
    node.link(B)
    node.participant.tick(0.0)
    assert node.sent(Beacon) == []
    node.lead()
    node.sent(Beacon)
    node.participant.tick(0.3)
    assert len(node.sent(Beacon)) == 1
    node.participant.tick(0.4)
    assert node.sent(Beacon) == []


def test_all_acks_of_a_turn_for_a_node_are_one_frame() -> None:
    node = Alone(B)
    shards = [node.shard, *(node.participant.add_shard(n, NoLogs(), epoch=0, now=0.0) for n in (1, 2))]
    led = RECORD._replace(epoch=2, leader=Leadership(A, RUNS[A]))
    node.link(A)
    for shard in shards:
        node.revision += 1
        shard.learn(Known(node.revision, led), 0.0)
        node.hear(A, Batch(shard.number, 2, shard.follower.session, 1, (), in_step=True))
        shard.synced(99, 0.0)
    ((to, acks),) = node.sent(Acks)
    assert to == A
    assert {ack.shard for ack in acks.acks} == {0, 1, 2}


def test_a_deposed_leader_follows() -> None:
    node = Alone()
    node.open()
    assert node.role() is Role.OPEN
    node.hear(B, Beacon(5.0, ((0, 2),)), 5.0)
    assert node.role() is Role.FOLLOWER
    assert node.sent(Inventory) == []
    assert node.session()
    ((to, _),) = node.sent(Inventory)
    assert to == B
    assert KeepEpoch(0, 2) in node.take(KeepEpoch)


def test_a_leader_that_hears_of_a_later_epoch_does_not_lead_any_more() -> None:
    node = Alone()
    node.open()
    node.hear(C, Refused(0, 7), 1.0)
    assert node.role() is Role.FOLLOWER
    assert not node.shard.may_deliver(1.0)
    assert node.take(ReadRecord)


def test_a_suspended_leader_resumes_when_all_echo_again() -> None:
    node = Alone()
    node.open()
    node.take(RoleChanged)
    node.participant.tick(2.0)
    assert not node.shard.may_deliver(2.0)
    for store in (B, C):
        node.echo(store, 2.1)
    node.participant.tick(2.2)
    assert node.shard.may_deliver(2.2)
    assert [change.role for change in node.take(RoleChanged)] == [Role.SUSPENDED, Role.OPEN]


def test_an_echo_counts_for_the_epoch_that_it_names() -> None:
    node = Alone()
    node.open()
    node.hear(B, Echo(1.0, ((0, 99), (7, 1))), 1.0)
    leader = node.shard.leader
    assert leader is not None
    assert leader.lease.echoed[B] == 0.0


def test_a_record_that_is_older_than_what_is_known_changes_nothing() -> None:
    node = Alone()
    node.revision = 5
    node.open()
    known = node.shard.known
    node.revision = 2
    node.learn(RECORD)
    assert node.shard.known == known


def test_a_store_that_the_record_does_not_name_is_an_outsider() -> None:
    node = Alone()
    node.learn(RECORD._replace(epoch=1, leader=Leadership(B, RunId("r")), replicas=(B, C), isr=(B, C)))
    assert node.role() is Role.OUTSIDER
    node.participant.tick(100.0)
    assert node.take(Cas) == []


def test_the_record_is_read_at_first_and_from_time_to_time() -> None:
    node = Alone()
    read = []
    for tenths in range(450):
        now = tenths / 10
        if now == 1.5:
            node.learn(RECORD._replace(epoch=1, leader=Leadership(B, RUNS[B])), now)
        node.hear(B, Beacon(now, ((0, 1),)), now)
        node.participant.tick(now)
        if node.take(ReadRecord):
            read.append(now)
    assert read == [0.0, 1.1, 10.0, 20.0, 30.0, 40.0]


def test_records_of_many_shards_are_not_read_at_once() -> None:
    shards, every, tick = 1024, 10.0, 0.05
    numbers = count(1)
    participant = Participant(Leadership(A, RUNS[A]), lambda: next(numbers))
    led = RECORD._replace(epoch=1, leader=Leadership(B, RUNS[B]))
    for number in range(shards):
        participant.add_shard(number, NoLogs(), epoch=1, now=0.0).learn(Known(1, led), 0.0)
    terms = tuple((number, 1) for number in range(shards))
    reads: list[ReadRecord] = []
    for turn in range(1, 2 * round(every / tick) + 1):
        now = turn * tick
        participant.received(B, Beacon(now, terms), now)
        participant.tick(now)
        asked = [each for each in participant.take_effects() if isinstance(each, ReadRecord)]
        assert len(asked) <= 2 * shards / MOMENTS, "also at the start, when a watch tells them anyway"
        for read in asked:
            participant.shards[read.shard].record_read(read.number, Known(1, led), now)
        reads += asked
    assert set(Counter(read.shard for read in reads).values()) <= {2, 3}


def test_messages_about_shards_that_are_not_known_are_passed_over() -> None:
    node = Alone()
    node.link(B)
    for message in (
        Batch(9, 1, 1, 1, (), in_step=False),
        Inventory(9, 1, 1, (), is_last=True),
        Refused(9, 1),
        Acks((Ack(9, 1, 1, 1),)),
        Echo(0.0, ((9, 1),)),
    ):
        node.hear(B, message)
    node.hear(B, Beacon(0.0, ((9, 1),)))
    assert node.sent(Echo) == [(B, Echo(0.0, ()))]


def test_a_node_that_says_hello_twice_is_hung_up_on() -> None:
    node = Alone()
    node.link(B)
    node.hear(B, Hello("c", B, RUNS[B], 1, 1))
    assert [close.to for close in node.take(Close)] == [B]


def test_a_node_with_a_copy_of_this_store_is_hung_up_on() -> None:
    node = Alone()
    node.participant.link_up(A, RunId("another"), 0.0)
    assert [close.to for close in node.take(Close)] == [A]
    assert node.participant.node.links == {}


def test_the_preferred_leader_is_the_first_replica_unless_placement_says_otherwise() -> None:
    node = Alone(B)
    node.link(A, C)
    node.lead(0.0, RECORD)
    node.follow(A, 101)
    node.follow(C, 102)
    node.participant.tick(0.0)
    node.participant.prefer({0: C})
    for now in (30.0, 60.5):
        node.echo(A, now)
        node.echo(C, now)
        node.participant.tick(now)
        node.read(now)
    node.participant.tick(60.6)
    node.write(60.6)
    (cas,) = node.take(Cas)
    assert cas.record.leader == Leadership(C, RUNS[C])


def test_an_operator_moves_a_shard_for_good_to_a_store_that_is_in_step() -> None:
    node = Alone(B)
    node.link(A, C)
    node.lead(0.0, RECORD)
    node.follow(A, 101)
    assert not node.shard.move(C, 0.0), "C is not in step"
    node.follow(C, 102)
    node.echo(A, 0.0)
    node.echo(C, 0.0)
    node.participant.tick(0.0)
    assert not node.shard.move(B, 0.0), "B leads already"
    assert node.shard.move(C, 0.0)
    node.write(0.1)
    assert not node.shard.move(A, 0.1), "it is being handed over"
    (cas,) = node.take(Cas)
    assert cas.record.leader == Leadership(C, RUNS[C])
    assert cas.record.replicas[0] == C, "or the shard would go back to the one that was preferred before"


def test_a_node_that_was_drained_leads_again_when_it_is_not_any_more() -> None:
    node = Alone(B)
    node.link(A, C)
    node.participant.drain(0.0)
    node.participant.tick(60.0)
    assert not node.participant.node.can_lead
    node.participant.undrain()
    assert node.participant.node.can_lead


@pytest.mark.parametrize(("role", "occasion"), list(product(Role, Occasion)))
def test_only_the_table_changes_a_role(role: Role, occasion: Occasion) -> None:
    node = Alone()
    node.shard.role = role
    node.shard._change_role(occasion)
    assert node.role() is ROLES.get((role, occasion), role)
    assert len(node.take(RoleChanged)) == ((role, occasion) in ROLES)


def test_every_role_but_the_first_is_reached_by_some_occasion() -> None:
    assert set(ROLES.values()) == set(Role)


def test_a_session_that_was_opened_before_the_leader_could_answer_begins_anew() -> None:
    """Links are of one way each: the one from the follower may be there first."""
    leader = Alone()
    leader.link(C)
    leader.lead()
    leader.hear(B, Inventory(0, 1, 7, (), is_last=True))
    leader.sent(Batch)  # which nobody hears
    leader.link(B)
    assert (B, Refused(0, 1)) in leader.sent(Refused)
    leader.sent(Batch)
    leader.ack(B, 7, 1)
    assert leader.shard.leader is not None
    assert B not in leader.shard.leader.sessions, "nothing of it got there"


def test_a_follower_in_step_begins_anew_when_the_leader_has_another_link_to_it() -> None:
    """The leader's link has ended, and the follower's own has not."""
    node = Alone(B)
    node.link(A)
    node.learn(RECORD._replace(epoch=1, leader=Leadership(A, RUNS[A])))
    first = node.session()
    node.hear(A, Batch(0, 1, first, 1, (), in_step=True))
    node.hear(A, Refused(0, 1), 1.0)
    node.hear(A, Beacon(1.0, ((0, 1),)), 1.0)
    assert node.session() != first


def test_a_shard_whose_tick_fails_is_told_and_the_others_have_theirs() -> None:
    node = Alone()
    node.participant.shards = {7: cast("Shard", FailingShard()), 0: node.shard}
    with pytest.raises(RuntimeError, match="it cannot go on"):
        node.participant.tick(0.1)
    told: list[tuple[int, str]] = []
    node.participant.on_error = lambda shard, error: told.append((shard, str(error)))
    node.participant.tick(0.2)
    assert told == [(7, "it cannot go on")]
    assert [read.shard for read in node.take(ReadRecord)] == [0]


def test_a_leader_that_has_failed_hands_over_and_leads_again_later() -> None:
    node = Alone()
    node.open()
    node.shard.step_failed(1.0)
    for now in (1.1, 1.2):
        for store in (B, C):
            node.echo(store, now)
        node.participant.tick(now)
    assert node.role() is Role.SUSPENDED
    (swap,) = node.take(Cas)
    assert swap.record.leader is not None
    assert swap.record.leader.store in (B, C)
    node.learn(swap.record, 1.3)
    assert node.role() is Role.FOLLOWER
    node.link(swap.record.leader.store, now=1.3)
    node.participant.peer_gone(swap.record.leader.store, 1.4)
    node.participant.tick(2.0)
    assert node.take(Cas) == [], "it does not stand so soon"
    node.participant.tick(1.0 + Settings().failure_patience + 0.1)
    (stands,) = node.take(Cas)
    assert stands.record.leader == node.me


def test_a_store_that_was_elected_soon_after_something_had_failed_serves_later() -> None:
    """It may have stood before that, or an operator has forced it."""
    node = Alone()
    node.learn(RECORD)
    node.shard.step_failed(1.0)
    node.learn(RECORD._replace(epoch=1, leader=node.me, isr=(A,)), 1.5)
    node.sync(1.5)
    node.participant.tick(2.0)
    assert node.role() is Role.OPENING
    node.participant.tick(1.1 + Settings().failure_patience)
    node.participant.tick(1.2 + Settings().failure_patience)
    assert node.role() is Role.OPEN


def test_a_follower_that_has_failed_acks_nothing_and_begins_anew_after_a_while() -> None:
    node = Alone(B)
    node.link(A)
    node.learn(RECORD._replace(epoch=1, leader=Leadership(A, RUNS[A])))
    session = node.session()
    node.hear(A, Batch(0, 1, session, 1, (), in_step=True))
    (apply,) = node.take(Apply)
    node.shard.step_failed(0.1)
    node.shard.synced(apply.token, 0.2)
    node.hear(A, Batch(0, 1, session, 2, (), in_step=True), 0.2)
    node.participant.tick(0.3)
    assert node.sent(Acks) == []
    assert node.take(Apply) == []
    assert node.take(TakeInventory) == []
    node.participant.tick(0.2 + Settings().ask_again)
    assert node.session() != session
