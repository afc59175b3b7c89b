"""What a start makes of the notes of a move that was under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.machine import Machine
from tests.unit.storage.conftest import MakeMachine
from warren.amqp.properties import BasicProperties
from warren.amqp.table import encode_name
from warren.broker import commands
from warren.broker.message import Message
from warren.broker.parameters import Json
from warren.storage.checked_lines import checked_line
from warren.storage.format import HEADER_BYTES, MARK_BYTES, segment_name

PERSISTENT = BasicProperties(delivery_mode=2).encode()
TOLD = "cannot end a move; its last messages may be in both queues"


@pytest.fixture
def machine(make_machine: MakeMachine) -> Machine:
    """Two queues, as a crash between the two steps of a move leaves them: messages 2 to 4 are in both."""
    machine = make_machine(segment_bytes=100_000)
    for queue in ("a", "b"):
        machine.node.execute(commands.DeclareQueue(vhost="/", name=queue, durable=True))
    publish(machine, "a", *(b"%d" % number for number in range(1, 7)))
    publish(machine, "b", b"2", b"3", b"4")
    return machine


def publish(machine: Machine, queue: str, *bodies: bytes) -> None:
    """As if all came through the same exchange, with the same key."""
    for body in bodies:
        machine.queues[queue].publish(Message(encode_name("e"), encode_name("k"), PERSISTENT, body, True, 1))
    machine.run()


def write_note(machine: Machine, *runs: tuple[str, int, str, int, int]) -> bytes:
    moves = machine.data / "moves"
    moves.mkdir(mode=0o700, exist_ok=True)
    noted: list[Json] = [[*run] for run in runs]
    line = checked_line({"from": number(machine, "a"), "to": number(machine, "b"), "runs": noted})
    (moves / "1").touch(0o600)
    (moves / "1").write_bytes(line)
    return line


def number(machine: Machine, queue: str) -> int:
    return machine.store.file.definitions.queue_number("/", queue)


def acks_of(machine: Machine, queue: str) -> Path:
    return machine.data / "queues" / str(number(machine, queue)) / f"{segment_name(1)}.acks"


def after_restart(machine: Machine) -> tuple[list[bytes], list[bytes]]:
    """What both queues have after a start; the notes are gone then."""
    machine.stop()
    machine.start()
    machine.run()
    assert list((machine.data / "moves").iterdir()) == []
    return left(machine, "a"), left(machine, "b")


def left(machine: Machine, queue: str) -> list[bytes]:
    found = []
    while (entry := machine.queues[queue].get(no_ack=True)) is not None:
        found.append(entry.message.body)
    return found


def test_message_that_has_arrived_leaves_its_old_queue(machine: Machine) -> None:
    write_note(machine, ("", 2, "", 1, 3))
    assert after_restart(machine) == ([b"1", b"5", b"6"], [b"2", b"3", b"4"])


def test_message_that_has_not_arrived_stays(machine: Machine) -> None:
    write_note(machine, ("", 3, "", 2, 4))
    assert after_restart(machine) == ([b"1", b"2", b"5", b"6"], [b"2", b"3", b"4"])


def test_runs_may_be_apart(machine: Machine) -> None:
    write_note(machine, ("", 2, "", 1, 1), ("", 4, "", 3, 1))
    assert after_restart(machine) == ([b"1", b"3", b"5", b"6"], [b"2", b"3", b"4"])


@pytest.mark.parametrize(
    "run", [("", 1, "", 1, 3), ("", 900, "", 1, 3), ("", 2, "", 900, 3), ("priority-3", 2, "", 1, 3)]
)
def test_note_of_other_messages_does_no_harm(machine: Machine, run: tuple[str, int, str, int, int]) -> None:
    write_note(machine, run)
    assert after_restart(machine) == ([b"1", b"2", b"3", b"4", b"5", b"6"], [b"2", b"3", b"4"])


@pytest.mark.parametrize("queue", ["a", "b"])
def test_note_of_a_queue_that_is_gone_does_no_harm(machine: Machine, queue: str) -> None:
    write_note(machine, ("", 2, "", 1, 3))
    machine.node.execute(commands.DeleteQueue(vhost="/", name=queue))
    machine.run()
    machine.stop()
    machine.start()
    machine.run()
    other = "b" if queue == "a" else "a"
    assert len(left(machine, other)) == (3 if other == "b" else 6)


def test_note_that_was_being_written_is_none(machine: Machine) -> None:
    line = write_note(machine, ("", 2, "", 1, 3))
    (machine.data / "moves" / "1").write_bytes(line[:-5])
    assert after_restart(machine) == ([b"1", b"2", b"3", b"4", b"5", b"6"], [b"2", b"3", b"4"])


@pytest.mark.parametrize("fields", [{}, {"from": 1, "to": 2, "runs": [["", 1]]}])
def test_note_that_makes_no_sense_is_told_of(machine: Machine, fields: dict[str, Json]) -> None:
    write_note(machine)
    (machine.data / "moves" / "1").write_bytes(checked_line(fields))
    machine.stop()
    machine.start()
    machine.run()
    assert TOLD in [line for line, _ in machine.notes.lines]
    assert left(machine, "a") == [b"1", b"2", b"3", b"4", b"5", b"6"]


@pytest.mark.parametrize("torn", [0, 5, HEADER_BYTES, HEADER_BYTES + MARK_BYTES + 3])
def test_marks_are_added_behind_the_last_whole_one(machine: Machine, torn: int) -> None:
    entry = machine.queues["a"].get(no_ack=True)
    assert entry is not None
    machine.node.end_turn()
    write_note(machine, ("", 2, "", 1, 3))
    acks = acks_of(machine, "a")
    machine.stop()
    acks.write_bytes((acks.read_bytes() + bytes(MARK_BYTES))[:torn])
    machine.start()
    machine.run()
    first = [] if torn >= HEADER_BYTES + MARK_BYTES else [b"1"]
    assert left(machine, "a") == [*first, b"5", b"6"]
