"""Very many queues that come or go at once: each turn of the event loop does a bounded part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from tests.support.fake_client import FakeClient
from tests.support.frames import method_frame, published
from tests.support.log_machine import message
from tests.support.machine import Machine
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.broker import commands, vhost
from warren.broker.commands import COMMAND_WORK
from warren.broker.queue import Queue
from warren.broker.turns import WORK_A_TURN_MAX
from warren.storage import commit
from warren.storage.queue_log import QueueLog
from warren.storage.stream_log import SegmentedStream

MANY = 20
MARKS_WORK, FIRST_MARKS_WORK = 50, 10_000  # in commit.py, where they are C numbers


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Machine]:
    """A machine that keeps the files of very many queues open."""
    machine = Machine(tmp_path, open_files_max=100)
    yield machine
    assert machine.world.errors == []
    machine.close()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def declare_one(machine: Machine, name: str, arguments: Table | None = None) -> Queue:
    command = commands.DeclareQueue(vhost="/", name=name, durable=True, arguments=arguments or {})
    machine.node.execute(command)
    return machine.queues[name]


def declare(machine: Machine, count: int, arguments: Table | None = None) -> list[str]:
    names = [f"q{number}" for number in range(count)]
    for name in names:
        declare_one(machine, name, arguments)
    machine.run()
    return names


def test_who_waited_for_a_round_is_told_in_order_and_in_several_turns(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "TOLD_A_TURN_MAX", 10)
    told: list[int] = []
    for number in range(25):
        machine.store.safety.when_safe(lambda _round, number=number: told.append(number))  # type: ignore[misc]
    machine.world.turn()
    machine.disk.work()
    machine.store.commit.completed()
    counts = [len(told)]
    machine.store.safety.when_safe(lambda _round: told.append(25))
    while machine.store.commit.to_tell:
        machine.world.turn()
        counts.append(len(told))
    machine.run()
    assert counts == [10, 20, 25]
    assert told == list(range(26))


def test_one_who_fails_keeps_nobody_waiting(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "TOLD_A_TURN_MAX", 1)
    told: list[str] = []

    def fail(_round: int) -> None:
        raise RuntimeError("no")

    machine.store.safety.when_safe(fail)
    machine.store.safety.when_safe(lambda _round: told.append("next"))
    machine.run()
    assert told == ["next"]
    assert [str(error) for error in machine.world.errors] == ["no"]
    machine.world.errors.clear()


def test_directories_of_deleted_queues_are_handed_over_some_in_each_turn(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "DIRECTORIES_A_TURN_MAX", 4)
    handed: list[int] = []
    remove = machine.housekeeping.remove_directories

    def counted(paths: Sequence[str]) -> None:
        handed.append(len(paths))
        remove(paths)

    monkeypatch.setattr(machine.housekeeping, "remove_directories", counted)
    names = declare(machine, 10)
    for name in names:
        machine.queues[name].publish(message(b"hello"))
    machine.run()
    for name in names:
        machine.node.execute(commands.DeleteQueue(vhost="/", name=name))
    machine.run()
    machine.housekeeping.run()
    assert sorted(handed) == [2, 4, 4]
    assert machine.store.commit.leaving == {}
    assert not any((machine.data / "queues").iterdir())


def test_commands_take_from_the_budget_of_the_turn(machine: Machine) -> None:
    budget = machine.node.turns.budget
    budget.left = WORK_A_TURN_MAX
    machine.node.execute(commands.DeclareQueue(vhost="/", name="q", durable=True))
    assert budget.left == WORK_A_TURN_MAX - COMMAND_WORK


def test_exclusive_queues_of_a_lost_connection_go_in_several_turns(machine: Machine) -> None:
    client = machine.connect()
    connection = client.connection
    count = 2 * WORK_A_TURN_MAX // COMMAND_WORK
    for number in range(count):
        command = commands.DeclareQueue(vhost="/", name=f"own{number}", owner=connection.id)
        machine.node.execute(command)
    machine.node.turns.budget.left = WORK_A_TURN_MAX
    connection.lost()
    left = len(machine.queues)
    assert count // 2 - 10 <= left < count
    machine.turn()
    assert not machine.queues
    assert not machine.node.vhosts["/"].exclusive_queues


def test_files_are_made_some_in_each_turn(tmp_path: Path) -> None:
    machine = Machine(tmp_path, open_files_max=100)
    names = declare(machine, 10)
    machine.faults.done.clear()
    for name in names:
        machine.queues[name].publish(message(b"x"))
    made = []
    while not machine.disk.is_busy:
        before = sum(step.startswith("create ") for step in machine.faults.done)
        machine.world.turn()
        made.append(sum(step.startswith("create ") for step in machine.faults.done) - before)
    assert [count for count in made if count] == [4, 4, 2]
    machine.run()
    machine.close()


def test_what_is_on_its_way_to_a_queue_of_a_vhost_that_is_being_deleted_holds_up_no_round(
    roomy: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vhost, "COMMAND_WORK", WORK_A_TURN_MAX)
    roomy.node.execute(commands.AddVhost(name="v"))
    for name in ("first", "second", "last"):
        roomy.node.execute(commands.DeclareQueue(vhost="v", name=name, durable=True))
    roomy.run()
    last = roomy.node.vhosts["v"].queues["last"]
    last.publish(message(b"x"))
    roomy.node.execute(commands.DeleteVhost(name="v"))
    assert not last.deleted
    roomy.store.commit.begin()
    roomy.run()
    assert last.deleted
    assert roomy.store.commit.is_idle


# --- marks ---


def is_ack_file(step: str) -> bool:
    return step.startswith("create ") and step.endswith(".acks")


def ack_files(machine: Machine) -> int:
    """How many were made so far."""
    return sum(map(is_ack_file, machine.faults.done))


def most_ack_files_in_a_turn(
    machine: Machine, begin: Callable[[], None], check: Callable[[], None] = lambda: None
) -> int:
    """Make this call, and go on until nothing is left to do, one call after the other. How many ack files one
    call made at most.
    """
    machine.world.soon.append(begin)
    most, before = 0, ack_files(machine)
    while machine.world.soon or machine.disk.is_busy:
        if machine.world.soon:
            machine.world.soon.popleft()()
        else:
            machine.disk.work()
            machine.store.commit.completed()
        check()
        made = ack_files(machine)
        most, before = max(most, made - before), made
    return most


def with_messages(machine: Machine, count: int, arguments: Table | None = None) -> list[str]:
    """Queues in which a message waits, on disk and in memory."""
    names = declare(machine, count, arguments)
    for name in names:
        machine.queues[name].publish(message(b"x", time_ms=machine.world.time_ms()))
    machine.run()
    return names


def test_first_marks_of_very_many_queues_are_written_in_several_turns_and_always_before_the_output(
    roomy: Machine,
) -> None:
    client = roomy.connect()
    names = declare(roomy, MANY)
    for name in names:
        client.send(m.QueueBind(queue=name, exchange="amq.fanout", no_wait=True, arguments={}))
        client.send(m.BasicConsume(queue=name, consumer_tag=name, no_wait=True, arguments={}))
    received: list[m.Method] = []

    def check() -> None:
        received.extend(client.methods())
        assert len(received) <= ack_files(roomy)

    message = published("amq.fanout", "", b"x", BasicProperties(delivery_mode=PERSISTENT))
    most = most_ack_files_in_a_turn(roomy, lambda: client.connection.feed(message), check)
    assert most <= commit.MADE_A_TURN_MAX
    assert len(received) == MANY == ack_files(roomy)


def test_purges_in_one_read_are_carried_out_in_several_turns(roomy: Machine) -> None:
    client = roomy.connect()
    names = with_messages(roomy, MANY)
    purges = b"".join(method_frame(1, m.QueuePurge(queue=name)) for name in names)
    most = most_ack_files_in_a_turn(roomy, lambda: client.connection.feed(purges))
    assert most <= commit.MADE_A_TURN_MAX
    assert client.methods() == MANY * [m.QueuePurgeOk(message_count=1)]


def with_segments(machine: Machine, count: int) -> FakeClient:
    """A queue with so many segments, a message in each; some of the messages are in memory as well."""
    client = machine.connect()
    declare_one(machine, "q")
    body = bytes(machine.settings.segment_bytes)
    for _ in range(count):
        client.publish("", "q", body, BasicProperties(delivery_mode=PERSISTENT))
    machine.run()
    assert 0 < classic(machine.queues["q"]).lane.ready.count < count == segments(machine)
    return client


def segments(machine: Machine) -> int:
    log = classic(machine.queues["q"]).lane.log
    assert isinstance(log, QueueLog)
    return len(log.segments)


def test_purge_of_very_many_segments_takes_several_turns_and_is_answered_when_it_is_noted(
    roomy: Machine,
) -> None:
    client = with_segments(roomy, MANY)
    answers: list[m.Method] = []

    def check() -> None:
        answers.extend(client.methods())
        assert not answers or ack_files(roomy) == MANY

    most = most_ack_files_in_a_turn(roomy, lambda: client.send(m.QueuePurge(queue="q")), check)
    assert most <= commit.MADE_A_TURN_MAX
    assert answers == [m.QueuePurgeOk(message_count=MANY)]
    assert segments(roomy) == 1, "the tail"


def test_messages_that_come_while_very_many_segments_are_purged_stay(roomy: Machine) -> None:
    client = with_segments(roomy, MANY)
    client.send(m.QueuePurge(queue="q"))
    other = roomy.connect()
    other.publish("", "q", b"new", BasicProperties(delivery_mode=PERSISTENT))
    assert client.methods() == []
    roomy.run()
    assert client.methods() == [m.QueuePurgeOk(message_count=MANY)]
    roomy.kill(Random(1))
    roomy.start()
    assert roomy.queues["q"].message_count == 1
    assert other.bodies() == []


def test_queue_that_is_deleted_while_very_many_segments_are_purged_is_gone(roomy: Machine) -> None:
    client = with_segments(roomy, MANY)
    client.send(m.QueuePurge(queue="q"))
    roomy.node.execute(commands.DeleteQueue(vhost="/", name="q"))
    roomy.run()
    assert client.methods() == [m.QueuePurgeOk(message_count=MANY)]
    assert "q" not in roomy.queues


def test_dead_letters_that_are_safe_leave_very_many_queues_in_several_turns(roomy: Machine) -> None:
    graveyard = declare_one(roomy, "graveyard")
    expiring: Table = {
        "x-message-ttl": 1_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "graveyard",
    }
    with_messages(roomy, MANY, expiring)
    assert most_ack_files_in_a_turn(roomy, lambda: roomy.world.advance(2.0)) <= commit.MADE_A_TURN_MAX
    assert (graveyard.message_count, ack_files(roomy)) == (MANY, MANY)
    assert not roomy.node.handover.gathered


def test_a_queue_with_very_many_priorities_writes_their_first_marks_in_several_turns(roomy: Machine) -> None:
    client = roomy.connect()
    queue = declare_one(roomy, "q", {"x-max-priority": MANY})
    for priority in range(1, MANY + 1):
        client.publish("", "q", b"x", BasicProperties(delivery_mode=PERSISTENT, priority=priority))
    roomy.run()
    consume = m.BasicConsume(queue="q", consumer_tag="q", no_ack=True, arguments={})
    assert most_ack_files_in_a_turn(roomy, lambda: client.send(consume)) <= commit.MADE_A_TURN_MAX
    assert (queue.message_count, ack_files(roomy)) == (0, MANY)


def test_first_offsets_of_very_many_streams_take_from_the_budget_of_the_turn(roomy: Machine) -> None:
    budget = roomy.node.turns.budget
    arguments: Table = {"x-queue-type": "stream"}
    logs = [log for name in ("s", "t") for _, log in declare_one(roomy, name, arguments).logs()]
    first, second = (log for log in logs if isinstance(log, SegmentedStream))
    budget.left = WORK_A_TURN_MAX
    for offset in (1, 2):
        first.note_offset("here", offset)
        assert budget.left == WORK_A_TURN_MAX - FIRST_MARKS_WORK
    second.note_offset("here", 1)
    assert budget.left == WORK_A_TURN_MAX - 2 * FIRST_MARKS_WORK
    roomy.node.end_turn()
    first.note_offset("here", 3)
    assert budget.left == WORK_A_TURN_MAX - 2 * FIRST_MARKS_WORK - MARKS_WORK
