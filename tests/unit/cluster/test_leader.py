"""A leader: what is committed, who is a member, and what it wants written."""

from __future__ import annotations

from tests.unit.cluster.nodes import LOG, RECORD, RUNS, A, Alone, B, C, D, NoLogs
from warren.cluster import config
from warren.cluster.catchup import Catchup
from warren.cluster.config import Leadership, RunId
from warren.cluster.effects import Apply, Cas, Committed, GoOn, Role
from warren.cluster.messages import Batch, Farewell, Inventory, Refused
from warren.cluster.session import Backoff
from warren.cluster.settings import BATCH_BYTES_MAX, HELD_BYTES_MAX, IN_FLIGHT_BYTES_MAX, Rules, Settings
from warren.cluster.transactions import Outcome
from warren.storage.replication import Drop, LogId, Records


def records(size: int = 8) -> Records:
    return Records(LOG, 1, 1, 0, 1, 1, bytes(size))


def test_a_leader_opens_when_all_members_are_in_step_and_echo() -> None:
    node = Alone()
    node.link(B, C)
    node.lead()
    node.follow(B, 101)
    node.participant.tick(0.1)
    assert node.role() is Role.OPENING
    node.follow(C, 102, 0.1)
    node.participant.tick(0.1)
    assert node.role() is Role.OPEN
    assert [committed.up_to for committed in node.take(Committed)] == [0]


def test_a_leader_does_not_open_before_its_own_disk_has_all() -> None:
    node = Alone()
    node.link(B, C)
    node.learn(RECORD._replace(epoch=1, leader=node.me))
    node.follow(B, 101)
    node.follow(C, 102)
    node.participant.tick(0.1)
    assert node.role() is Role.OPENING
    node.sync(0.1)
    assert node.role() is Role.OPEN


def test_a_follower_whose_records_cannot_be_read_begins_anew() -> None:
    node = Alone()
    node.link(B, C)
    node.lead()
    node.follow(B, 101)
    node.shard.reading_failed(B, 100)
    assert node.sent(Refused) == [], "an older session has ended already"
    node.shard.reading_failed(B, 101)
    assert node.sent(Refused) == [(B, Refused(0, 1))]
    leader = node.shard.leader
    assert leader is not None
    assert B not in leader.sessions


def test_a_leader_that_leaves_goes_on_while_it_is_alone_in_sync() -> None:
    node = Alone(settings=Settings(min_in_sync=1))
    node.lead(record=RECORD._replace(replicas=(A,), isr=(A,), joining=(B,), leaving=(A,)))
    node.participant.tick(0.1)
    assert node.role() is Role.OPEN
    leader = node.shard.leader
    assert leader is not None
    assert leader.stopped_at is None


def test_a_sync_of_what_came_before_its_election_is_not_enough() -> None:
    node = Alone()
    node.link(B, C)
    node.learn(RECORD._replace(epoch=1, leader=Leadership(B, RUNS[B])))
    session = node.session()
    node.hear(B, Batch(0, 1, session, 1, (Drop(LOG, 1, 1),), in_step=True))
    (earlier,) = node.take(Apply)
    node.learn(RECORD._replace(epoch=2, leader=node.me))
    leader = node.shard.leader
    assert leader is not None
    node.shard.synced(earlier.token, 0.1)
    assert leader.synced < 0
    node.sync(0.2)
    assert leader.synced == 0


def test_a_batch_is_committed_when_the_last_member_has_synced_it() -> None:
    node = Alone()
    node.open()
    node.take(Committed)
    index = node.shard.append([records()], 0.1)
    numbers = {to: batch.number for to, batch in node.sent(Batch)}
    assert set(numbers) == {B, C}
    node.ack(B, 101, numbers[B], 0.1)
    node.shard.index_synced(1, index, 0.1)
    assert node.take(Committed) == []
    node.ack(C, 102, numbers[C], 0.1)
    assert node.take(Committed) == [Committed(0, 1, index)]


def test_acks_of_an_older_session_count_for_nothing() -> None:
    node = Alone()
    node.open()
    node.follow(C, 103)
    node.shard.append([records()], 0.1)
    node.ack(C, 102, 99, 0.1)
    leader = node.shard.leader
    assert leader is not None
    assert leader.sessions[C].unacked


def test_a_batch_that_is_too_large_goes_in_parts_and_counts_with_the_last() -> None:
    node = Alone()
    node.open()
    half = records(BATCH_BYTES_MAX // 2 + 1)
    index = node.shard.append([half, half, half, Drop(LOG, 1, 1)], 0.1)
    parts = [batch for to, batch in node.sent(Batch) if to == B]
    assert [len(batch.changes) for batch in parts] == [2, 2]
    leader = node.shard.leader
    assert leader is not None
    node.ack(B, 101, parts[0].number, 0.1)
    assert leader.sessions[B].acked < index
    node.ack(B, 101, parts[1].number, 0.1)
    assert leader.sessions[B].acked == index
    assert leader.sessions[B].in_flight == 0


def test_publishers_wait_when_a_member_owes_too_much() -> None:
    node = Alone()
    node.open()
    leader = node.shard.leader
    assert leader is not None
    assert not leader.is_behind
    node.shard.append([records(IN_FLIGHT_BYTES_MAX + 1)], 0.1)
    assert leader.is_behind


def test_a_member_whose_process_is_gone_leaves_at_once() -> None:
    node = Alone()
    node.open()
    node.participant.peer_gone(C, 0.2)
    (cas,) = node.take(Cas)
    assert cas.record.isr == (A, B)
    assert node.others() == (B, C), "it counts until that is known to be written"
    node.shard.cas_answered(cas.revision, config.Known(cas.revision + 1, cas.record), 0.2)
    assert node.others() == (B,)


def test_at_the_minimum_nobody_leaves() -> None:
    node = Alone()
    node.open()
    node.participant.peer_gone(C, 0.2)
    (cas,) = node.take(Cas)
    node.shard.cas_answered(cas.revision, config.Known(cas.revision + 1, cas.record), 0.2)
    node.participant.peer_gone(B, 0.2)
    node.participant.tick(0.2)
    assert node.take(Cas) == []
    assert node.role() is Role.OPEN
    node.participant.tick(2.0)
    assert node.role() is Role.SUSPENDED


def test_a_member_that_owes_an_ack_leaves_even_if_it_echoes() -> None:
    node = Alone()
    node.open()
    node.shard.append([records()], 0.1)
    numbers = {to: batch.number for to, batch in node.sent(Batch)}
    node.ack(B, 101, numbers[B], 0.1)
    for now in (1.0, 1.5, 1.7):
        node.echo(B, now)
        node.echo(C, now)
    node.participant.tick(1.7)
    (cas,) = node.take(Cas)
    assert cas.record.isr == (A, B)


def joined(now: float = 0.0) -> Alone:
    """A leads with B, and C is in step, but no member."""
    node = Alone()
    node.link(B, C, now=now)
    node.lead(now, RECORD._replace(isr=(A, B)))
    node.follow(B, 101, now)
    node.follow(C, 102, now)
    return node


def test_a_joiner_counts_from_the_moment_its_admission_is_sent() -> None:
    node = joined()
    assert node.others() == (B,)
    node.participant.tick(0.1)
    (cas,) = node.take(Cas)
    assert set(cas.record.isr) == {A, B, C}
    assert node.others() == (B, C)


def test_an_admission_of_unknown_outcome_counts_until_the_revision_has_moved() -> None:
    node = joined()
    node.participant.tick(0.1)
    (cas,) = node.take(Cas)
    node.shard.cas_answered(cas.revision, Outcome.UNKNOWN, 0.2)
    node.read(0.3)
    node.participant.peer_gone(C, 0.3)
    assert node.others() == (B, C), "it may yet be written"
    node.participant.tick(0.4)
    (touch,) = node.take(Cas)
    assert node.shard.known is not None
    assert touch == Cas(0, cas.revision, node.shard.known.record), "the same again, so that it cannot be"
    node.shard.cas_answered(touch.revision, config.Known(touch.revision + 1, touch.record), 0.5)
    assert node.others() == (B,)


def test_a_joiner_takes_the_place_of_the_one_that_leaves() -> None:
    node = Alone()
    node.link(B, D)
    record = config.add(RECORD._replace(isr=(A, B)), D, instead_of=C, min_in_sync=2)
    node.lead(0.0, record)
    node.follow(B, 101)
    node.follow(D, 104)
    node.participant.tick(0.1)
    (cas,) = node.take(Cas)
    assert (cas.record.replicas, cas.record.isr, cas.record.leaving) == ((A, B, D), (A, B, D), ())


def test_a_draining_leader_stops_waits_for_its_batches_and_hands_over() -> None:
    node = Alone()
    node.open()
    index = node.shard.append([records()], 0.1)
    numbers = {to: batch.number for to, batch in node.sent(Batch)}
    node.participant.drain(0.1)
    assert node.shard.takes_publishes, "it is not known yet whether etcd is there"
    assert node.write(0.2) == RECORD._replace(epoch=1, leader=node.me)
    assert not node.shard.takes_publishes
    assert not node.shard.may_deliver(0.2)
    assert node.take(Cas) == []
    node.take(Committed)
    node.shard.index_synced(1, index, 0.2)
    node.ack(B, 101, numbers[B], 0.2)
    node.ack(C, 102, numbers[C], 0.2)
    assert node.take(Committed) == [Committed(0, 1, index)], "what it has taken it confirms"
    (cas,) = node.take(Cas)  # at once, and not with the next tick
    assert cas.record.epoch == 2
    assert cas.record.leader in (
        Leadership(B, node.participant.node.links[B]),
        Leadership(C, node.participant.node.links[C]),
    )


def test_a_leader_hands_over_nothing_before_all_that_has_changed_is_in_a_batch() -> None:
    node = Alone()
    node.open()
    node.logs.news = True
    node.participant.drain(0.1)
    node.write(0.2)
    assert not node.shard.takes_publishes
    assert node.take(Cas) == []
    node.logs.news = False
    node.participant.tick(0.3)
    (cas,) = node.take(Cas)
    assert cas.record.epoch == 2


def test_a_leader_whose_process_ends_leaves_the_in_sync_set_as_it_hands_over() -> None:
    """Or the next leader would have to wait for it, and find that it is gone."""
    node = Alone()
    node.open()
    node.participant.leave(0.1)
    node.write(0.2)
    (cas,) = node.take(Cas)
    assert cas.record.epoch == 2
    assert cas.record.isr == (B, C)
    assert cas.record.replicas == (A, B, C), "it comes back"


def test_a_leader_whose_process_ends_stays_in_sync_if_too_few_others_are() -> None:
    node = Alone(settings=Settings(min_in_sync=3))
    node.open()
    node.participant.leave(0.1)
    node.write(0.2)
    (cas,) = node.take(Cas)
    assert cas.record.epoch == 2
    assert set(cas.record.isr) == {A, B, C}


def test_a_store_that_says_farewell_is_counted_out_at_once_and_handed_nothing() -> None:
    node = Alone()
    node.open()
    node.hear(B, Farewell(), 0.1)
    (cas,) = node.take(Cas)
    assert set(cas.record.isr) == {A, C}
    assert B in node.others(), "it counts until that is written"
    node.shard.cas_answered(cas.revision, config.Known(cas.revision + 1, cas.record), 0.1)
    assert node.others() == (C,)
    assert not node.shard.move(B, 0.1)
    node.participant.tick(5.0)
    assert node.take(Cas) == [], "it is not admitted again"
    node.participant.link_up(B, RunId("its next run"), 5.1)
    node.follow(B, 103, 5.1)
    node.echo(C, 5.1)
    node.participant.tick(5.2)
    (cas,) = node.take(Cas)
    assert set(cas.record.isr) == {A, B, C}


def test_a_node_that_leaves_says_farewell_to_all_and_knows_who_waits_for_it() -> None:
    node = Alone(B)
    node.link(A, C)
    led = RECORD._replace(epoch=1, leader=Leadership(A, RUNS[A]))
    node.learn(led)
    node.participant.leave(0.1)
    node.participant.say_farewell()
    assert sorted(to for to, _ in node.sent(Farewell)) == [A, C]
    assert node.participant.is_waited_for
    node.learn(led._replace(isr=(A, C)), 0.2)
    assert not node.participant.is_waited_for


def test_a_store_that_comes_and_goes_waits_twice_as_long_each_time() -> None:
    backoff = Backoff()
    waits = []
    now = 0.0
    for _ in range(9):
        backoff.leave(now, first=1.0, last=60.0)
        waits.append(backoff.until - now)
        now = backoff.until + 1.0
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    backoff.leave(now + 100.0, first=1.0, last=60.0)
    assert backoff.delay == 1.0


def test_a_follower_whose_log_grows_too_fast_has_to_begin_anew() -> None:
    node = Alone()
    node.link(B, C)
    node.lead()
    node.follow(B, 101)
    leader = node.shard.leader
    assert leader is not None
    session = leader.sessions[B]
    session.catchup = Catchup(NoLogs(), {}, Rules(), lambda _: None, lambda *_: None, lambda *_: None)
    session.catchup.log = LOG
    node.shard.append([records(HELD_BYTES_MAX + 1)], 0.1)
    node.ack(B, 101, 1, 0.1)
    assert B not in leader.sessions
    assert node.sent(Refused) == [(B, Refused(0, 1))]


def test_many_logs_are_compared_over_several_turns() -> None:
    node = Alone(settings=Settings(logs_a_turn=2))
    node.link(B, C)
    node.lead()
    theirs = tuple((LogId(number), ()) for number in range(9))
    node.hear(B, Inventory(0, 1, 7, theirs, is_last=True))
    turns = 0
    while not any(batch.in_step for _, batch in node.sent(Batch)):
        (again,) = node.take(GoOn)
        node.shard.go_on(again.to, again.session, 0.1)
        turns += 1
    assert turns == 2
