"""Directories of queues that the definitions do not name: only what has ended for sure is ever deleted."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.support.fake_client import FakeClient
from tests.support.frames import published
from tests.support.machine import Machine
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.storage.definitions_recovery import recover_definitions

PERSISTENTLY = BasicProperties(delivery_mode=PERSISTENT)


def fill(machine: Machine, *names: str, arguments: Table | None = None) -> FakeClient:
    """Durable queues with a message each."""
    client = machine.connect()
    for name in names:
        client.send(m.QueueDeclare(queue=name, durable=True, arguments=arguments or {}))
        client.connection.feed(published("", name, name.encode(), PERSISTENTLY))
        machine.run()
    client.frames()
    return client


def delete(machine: Machine, *names: str) -> None:
    client = machine.connect()
    for name in names:
        client.send(m.QueueDelete(queue=name))
    machine.run()


def directories(machine: Machine) -> set[str]:
    return {path.name for path in (machine.data / "queues").iterdir()}


def number_of(machine: Machine, name: str) -> str:
    return str(machine.store.file.definitions.queue_number("/", name))


def bodies(machine: Machine) -> dict[str, list[bytes]]:
    """What each queue has."""
    found: dict[str, list[bytes]] = {}
    for name, queue in machine.queues.items():
        entries = []
        while (entry := queue.get(no_ack=False)) is not None:
            entries.append(entry)
        found[name] = [entry.message.body for entry in entries]
        for entry in entries:
            queue.requeue(entry)
    return found


def restart(machine: Machine) -> None:
    machine.stop()
    machine.start()
    machine.run()


def restart_with(machine: Machine, definitions: bytes) -> None:
    """With other definitions than there were."""
    machine.stop()
    (machine.data / "definitions.log").write_bytes(definitions)
    machine.start()
    machine.housekeeping.run()
    machine.run()


def log_of(machine: Machine) -> bytes:
    return (machine.data / "definitions.log").read_bytes()


def test_definitions_of_yesterday_cost_no_queue_that_was_declared_since(machine: Machine) -> None:
    fill(machine, "old")
    yesterday = log_of(machine)
    fill(machine, "new", "newer", arguments={"x-max-priority": 3})
    numbers = {name: number_of(machine, name) for name in ("old", "new", "newer")}
    restart_with(machine, yesterday)
    expected = {name: [name.encode()] for name in numbers}
    assert bodies(machine) == expected
    assert machine.queues["new"].rules.max_priority == 3
    assert {name: number_of(machine, name) for name in numbers} == numbers
    told = [fields["queue"] for event, fields in machine.notes.lines if "declared again" in event]
    assert told == ["new", "newer"]
    restart(machine)
    assert bodies(machine) == expected
    assert not any("again" in event for event, _ in machine.notes.lines)


def test_adopted_queue_survives_a_power_cut_and_its_number_is_not_used_again(machine: Machine) -> None:
    fill(machine, "old")
    yesterday = log_of(machine)
    fill(machine, "new")
    restart_with(machine, yesterday)
    fill(machine, "next")
    assert number_of(machine, "next") not in {number_of(machine, "old"), number_of(machine, "new")}
    machine.kill(Random(0))
    machine.platter.replace(machine.platter.least())
    machine.boot()
    machine.start()
    machine.run()
    assert bodies(machine) == {name: [name.encode()] for name in ("old", "new", "next")}


@pytest.mark.parametrize("compacted", [False, True])
def test_directory_of_a_queue_that_was_deleted_goes(machine: Machine, compacted: bool) -> None:
    fill(machine, "q", "other")
    number = number_of(machine, "q")
    kept = machine.data / "kept"
    (machine.data / "queues" / number).rename(kept)
    delete(machine, "q")
    if compacted:
        fill(machine, *(f"passing-{n}" for n in range(12)))
        delete(machine, *(f"passing-{n}" for n in range(12)))
        assert b'"q"' not in log_of(machine)
    machine.housekeeping.run()
    kept.rename(machine.data / "queues" / number)
    restart_with(machine, log_of(machine))
    assert "q" not in machine.queues
    assert directories(machine) == {number_of(machine, "other")}


@pytest.mark.parametrize("compacted", [False, True])
def test_torn_tail_brings_no_deleted_queue_back(machine: Machine, compacted: bool) -> None:
    fill(machine, "q", "other")
    number = number_of(machine, "q")
    kept = machine.data / "kept"
    (machine.data / "queues" / number).rename(kept)
    delete(machine, "q")
    machine.housekeeping.run()
    definitions = recover_definitions(log_of(machine)).definitions
    kept.rename(machine.data / "queues" / number)
    restart_with(machine, (definitions.compacted() if compacted else log_of(machine)) + b'bbb8b0f0 {"add')
    assert "q" not in machine.queues
    assert directories(machine) == {number_of(machine, "other")}


def test_damaged_line_may_be_that_of_any_queue_which_is_declared_again(machine: Machine) -> None:
    fill(machine, "q", "other")
    definitions = log_of(machine)
    at = definitions.index(b'"name": "q"')
    restart_with(machine, definitions[:at] + b"!" + definitions[at + 1 :])
    assert bodies(machine) == {"q": [b"q"], "other": [b"other"]}


def test_deletion_that_was_interrupted_goes_on_at_the_next_start(machine: Machine) -> None:
    fill(machine, "q")
    queue = machine.data / "queues" / number_of(machine, "q")
    delete(machine, "q")
    machine.stop()
    (queue.parent / f"{queue.name}.deleted").mkdir()
    machine.start()
    machine.housekeeping.run()
    assert directories(machine) == set()


def damage_nothing(_manifest: Path) -> None:
    """It says which queue it is of, but that has another directory by now."""


def lose(manifest: Path) -> None:
    manifest.unlink()


def empty(manifest: Path) -> None:
    manifest.write_bytes(b"")


def garble(manifest: Path) -> None:
    manifest.write_bytes(b"\xff\xfe{}")


def name_something_else(manifest: Path) -> None:
    manifest.write_text(json.dumps({"add_vhost": {"name": "v"}}))


def name_a_queue_of_an_exchange(manifest: Path) -> None:
    declare = {"vhost": "/", "name": "amq.delayed.gone", "durable": True}
    manifest.write_text(json.dumps({"declare_queue": declare}))


@pytest.mark.parametrize(
    "damage", [damage_nothing, lose, empty, garble, name_something_else, name_a_queue_of_an_exchange]
)
def test_directory_that_cannot_be_adopted_is_set_aside_and_stays(machine: Machine, damage: object) -> None:
    assert callable(damage)
    fill(machine, "old")
    yesterday = log_of(machine)
    fill(machine, "new")
    number = number_of(machine, "new")
    if damage is damage_nothing:
        machine.stop()
        (machine.data / "queues" / number).rename(machine.data / "aside")
        (machine.data / "definitions.log").write_bytes(yesterday)
        machine.start()
        fill(machine, "new")  # another, with the same name
        yesterday = log_of(machine)
        number = str(int(number) + 5)
        (machine.data / "aside").rename(machine.data / "queues" / number)
    damage(machine.data / "queues" / number / "queue.json")
    segments = sorted(path.name for path in (machine.data / "queues" / number).glob("*.seg"))
    restart_with(machine, yesterday)
    aside = machine.data / "queues" / f"{number}.unknown"
    assert any("unknown queue" in event for event, _ in machine.notes.lines)
    for _ in range(2):
        fill(machine, *(f"passing-{n}" for n in range(12)))  # so that the log is compacted
        delete(machine, *(f"passing-{n}" for n in range(12)))
        machine.housekeeping.run()
        restart(machine)
        assert sorted(path.name for path in aside.glob("*.seg")) == segments
        assert any("set aside" in event for event, _ in machine.notes.lines)
    assert bodies(machine)["old"] == [b"old"]


def test_second_one_of_the_same_number_is_set_aside_beside_the_first(machine: Machine) -> None:
    fill(machine, "q")
    queues = machine.data / "queues"
    for _ in range(3):
        (queues / "99").mkdir(mode=0o700)
        restart(machine)
    assert directories(machine) == {number_of(machine, "q"), "99.unknown", "99.unknown2", "99.unknown3"}
