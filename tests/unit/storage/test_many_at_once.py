"""Very many queues that come or go at once: each turn of the event loop does a bounded part of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.log_machine import message
from tests.support.machine import Machine
from warren.broker import commands
from warren.broker.commands import COMMAND_WORK
from warren.broker.turns import WORK_A_TURN_MAX
from warren.storage import commit


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def declare(machine: Machine, count: int) -> list[str]:
    names = [f"q{number}" for number in range(count)]
    for name in names:
        machine.node.execute(commands.DeclareQueue(vhost="/", name=name, durable=True))
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
