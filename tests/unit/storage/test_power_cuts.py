"""What is known after a power cut, when marks may be lost."""

from __future__ import annotations

import errno
import os
from random import Random

from tests.support.faulty_disk import Tree
from tests.support.machine import Machine
from tests.unit.storage.test_rounds import confirmed, declare, publish
from warren.amqp import methods as m
from warren.storage.directory import DataDirectory


def cut_power_and_lose_all(machine: Machine) -> None:
    """All that was not synced."""
    least: Tree = machine.platter.least()
    machine.kill(Random(0))
    machine.platter.replace(least)
    machine.boot()
    machine.start()
    machine.run()


def redelivered(machine: Machine, name: str) -> list[bool]:
    entries = []
    while (entry := machine.queues[name].get(no_ack=False)) is not None:
        entries.append(entry)
    machine.node.end_turn()
    return [entry.delivery_count > 0 for entry in entries]


def test_a_message_that_may_have_been_delivered_comes_back_as_redelivered(machine: Machine) -> None:
    client, consumer = declare(machine, "one"), machine.connect()
    publish(client, "one")
    machine.run()
    consumer.consume("one")
    cut_power_and_lose_all(machine)
    assert redelivered(machine, "one") == [True]


def test_a_power_cut_is_still_known_after_the_next_end(machine: Machine) -> None:
    client = declare(machine, "one")
    publish(client, "one")
    machine.run()
    cut_power_and_lose_all(machine)
    machine.kill(Random(0))
    machine.start()
    assert redelivered(machine, "one") == [True]


def test_a_power_cut_is_still_known_if_recovery_does_not_end(machine: Machine) -> None:
    client = declare(machine, "one")
    publish(client, "one")
    machine.run()
    machine.cut_power(Random(0))
    directory = DataDirectory(
        machine.data, machine.files, machine.notes.warning, sync=True, boot_id=machine.boot_id
    )
    directory.open()
    os.close(directory.lock)
    machine.start()
    assert redelivered(machine, "one") == [True]


def test_what_comes_after_a_power_cut_was_not_delivered_before(machine: Machine) -> None:
    client = declare(machine, "one")
    publish(client, "one")
    machine.run()
    cut_power_and_lose_all(machine)
    client = machine.connect()
    publish(client, "one")
    machine.run()
    assert redelivered(machine, "one") == [True, False]


def test_acks_are_safe_after_a_clean_stop(machine: Machine) -> None:
    client, consumer = declare(machine, "one"), machine.connect()
    publish(client, *["one"] * 3)
    machine.run()
    consumer.consume("one", no_ack=True)
    publish(client, "one")
    machine.run()
    consumer.hang_up()
    publish(client, "one")
    machine.run()
    machine.stop()
    machine.platter.replace(machine.platter.least())
    machine.boot()
    machine.start()
    assert redelivered(machine, "one") == [False]


def test_a_deleted_queue_stays_deleted_although_the_definitions_are_torn(machine: Machine) -> None:
    client = declare(machine, "one", "two")
    publish(client, "one")
    machine.run()
    client.send(m.QueueDelete(queue="one"))
    machine.run()
    assert any(isinstance(method, m.QueueDeleteOk) for method in client.methods())
    machine.kill(Random(1))
    assert (machine.data / "queues" / "1").is_dir()
    with (machine.data / "definitions.log").open("ab") as torn:
        torn.write(b'00000000 {"declare_queue": {"vhost": "/", "na')
    machine.start()
    assert set(machine.queues) == {"two"}


def test_definitions_that_a_failed_sync_has_left_in_memory_become_safe_at_the_next_start(
    machine: Machine,
) -> None:
    declare(machine, "one")
    machine.faults.fail(at=len(machine.faults.done) + 1, error=errno.EIO)
    machine.connect().send(m.QueueDeclare(queue="two", durable=True, arguments={}))
    machine.run()
    assert machine.faults.done[-1] == "sync definitions.log"
    machine.kill(Random(0))
    machine.start()
    client = machine.connect(confirming=True)
    publish(client, "two")
    machine.run()
    assert confirmed(client) == 1
    cut_power_and_lose_all(machine)
    assert machine.queues["two"].message_count == 1


def test_what_cannot_be_set_aside_hides_nothing(machine: Machine) -> None:
    """As on a full disk, which is also what tears a segment, its acks and the definitions."""
    client, consumer = declare(machine, "one"), machine.connect()
    publish(client, "one", "one")
    machine.run()
    consumer.send(m.BasicGet(queue="one"))
    machine.kill(Random(0))
    directory = machine.data / "queues" / "1"
    segment = directory / "00000000000000000001.seg"
    for file in (segment, machine.data / "definitions.log"):
        with file.open("ab") as torn:
            torn.write(b"torn")
        file.with_suffix(".torn").mkdir()  # so that it cannot be written
    segment.with_suffix(".acks").write_bytes(b"torn")
    segment.with_suffix(".acks.torn").mkdir()
    machine.start()
    client = machine.connect(confirming=True)
    publish(client, "one")
    machine.run()
    machine.kill(Random(0))
    assert segment.read_bytes().endswith(b"torn")
    machine.start()
    assert len(redelivered(machine, "one")) == 3


def test_the_version_survives_a_power_cut(machine: Machine) -> None:
    assert machine.platter.least()["VERSION"] == b"1\n"


def test_a_version_that_was_never_synced_is_written_again(machine: Machine) -> None:
    machine.stop()
    (machine.data / "VERSION").write_bytes(b"\0\0")
    machine.start()
    assert (machine.data / "VERSION").read_text() == "1\n"
