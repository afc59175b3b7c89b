"""Moving, copying and deleting messages: which they are about, and the rules of the queue that they go to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.stage import LOG, TO_DEAD, Stage, numbers, why
from tests.support.jobs import start_job
from warren.amqp import methods as m
from warren.amqp.table import Table
from warren.broker import message_job
from warren.broker.message_job import Kind, MessageJob, State

SOME = 40


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a job of a few messages takes several turns."""
    monkeypatch.setattr(message_job, "BATCH_BYTES_MAX", 10)


def run(stage: Stage, kind: Kind, *queues: str, **more: Any) -> MessageJob:
    """Run a job to its end."""
    job = start_job(stage.node, kind, *queues, **more)
    stage.settle()
    assert job.state is not State.RUNNING
    return job


def fill(stage: Stage, count: int = SOME, *, arguments: Table | None = None) -> None:
    """Two queues, the first of them with messages, each with its number in a header."""
    client = stage.client
    client.queue("a", arguments)
    client.queue("b")
    for number in range(count):
        client.put("a", b"%d" % number, headers={"number": number})


def test_all_messages_move_in_order(stage: Stage) -> None:
    fill(stage)
    job = run(stage, Kind.MOVE, "a", "b")
    assert (job.state, job.done, job.done_bytes) == (State.DONE, SOME, len(b"".join(numbers(SOME))))
    assert (stage.client.count("a"), stage.client.count("b")) == (0, SOME)
    assert stage.client.drain("b") == numbers(SOME)


def test_copied_messages_are_in_both_queues(stage: Stage) -> None:
    fill(stage)
    assert run(stage, Kind.COPY, "a", "b").done == SOME
    assert stage.client.drain("a") == stage.client.drain("b") == numbers(SOME)


def test_deleted_messages_are_gone_and_are_not_dead_lettered(stage: Stage) -> None:
    stage.client.queue("dead")
    fill(stage, arguments=TO_DEAD)
    assert run(stage, Kind.DELETE, "a", selector="number > 9").done == SOME - 10
    assert stage.client.drain("a") == numbers(10)
    assert stage.client.drain("dead") == []


@pytest.mark.parametrize("kind", [Kind.MOVE, Kind.COPY])
def test_selector_chooses_messages_wherever_they_wait(stage: Stage, kind: Kind) -> None:
    fill(stage)
    odd = [body for body in numbers(SOME) if int(body) % 2]
    even = [body for body in numbers(SOME) if not int(body) % 2]
    assert run(stage, kind, "a", "b", selector="number - 2 * 10 > -100 AND number <> 2").done == SOME - 1
    stage.client.purge("b", SOME - 1)
    stage.client.drain("a")
    for number in range(SOME):
        stage.client.put("a", b"%d" % number, headers={"odd": bool(number % 2)})
    assert run(stage, kind, "a", "b", selector="odd").done == len(odd)
    assert stage.client.drain("b") == odd
    assert stage.client.drain("a") == (even if kind is Kind.MOVE else numbers(SOME))


def test_count_limits_how_many(stage: Stage) -> None:
    fill(stage)
    job = run(stage, Kind.MOVE, "a", "b", count=7)
    assert (job.state, job.done) == (State.DONE, 7)
    assert stage.client.drain("b") == numbers(7)
    assert stage.client.drain("a") == numbers(SOME - 7, 7)
    assert run(stage, Kind.MOVE, "a", "b", count=0).done == 0


def test_messages_that_come_meanwhile_are_left(stage: Stage) -> None:
    fill(stage)
    job = start_job(stage.node, Kind.MOVE, "a", "b")
    stage.client.put("a", b"late")
    assert (job.state, job.done) == (State.DONE, SOME)
    assert stage.client.drain("a") == [b"late"]


def test_unacked_messages_are_not_touched(stage: Stage) -> None:
    fill(stage, 3)
    taken = stage.client.take("a")
    assert run(stage, Kind.MOVE, "a", "b").done == 2
    stage.client.requeue(taken.method.delivery_tag)
    assert stage.client.drain("a") == [b"0"]
    assert stage.client.drain("b") == [b"1", b"2"]


def test_messages_that_came_back_move_too(stage: Stage) -> None:
    fill(stage)
    stage.client.start("a", prefetch=SOME)
    stage.client.cancel()
    stage.client.reopen()
    assert run(stage, Kind.MOVE, "a", "b", selector="number < 20").done == 20
    assert [content.method.redelivered for content in stage.client.drain_all("b")] == [False] * 20
    assert [content.body for content in stage.client.drain_all("a")] == numbers(SOME - 20, 20)


def test_purge_during_a_job_leaves_nothing_to_move(stage: Stage) -> None:
    fill(stage)
    job = start_job(stage.node, Kind.MOVE, "a", "b", selector="number < 1000")
    stage.world.turn()
    stage.client.call(m.QueuePurge(queue="a"), m.QueuePurgeOk)
    assert job.state is State.DONE
    assert stage.client.count("a") == 0
    assert stage.client.count("b") == job.done


def test_queue_that_is_consumed_meanwhile_loses_nothing(stage: Stage) -> None:
    fill(stage)
    job = start_job(stage.node, Kind.MOVE, "a", "b", selector="number > 0")
    stage.client.start("a", prefetch=5)
    stage.settle()
    delivered = stage.client.delivered()
    stage.client.reopen()
    assert job.state is State.DONE
    everywhere = stage.client.drain("a") + stage.client.drain("b")
    assert sorted(everywhere, key=int) == numbers(SOME), delivered


def test_consumers_of_the_target_get_what_is_moved(stage: Stage) -> None:
    fill(stage)
    stage.client.start("b", no_ack=True)
    assert run(stage, Kind.MOVE, "a", "b").done == SOME
    assert stage.client.delivered() == numbers(SOME)


def test_messages_go_by_priority_and_keep_it(stage: Stage) -> None:
    stage.client.queue("a", {"x-max-priority": 3})
    stage.client.queue("b", {"x-max-priority": 2})
    for number in range(12):
        stage.client.put("a", b"%d" % number, priority=number % 4)
    assert run(stage, Kind.MOVE, "a", "b", count=9).done == 9
    assert stage.client.drain("a") == [b"0", b"4", b"8"]
    assert stage.client.drain("b") == [b"3", b"7", b"11", b"2", b"6", b"10", b"1", b"5", b"9"]


def test_ttl_of_the_target_begins_when_a_message_comes_there(stage: Stage) -> None:
    fill(stage, 3)
    stage.client.queue("c", {"x-message-ttl": 1000})
    stage.pass_ms(5000)
    assert run(stage, Kind.MOVE, "a", "c").done == 3
    assert stage.client.count("c") == 3
    stage.pass_ms(1100)
    assert stage.client.count("c") == 0


def test_expired_messages_are_left_to_their_queue(stage: Stage) -> None:
    stage.client.queue("b")
    stage.client.queue("a", {"x-message-ttl": 1000})
    stage.client.put("a", b"old")
    stage.world.ahead_ms += 5000  # no timer has told the queue
    stage.node.clock.refresh()
    assert run(stage, Kind.MOVE, "a", "b").done == 0
    assert stage.client.drain("b") == []


def test_full_target_that_refuses_stops_the_job_and_nothing_is_lost(stage: Stage) -> None:
    fill(stage)
    limits: Table = {"x-max-length": 5, "x-overflow": "reject-publish-dlx", **TO_DEAD}
    stage.client.queue("dead")
    stage.client.queue("c", limits)
    job = run(stage, Kind.MOVE, "a", "c")
    assert (job.state, job.done, job.reason) == (State.STOPPED, 5, "queue 'c' in vhost '/' is full")
    assert stage.client.drain("c") == numbers(5)
    assert stage.client.drain("a") == numbers(SOME - 5, 5)
    assert stage.client.drain("dead") == []


def test_target_that_drops_its_head_dead_letters_it(stage: Stage) -> None:
    fill(stage)
    stage.client.queue("dead")
    stage.client.queue("c", {"x-max-length": 5, **TO_DEAD})
    assert run(stage, Kind.MOVE, "a", "c").done == SOME
    assert stage.client.drain("c") == numbers(5, SOME - 5)
    dead = stage.client.drain_all("dead")
    assert [content.body for content in dead] == numbers(SOME - 5)
    assert why(dead[0]) == [("c", "maxlen", 1)]


def test_message_that_the_target_has_seen_is_left_in_the_source(stage: Stage) -> None:
    stage.client.queue("a")
    stage.client.queue("c", {"x-message-deduplication": True})
    for body, value in ((b"0", "x"), (b"1", "y"), (b"2", "x"), (b"3", "z")):
        stage.client.put("a", body, headers={"x-deduplication-header": value})
    job = run(stage, Kind.MOVE, "a", "c")
    assert (job.state, job.done, job.left_out) == (State.DONE, 3, 1)
    assert stage.client.drain("c") == [b"0", b"1", b"3"]
    assert stage.client.drain("a") == [b"2"]


def test_messages_of_groups_move_and_the_others_stay_in_order(stage: Stage) -> None:
    stage.client.queue("a", {"x-group-header": "group"})
    stage.client.queue("b", {"x-group-header": "group"})
    for number in range(SOME):
        stage.client.put("a", b"%d" % number, headers={"group": str(number % 3), "number": number})
    stage.client.start("a", prefetch=1)
    (first,) = stage.client.deliveries()
    assert run(stage, Kind.MOVE, "a", "b", selector="number > 20").done == SOME - 21
    left = [first.body]
    while True:
        stage.client.ack(first.method.delivery_tag)
        found = stage.client.deliveries()
        if not found:
            break
        (first,) = found
        left.append(first.body)
    assert sorted(left, key=int) == numbers(21)
    assert [[body for body in left if int(body) % 3 == group] for group in range(3)] == [
        [b"%d" % number for number in range(group, 21, 3)] for group in range(3)
    ]
    assert sorted(stage.client.drain("b"), key=int) == numbers(SOME - 21, 21)


def test_cancelled_job_ends_and_what_is_done_stays_done(durable: Stage) -> None:
    fill(durable)
    job = start_job(durable.node, Kind.MOVE, "a", "b")
    job.cancel()
    durable.settle()
    assert (job.state, job.done) == (State.CANCELLED, 0)
    assert durable.client.drain("a") == numbers(SOME)


@pytest.mark.parametrize("queue", ["a", "b"])
def test_job_stops_when_a_queue_is_deleted(durable: Stage, queue: str) -> None:
    fill(durable)
    job = start_job(durable.node, Kind.MOVE, "a", "b")
    durable.client.send_only(m.QueueDelete(queue=queue))
    durable.settle()
    assert (job.state, job.reason) == (State.STOPPED, f"queue '{queue}' in vhost '/' was deleted")


def test_job_waits_while_publishers_are_blocked(durable: Stage) -> None:
    fill(durable)
    durable.node.raise_alarm("disk")
    job = start_job(durable.node, Kind.MOVE, "a", "b")
    durable.settle()
    assert (job.state, job.done) == (State.RUNNING, 0)
    durable.node.clear_alarm("disk")
    durable.pass_ms(1000)
    assert (job.state, job.done) == (State.DONE, SOME)


def test_stream_can_be_copied_and_be_moved_to(durable: Stage) -> None:
    fill(durable)
    durable.client.declare("s", durable=True, arguments={"x-queue-type": "stream"})
    assert run(durable, Kind.MOVE, "a", "s").done == SOME
    assert durable.client.count("a") == 0
    job = run(durable, Kind.COPY, "s", "b", selector="number >= 30", count=5)
    assert (job.state, job.done) == (State.DONE, 5)
    copied = durable.client.drain_all("b")
    assert [content.body for content in copied] == numbers(5, 30)
    assert copied[0].properties.headers == {"number": 30}, "and no offset, which is the stream's"
    assert run(durable, Kind.COPY, "s", "b").done == SOME


def test_moved_messages_survive_a_restart(durable: Stage) -> None:
    fill(durable)
    assert run(durable, Kind.MOVE, "a", "b", selector="number < 25").done == 25
    client = durable.restart()
    assert client.drain("a") == numbers(SOME - 25, 25)
    assert client.drain("b") == numbers(25)


def test_notes_of_a_move_are_gone_when_it_has_ended(durable: Stage) -> None:
    assert durable.keeping is LOG
    fill(durable)
    start_job(durable.node, Kind.MOVE, "a", "b")
    durable.machine.turn()
    assert len(list(durable.machine.store.directory.moves.iterdir())) == 1
    durable.settle()
    assert list(durable.machine.store.directory.moves.iterdir()) == []
