"""What a round writes and syncs, in which parts, and what it does when that fails."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from tests.support.fake_client import FakeClient
from tests.support.frames import published
from tests.support.machine import Machine
from tests.unit.storage.conftest import MakeMachine
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.storage import definitions

QUEUES = ("one", "two", "three")


def declare(machine: Machine, *names: str) -> FakeClient:
    """A publisher that waits for confirms, and these durable queues."""
    client = machine.connect(confirming=True)
    for name in names:
        client.send(m.QueueDeclare(queue=name, durable=True, arguments={}))
        machine.run()
    client.frames()
    return client


def publish(client: FakeClient, *names: str, body: bytes = b"x") -> None:
    """In one turn, so that all is in one round."""
    persistent = BasicProperties(delivery_mode=PERSISTENT)
    client.connection.feed(b"".join(published("", name, body, persistent) for name in names))


def confirmed(client: FakeClient) -> int:
    """Up to which message."""
    return max(
        (method.delivery_tag for method in client.methods() if isinstance(method, m.BasicAck)), default=0
    )


def bodies(machine: Machine, name: str) -> list[bytes]:
    return [message.body for message in machine.safe_messages(name)]


def test_a_round_in_several_parts_is_synced_as_a_whole(make_machine: MakeMachine) -> None:
    machine = make_machine(open_files_max=2)
    client = declare(machine, *QUEUES)
    for _ in range(2):  # the second time, no name is new
        publish(client, *QUEUES)
        machine.run()
    assert confirmed(client) == 6
    assert [bodies(machine, name) for name in QUEUES] == [[b"x"] * 2] * 3


def test_a_failed_sync_has_every_part_of_the_round_written_again(make_machine: MakeMachine) -> None:
    machine = make_machine(open_files_max=2)
    client = declare(machine, *QUEUES)
    publish(client, *QUEUES, body=bytes(5_000))
    machine.finish_round()
    machine.finish_round()
    machine.faults.fail(at=len(machine.faults.done) + 1, error=errno.EIO)
    machine.run()
    assert machine.faults.done[-1].startswith("sync all")
    assert confirmed(client) == 0
    machine.recover_from_faults()
    assert confirmed(client) == 3
    assert [bodies(machine, name) for name in QUEUES] == [[bytes(5_000)]] * 3


def test_a_directory_that_could_not_be_opened_is_synced_later(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = declare(machine, "one")
    real_open = os.open

    def fail(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(errno.EMFILE, "too many open files")
        return real_open(path, flags, *args, **kwargs)

    with monkeypatch.context() as context:
        context.setattr(os, "open", fail)
        publish(client, "one")
        machine.run()
    assert machine.store.is_failing
    machine.recover_from_faults()
    assert confirmed(client) == 1
    assert bodies(machine, "one") == [b"x"]


def test_many_new_queues_in_one_round_need_no_open_directories(make_machine: MakeMachine) -> None:
    machine = make_machine(open_files_max=4)
    names = [str(number) for number in range(20)]
    client = declare(machine, *names)
    publish(client, *names)
    while machine.store.commit.flight is None or machine.store.commit.flight.waiting:
        assert len(machine.open_files()) <= 4 + len(("definitions", "directory", "lock"))
        machine.finish_round()
    machine.run()
    assert confirmed(client) == 20


def test_definitions_that_cannot_be_written_anew_take_nothing_with_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "DEAD_LINES_MIN", 2)
    in_the_way = machine.data / "definitions.new"
    in_the_way.mkdir()
    client = declare(machine, "one")
    for _ in range(10):
        client.send(m.QueueDeclare(queue="other", durable=True, arguments={}, no_wait=True))
        client.send(m.QueueDelete(queue="other", no_wait=True))
    publish(client, "one")
    machine.run()
    assert machine.store.is_failing
    assert confirmed(client) == 0
    in_the_way.rmdir()
    machine.recover_from_faults()
    assert confirmed(client) == 1
    assert not machine.world.errors


def test_marks_that_are_written_before_the_records_leave_the_directory_to_be_synced(machine: Machine) -> None:
    client = declare(machine, "one")
    consumer = machine.connect()
    consumer.consume("one")
    publish(client, "one")
    machine.run()
    assert consumer.bodies() == [b"x"]
    assert bodies(machine, "one") == [b"x"]
