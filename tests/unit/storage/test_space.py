"""Segments in which nothing is alive are given back."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.support.fake_client import FakeClient
from tests.support.frames import method_frame, published
from tests.support.machine import Machine
from tests.support.queues import classic
from tests.unit.storage.conftest import MakeMachine
from tests.unit.storage.test_rounds import declare, publish
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.broker.message import Message
from warren.storage.queue_log import QueueLog


def segments_on_disk(machine: Machine, name: str) -> list[str]:
    machine.housekeeping.run()
    log = classic(machine.queues[name]).lane.log
    assert isinstance(log, QueueLog)
    return sorted(
        path.name
        for path in (machine.data / "queues").glob(f"{log.chain.directory.path.rpartition('/')[2]}/*.*s*")
    )


def ack_all(machine: Machine, consumer: FakeClient) -> None:
    consumer.send(m.BasicAck(delivery_tag=0, multiple=True))
    machine.run()


def test_a_dead_tail_goes_when_the_next_one_begins(machine: Machine) -> None:
    client, consumer = declare(machine, "one"), machine.connect()
    consumer.consume("one")
    for _ in range(5):
        publish(client, "one", body=bytes(2_000))
        machine.run()
        ack_all(machine, consumer)
    seg = [name for name in segments_on_disk(machine, "one") if name.endswith(".seg")]
    assert len(seg) == 1


@pytest.mark.parametrize("written", [True, False])
def test_a_dead_tail_is_given_back_when_tidying(machine: Machine, written: bool) -> None:
    """Also one that has just got a message which is done with already."""
    client, consumer = declare(machine, "one"), machine.connect()
    consumer.consume("one", no_ack=True)
    publish(client, "one", body=bytes(1_500))
    machine.run()
    if not written:
        publish(client, "one", body=bytes(100))
    machine.store.tidy()
    machine.run()
    assert not [name for name in segments_on_disk(machine, "one") if name != "queue.json"]


def test_marks_of_a_deleted_segment_are_not_written_any_more(machine: Machine) -> None:
    client, consumer = declare(machine, "one"), machine.connect()
    publish(client, "one", "one", body=bytes(2_000))
    machine.run()
    machine.faults.fail(at=len(machine.faults.done), error=errno.ENOSPC)
    consumer.consume("one")  # marks of what is delivered cannot be written
    assert machine.store.commit.marks_wait
    ack_all(machine, consumer)
    dead_letter = Message(b"\0", b"\x03one", b"\0\0", bytes(2_000), True, 0)
    machine.node.vhosts["/"].queues["one"].publish(dead_letter)  # a client would be blocked
    machine.node.end_turn()
    machine.run()
    assert segments_on_disk(machine, "one") == ["00000000000000000003.seg", "queue.json"]
    machine.recover_from_faults()
    assert segments_on_disk(machine, "one") == [
        "00000000000000000003.acks",
        "00000000000000000003.seg",
        "queue.json",
    ]


def test_a_part_of_an_ack_file_goes_with_its_segment(machine: Machine) -> None:
    """Though none of its records was ever written."""
    client, consumer = declare(machine, "one"), machine.connect()
    consumer.consume("one", no_ack=True)
    publish(client, "one", body=bytes(2_000))  # keeps the disk busy
    machine.faults.fail(at=len(machine.faults.done), error=errno.ENOSPC)
    publish(client, "one", body=bytes(2_000))
    assert machine.store.commit.marks_wait
    publish(client, "one", body=bytes(2_000))
    machine.recover_from_faults()
    assert segments_on_disk(machine, "one") == [
        "00000000000000000003.acks",
        "00000000000000000003.seg",
        "queue.json",
    ]


def test_what_is_acked_before_its_segment_is_made_does_not_come_back(make_machine: MakeMachine) -> None:
    """A round of several parts: the segment that is deleted waits for its turn."""
    machine = make_machine(open_files_max=2)
    names = [f"{number:02}" for number in range(4)]
    client = declare(machine, *names)
    client.consume(names[-1])
    publish(client, *names, body=bytes(2_000))
    another = published("", names[-1], bytes(2_000), BasicProperties(delivery_mode=PERSISTENT))
    client.connection.feed(method_frame(1, m.BasicAck(delivery_tag=1)) + another)  # begins another segment
    assert machine.store.commit.flight is not None
    while machine.store.commit.flight.waiting:
        machine.finish_round()
    machine.disk.work()
    machine.kill(Random(0))
    machine.start()
    assert machine.queues[names[0]].message_count == 1
    assert machine.queues[names[-1]].message_count == 0


def test_deleting_a_queue_makes_room_on_a_full_disk(machine: Machine) -> None:
    """Its directory does not wait for a round that cannot be over before there is room."""
    client, other = declare(machine, "one", "two"), machine.connect()
    publish(client, "one", "one", body=bytes(2_000))
    machine.run()
    machine.faults.fail(at=len(machine.faults.done), error=errno.ENOSPC, times=1_000)
    publish(client, "two")
    machine.run()
    assert machine.store.is_failing
    other.send(m.QueueDelete(queue="one"))
    machine.store.tidy()
    machine.faults.plan = None  # to delete is possible on a full disk
    machine.housekeeping.run()
    assert [path.name for path in (machine.data / "queues").iterdir()] == []
    assert other.methods() == []
    machine.recover_from_faults()
    assert [type(method) for method in other.methods()] == [m.QueueDeleteOk]
