"""When the messages of a log that is read back are due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.log_machine import TIME_MS, LogMachine, browse, message
from tests.unit.storage.log_files import damaged, index_of_version_1
from warren.broker.message import Message
from warren.storage.format import SEGMENT_MAGIC, encode_header, encode_record, scan
from warren.storage.queue_log import QueueLog

MESSAGES = [
    message(b"plain"),
    message(b"expires", expiration="500"),
    message(b"scheduled", scheduled=True, time_ms=TIME_MS + 9),
    message(b"scheduled, and expires later", expiration="7", scheduled=True, time_ms=TIME_MS + 8),
    message(b"no number", expiration="never"),
    message(b"at once", expiration="0"),
]
DUE_MS = {2: TIME_MS + 500, 3: TIME_MS + 9, 4: TIME_MS + 8, 6: TIME_MS}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LogMachine]:
    machine = LogMachine(tmp_path)
    yield machine
    machine.close()


def fill(log: QueueLog, messages: list[Message]) -> dict[int, int]:
    """From position 1 on; where each lies."""
    return {position: log.append(each, position, False) for position, each in enumerate(messages, 1)}


def close_with(machine: LogMachine, messages: list[Message]) -> dict[int, int]:
    """All of them in one segment, which is closed, so that there is an index."""
    log = machine.open()
    places = fill(log, messages)
    log.roll(100)
    log.append(message(b"in the tail"), 100, False)
    machine.stop()
    return places


def dues_of(machine: LogMachine) -> list[tuple[int, int, int]]:
    return list(machine.open().due())


@pytest.mark.parametrize("closed", [False, True])
def test_messages_with_a_time_of_their_own_are_due_then(machine: LogMachine, closed: bool) -> None:
    if closed:
        places = close_with(machine, MESSAGES)
    else:
        places = fill(machine.open(), MESSAGES)
        machine.stop()
    machine.start()
    assert dues_of(machine) == [(due, position, places[position]) for position, due in DUE_MS.items()]
    assert (machine.directory / f"{1:020}.due").exists() == closed


def test_what_is_done_with_is_not_due(machine: LogMachine) -> None:
    log = machine.open()
    places = fill(log, MESSAGES)
    for position in (2, 4):
        log.take_out(position, places[position])
        log.acked(position)
    machine.restart()
    assert [position for _, position, _ in dues_of(machine)] == [3, 6]


def test_dues_are_told_once(machine: LogMachine) -> None:
    fill(machine.open(), MESSAGES)
    machine.restart()
    log = machine.open()
    assert len(list(log.due())) == 4
    assert list(log.due()) == []


def test_segment_in_which_nothing_is_due_has_no_due_file(machine: LogMachine) -> None:
    close_with(machine, [message(b"plain")])
    assert sorted(path.name.lstrip("0") for path in machine.directory.iterdir()) == [
        "1.idx",
        "1.seg",
        "100.seg",
        "queue.json",
    ]


def test_due_file_goes_with_its_segment(machine: LogMachine) -> None:
    close_with(machine, MESSAGES)
    machine.start()
    log = machine.open()
    for _ in log.purge():
        pass
    machine.run()
    assert [path for path in machine.directory.iterdir() if path.name.endswith(f"{1}.due")] == []


def due_file(machine: LogMachine) -> Path:
    return machine.directory / f"{1:020}.due"


def index_file(machine: LogMachine) -> Path:
    return machine.directory / f"{1:020}.idx"


def cut(machine: LogMachine) -> None:
    due_file(machine).write_bytes(due_file(machine).read_bytes()[:-1])


def empty(machine: LogMachine) -> None:
    due_file(machine).write_bytes(b"")


def change(machine: LogMachine) -> None:
    due_file(machine).write_bytes(damaged(due_file(machine).read_bytes(), 40))


def lose(machine: LogMachine) -> None:
    """As a power cut may: neither name was synced."""
    due_file(machine).unlink()


@pytest.mark.parametrize("spoil", [cut, empty, change, lose])
def test_due_file_that_is_not_sound_is_told_and_written_again(
    machine: LogMachine, spoil: Callable[[LogMachine], None]
) -> None:
    close_with(machine, MESSAGES)
    whole = due_file(machine).read_bytes()
    spoil(machine)
    machine.start()
    assert machine.told == ["due file is not sound"]
    assert [(due, position) for due, position, _ in dues_of(machine)] == [
        (due, position) for position, due in DUE_MS.items()
    ]
    assert due_file(machine).read_bytes() == whole
    machine.restart()
    assert machine.told == []


def test_index_of_version_1_is_replaced_without_a_word(machine: LogMachine) -> None:
    close_with(machine, MESSAGES)
    segment = (machine.directory / f"{1:020}.seg").read_bytes()
    files = (index_file(machine), due_file(machine))
    whole = [file.read_bytes() for file in files]
    index_file(machine).write_bytes(index_of_version_1(1, segment))
    due_file(machine).unlink()
    machine.start()
    assert machine.told == []
    assert [file.read_bytes() for file in files] == whole
    log = machine.open()
    assert log.unread_bytes == sum(len(each.body) for each in MESSAGES) + len(b"in the tail")
    assert [position for _, position, _ in log.due()] == list(DUE_MS)
    assert len(browse(log)) == len(MESSAGES) + 1


def test_due_file_without_index_does_not_count(machine: LogMachine) -> None:
    close_with(machine, MESSAGES)
    index_file(machine).unlink()
    empty(machine)
    machine.start()
    assert machine.told == []
    assert len(dues_of(machine)) == 4


def test_due_file_is_gone_when_the_index_is_written_anew_and_nothing_is_due(machine: LogMachine) -> None:
    close_with(machine, [message(b"plain")])
    due_file(machine).write_bytes(b"of something else")
    index_file(machine).unlink()
    machine.start()
    assert not due_file(machine).exists()


@pytest.mark.parametrize(
    "properties", [b"", b"\x01", b"\x01\x00", b"\x21\x00\xff\xff\xff\xff", b"\x81\x00\xff9"]
)
def test_properties_that_are_not_sound_are_not_due(properties: bytes) -> None:
    """Nothing is read beyond them: behind is the body."""
    record = encode_record(1, TIME_MS, Message(b"\0", b"\0", properties, b"\x0512345", True))
    found = scan(encode_header(SEGMENT_MAGIC, 1) + record, 1)
    assert (found.count, found.dues) == (1, b"")
