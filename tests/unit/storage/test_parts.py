"""The further logs of a queue: where they lie, what makes them safe, and that they go with the queue."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.log_machine import QUEUE, LogMachine, browse, message
from tests.unit.storage.data_files import HandMade
from tests.unit.storage.log_files import LogDirectory, damaged, offset_of, segment
from warren.storage.data_files import DataFiles, FileKind, FileProblem
from warren.storage.inspect import read_messages, summarize
from warren.storage.log_directory import is_part, parts_in
from warren.storage.queue_log import QueueLog
from warren.storage.verify import Checked, verify

PARTS = ("", "priority-3", "priority-12", "seen")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LogMachine]:
    machine = LogMachine(tmp_path)
    yield machine
    machine.close()


def append(log: QueueLog, position: int, body: bytes) -> None:
    log.append(message(body), position, False)


def bodies(log: QueueLog) -> list[bytes]:
    return [read.body for _, read in browse(log)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("seen", True),
        ("priority-1", True),
        ("priority-10", True),
        ("priority-255", True),
        ("priority-256", False),
        ("priority-0", False),
        ("priority-01", False),
        ("priority-", False),
        ("priority-٣", False),
        ("Seen", False),
        ("seen\n", False),
        ("", False),
    ],
)
def test_only_these_names_are_parts(name: str, expected: bool) -> None:
    assert is_part(name) == expected


def test_parts_are_in_order_of_priority(tmp_path: Path) -> None:
    for name in ("seen", "priority-12", "priority-3", "priority-255", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "priority-1").touch()
    assert parts_in(str(tmp_path)) == ["priority-3", "priority-12", "priority-255", "seen"]


def test_every_part_has_messages_and_positions_of_its_own(machine: LogMachine) -> None:
    for number, part in enumerate(PARTS, 1):
        append(machine.open(part), 10 * number, part.encode())
    machine.restart()
    for number, part in enumerate(PARTS, 1):
        opened = machine.store.open_log("/", QUEUE, part)
        assert opened is not None
        log, position = opened
        assert isinstance(log, QueueLog)
        assert (bodies(log), position) == ([part.encode()], 10 * number)
    assert machine.told == []


def test_part_that_has_nothing_begins_empty(machine: LogMachine) -> None:
    append(machine.open(), 1, b"x")
    machine.restart()
    opened = machine.store.open_log("/", QUEUE, "priority-9")
    assert opened is not None
    assert (opened[0].unread, opened[1]) == (0, 0)


# --- what is safe ---


def test_first_message_of_a_queue_is_safe_in_a_part(machine: LogMachine) -> None:
    """Three names are new then, and each is in another directory."""
    machine.open()
    append(machine.open("priority-3"), 1, b"safe")
    machine.run()
    assert [done for done in machine.faults.done if done.startswith("sync names")][-3:] == [
        "sync names queues",
        f"sync names {machine.directory.name}",
        "sync names priority-3",
    ]
    machine.lose_all_unsynced()
    machine.start()
    assert bodies(machine.open("priority-3")) == [b"safe"]


def test_directory_says_which_queue_it_is_of_also_if_only_a_part_was_written(machine: LogMachine) -> None:
    append(machine.open("priority-3"), 1, b"x")
    machine.run()
    assert sorted(path.name for path in machine.directory.iterdir()) == ["priority-3", "queue.json"]
    assert sorted(path.name for path in (machine.directory / "priority-3").iterdir()) == [f"{1:020}.seg"]


def test_names_that_are_synced_are_not_synced_again(machine: LogMachine) -> None:
    append(machine.open(), 1, b"x")
    machine.run()
    log = machine.open("priority-3")
    append(log, 2, b"x")
    machine.run()
    syncs = [done for done in machine.faults.done if done.startswith("sync names")]
    assert syncs[-2:] == [f"sync names {machine.directory.name}", "sync names priority-3"]
    log.roll(3)
    append(log, 3, b"x")
    machine.run()
    syncs = [done for done in machine.faults.done if done.startswith("sync names")]
    assert syncs[-2:] == ["sync names priority-3", "sync names priority-3"]


def test_part_is_safe_when_making_its_directory_failed_at_first(machine: LogMachine) -> None:
    append(machine.open("priority-3"), 1, b"safe")
    machine.faults.fail(at=len(machine.faults.done) + 1, error=errno.ENOSPC)
    machine.run()
    assert machine.store.is_failing
    machine.faults.plan = None
    machine.world.advance(1)
    machine.run()
    machine.lose_all_unsynced()
    machine.start()
    assert bodies(machine.open("priority-3")) == [b"safe"]


def test_definition_that_is_lost_is_made_again_with_all_parts(machine: LogMachine) -> None:
    append(machine.open("priority-3"), 1, b"kept")
    machine.stop()
    (machine.data / "definitions.log").unlink()
    machine.start()
    assert bodies(machine.open("priority-3")) == [b"kept"]


# --- what is not ours ---


@pytest.mark.parametrize(
    "name", ["priority-0", "priority-256", "others", "seen/priority-3", "seen/queue.json"]
)
def test_other_names_are_told_and_left_alone(machine: LogMachine, name: str) -> None:
    append(machine.open("seen"), 1, b"x")
    machine.stop()
    (machine.directory / name).mkdir()
    machine.start()
    assert machine.told == ["foreign file"]
    assert (machine.directory / name).is_dir()


def test_file_with_the_name_of_a_part_is_foreign(machine: LogMachine) -> None:
    append(machine.open(), 1, b"x")
    machine.stop()
    (machine.directory / "seen").touch()
    machine.start()
    assert machine.told == ["foreign file"]


# --- deleted ---


@pytest.mark.parametrize("order", [("", "priority-3"), ("priority-3", ""), ("",)])
@pytest.mark.parametrize("written", [False, True])
def test_parts_go_with_their_queue(machine: LogMachine, order: tuple[str, ...], written: bool) -> None:
    logs = {part: machine.open(part) for part in ("", "priority-3")}
    directory = machine.directory
    for log in logs.values():
        append(log, 1, b"x")
    if written:
        machine.run()
        for log in logs.values():
            append(log, 2, b"in the round in which they are deleted")
            log.delivered(1, 1)
    machine.delete_queue()
    for part in order:
        logs[part].delete()
    machine.run()
    assert not directory.exists()
    assert (machine.store.is_failing, machine.told, machine.files.files) == (False, [], {})


def test_part_in_flight_when_its_queue_is_deleted_does_no_harm(machine: LogMachine) -> None:
    main, part = machine.open(), machine.open("priority-3")
    append(part, 1, b"x")
    machine.world.run()
    directory = machine.directory
    machine.delete_queue()
    main.delete()
    machine.run()
    assert not directory.exists()
    assert (machine.store.is_failing, machine.told) == (False, [])


# --- looked at from outside ---


@pytest.fixture
def data(tmp_path: Path) -> HandMade:
    data = HandMade(tmp_path / "looked-at")
    log = data.declare("orders")
    log.put(1, "seg", segment(1, [b"plain"]))
    LogDirectory(log.path / "priority-3").put(2, "seg", segment(2, [b"urgent", b"more"]))
    LogDirectory(log.path / "seen").put(1, "seg", segment(1, [b"seen"]))
    return data


def test_logs_of_a_queue_are_listed_behind_it(data: HandMade) -> None:
    summaries = [summarize(log) for log in DataFiles(data.path).logs("/")]
    assert [(each.files.queue, each.files.part, each.messages) for each in summaries] == [
        ("orders", "", 1),
        ("orders", "priority-3", 2),
        ("orders", "seen", 1),
    ]
    assert [problem for each in summaries for problem in each.problems] == []


def test_messages_say_in_which_part_they_are(data: HandMade) -> None:
    told: list[FileProblem] = []
    found = [
        (stored.part, stored.message.body)
        for log in DataFiles(data.path).logs()
        for stored in read_messages(log, told.append)
    ]
    assert found == [("", b"plain"), ("priority-3", b"urgent"), ("priority-3", b"more"), ("seen", b"seen")]
    assert told == []


def test_parts_are_verified(data: HandMade) -> None:
    told: list[FileProblem] = []
    sizes = [path.stat().st_size for path in data.path.rglob("*") if path.suffix in {".seg", ".log"}]
    assert verify(DataFiles(data.path), told.append) == Checked(1, 3, 4, sum(sizes))
    assert told == []


def test_damage_in_a_part_is_told_with_its_file(data: HandMade) -> None:
    file = data.path / "queues" / "1" / "priority-3" / f"{2:020}.seg"
    whole = file.read_bytes()
    at = offset_of(whole, 2, 2)
    file.write_bytes(damaged(whole, at + 36))
    (file.parent / "queue.json").touch()
    told: list[FileProblem] = []
    verify(DataFiles(data.path), told.append)
    assert [(problem.kind, problem.file, problem.offset) for problem in told] == [
        (FileKind.DAMAGE, str(file.parent / "queue.json"), None),
        (FileKind.DAMAGE, str(file), at),
    ]
