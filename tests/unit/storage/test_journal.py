"""The journal: rounds become safe by one record in it, and come back from it after a power cut."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from tests.support.faulty_disk import FaultyFiles
from tests.support.log_machine import LogMachine, message, read_on
from tests.support.waiting import until_readable
from warren.storage import journal as module
from warren.storage.directory import DirectoryError
from warren.storage.disk import WRITE_SAFELY, Buffer, Disk, Operation
from warren.storage.format import checksum_by_table
from warren.storage.journal import NAMES, Journal, bad_records_in, records_in
from warren.storage.journal_record import put_head, read_record
from warren.storage.queue_log import QueueLog
from warren.storage.segment import Segment

FILE_BYTES = 4_000
BODY = b"b" * 500  # seven rounds fill a file


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LogMachine]:
    machine = LogMachine(tmp_path, segment_bytes=100_000, journal_file_bytes=FILE_BYTES)
    yield machine
    machine.close()


class Publisher:
    """Appends messages, each in a round of its own."""

    def __init__(self, machine: LogMachine) -> None:
        self.machine = machine
        self.log: QueueLog = machine.open()
        self.position = 0
        self.bodies: list[bytes] = []

    def publish(self, body: bytes = BODY) -> list[str]:
        """What the disk was asked to do for one."""
        before = len(self.machine.faults.done)
        self.position += 1
        self.bodies.append(b"%d " % self.position + body)
        self.log.append(message(self.bodies[-1]), self.position, taken=False)
        while self.machine.finish_round():
            pass
        return self.machine.faults.done[before:]

    def begin(self) -> None:
        """The first round makes the segment's file, and asks for the journal, which the second one finds."""
        self.publish()
        self.publish()
        self.machine.housekeeping.run()


@pytest.fixture
def publisher(machine: LogMachine) -> Publisher:
    publisher = Publisher(machine)
    publisher.begin()
    return publisher


def bodies_after_start(machine: LogMachine) -> list[bytes]:
    machine.start()
    return [found.body for _, found in read_on(machine.open())]


def is_journaled(done: list[str]) -> bool:
    return [step.rpartition(" ")[0] for step in done] == ["write", "write safely"]


def test_a_round_is_safe_by_its_record_alone(machine: LogMachine, publisher: Publisher) -> None:
    assert is_journaled(publisher.publish())
    assert is_journaled(publisher.publish())
    machine.lose_all_unsynced()
    assert bodies_after_start(machine) == publisher.bodies
    assert "segments have what the journal has" in machine.told
    assert not any(Path(machine.store.journal.path).iterdir())
    machine.lose_all_unsynced()
    assert bodies_after_start(machine) == publisher.bodies, "by now it is safe in the segment"


def test_a_file_that_is_new_is_synced_itself(machine: LogMachine) -> None:
    publisher = Publisher(machine)
    kinds = [step.rpartition(" ")[0] for step in publisher.publish()]
    assert kinds == ["make directory", "write", "create", "write", "sync", "sync names", "sync names"]


def test_a_full_file_gives_way_to_the_other_and_is_synced_in_the_background(
    machine: LogMachine, publisher: Publisher
) -> None:
    journal = machine.store.journal
    salt = journal.salt
    while journal.used == 0:
        assert is_journaled(publisher.publish())
    assert journal.free == [False, False]
    assert journal.salt != salt, "what the file had before is not taken for a part of what it has now"
    machine.housekeeping.run()
    assert journal.free == [True, False]
    while journal.used == 1:
        assert is_journaled(publisher.publish())
    machine.lose_all_unsynced()
    assert bodies_after_start(machine) == publisher.bodies


def test_while_both_files_wait_for_their_sync_rounds_are_synced_otherwise(
    machine: LogMachine, publisher: Publisher
) -> None:
    rounds = [publisher.publish() for _ in range(20)]
    assert sum(map(is_journaled, rounds)) == 12
    assert [step.rpartition(" ")[0] for step in rounds[-1]] == ["write", "sync"]
    machine.housekeeping.run()
    assert is_journaled(publisher.publish())
    machine.lose_all_unsynced()
    assert bodies_after_start(machine) == publisher.bodies


@pytest.mark.parametrize("fails", ["write", "write safely", "sync all"])
def test_what_a_failed_sync_may_have_lost_is_written_again(
    machine: LogMachine, publisher: Publisher, fails: str
) -> None:
    """The kernel forgets pages whose sync has failed, and the next sync says that all is well."""
    journal, faults = machine.store.journal, machine.faults
    while journal.used == 0:
        publisher.publish()
    if fails == "sync all":
        faults.fail(at=len(faults.done) + 1, error=errno.EIO)
        machine.housekeeping.run()
    else:
        publisher.publish()  # from now on, the first page of the segment is not written any more
        publisher.publish()
        machine.platter.failed_sync_all()
        faults.fail(at=len(faults.done) + (fails == "write safely"), error=errno.EIO)
        publisher.publish()
        machine.world.advance(1)
        while machine.finish_round():
            machine.world.advance(1)
    assert faults.failed == 1
    for _ in range(3):
        machine.housekeeping.try_again()
        machine.housekeeping.run()
    assert journal.free[0]
    while journal.used == 1:
        publisher.publish()  # and what was in the first file is overwritten
    machine.lose_all_unsynced()
    assert bodies_after_start(machine) == publisher.bodies


def test_a_round_that_fails_during_the_background_sync_has_it_done_again(
    machine: LogMachine, publisher: Publisher
) -> None:
    journal = machine.store.journal
    while journal.used == 0:
        publisher.publish()
    syncs = 0

    def sync(directory: int) -> None:
        nonlocal syncs
        syncs += 1
        machine.platter.sync_all()
        if syncs == 1:
            journal.distrust()

    with patch.object(machine.files, "sync_file_system", sync):
        machine.housekeeping.run()
    assert syncs == 2
    assert journal.free[0]


def test_a_segment_that_is_deleted_does_not_come_back(machine: LogMachine, publisher: Publisher) -> None:
    publisher.publish()
    file = next(machine.directory.glob("*.seg"))
    machine.kill(Random(1))
    file.unlink()
    assert bodies_after_start(machine) == []
    assert not file.exists()


def test_a_body_that_looks_like_a_record_is_none(machine: LogMachine, publisher: Publisher) -> None:
    """Where the last record ends may be anything that an earlier use of the file has left there."""
    fake = record_of(machine.data, f"queues/1/{'1'.zfill(20)}", b"")
    body = fake * 12
    journal = machine.store.journal
    while journal.used == 0:
        publisher.publish(body)
    machine.housekeeping.run()
    while journal.used == 1:
        publisher.publish()
    left = Path(journal.path, "1").read_bytes()
    assert read_record(left, left.index(fake)) is not None, "it would pass by itself"
    assert [at for at, _ in records_in(left)] == [0]


def test_a_damaged_record_is_told_and_those_behind_it_are_read(
    machine: LogMachine, publisher: Publisher
) -> None:
    for _ in range(3):
        publisher.publish()
    file = Path(machine.store.journal.path, "1")
    machine.kill(Random(1))
    data = bytearray(file.read_bytes())
    second = list(records_in(bytes(data)))[1][0]
    data[second + 200] ^= 1
    file.write_bytes(data)
    assert bodies_after_start(machine) == publisher.bodies, "the segment has it all"
    assert machine.told.count("bad record in the journal") == 1
    assert [at for at, parts in records_in(bytes(data)) if parts is None] == [second]


def test_a_record_whose_writing_did_not_finish_is_not_told(machine: LogMachine, publisher: Publisher) -> None:
    for _ in range(3):
        publisher.publish()
    file = Path(machine.store.journal.path, "1")
    machine.kill(Random(1))
    data = bytearray(file.read_bytes())
    last = list(records_in(bytes(data)))[-1][0]
    data[last + 200] ^= 1
    file.write_bytes(data)
    assert bodies_after_start(machine) == publisher.bodies
    assert "bad record in the journal" not in machine.told


def test_a_disk_without_room_for_what_the_journal_has_keeps_the_broker_from_starting(
    machine: LogMachine, publisher: Publisher
) -> None:
    publisher.publish()
    machine.lose_all_unsynced()
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        patch.object(FaultyFiles, "write_pieces", side_effect=full),
        pytest.raises(DirectoryError, match=r"cannot write .* what .*journal/1 has: .*No space left"),
    ):
        machine.start()
    machine.store.directory.close(well=False)
    assert bodies_after_start(machine) == publisher.bodies


def test_a_journal_of_a_later_version_is_not_passed_over(machine: LogMachine, publisher: Publisher) -> None:
    publisher.publish()
    file = Path(machine.store.journal.path, "1")
    machine.kill(Random(1))
    file.write_bytes(b"WRJ2" + file.read_bytes()[4:])
    with pytest.raises(DirectoryError, match=r"journal/1 is of an unknown version"):
        machine.start()


def test_a_record_can_be_read_by_its_description_alone(machine: LogMachine, publisher: Publisher) -> None:
    publisher.publish()
    data = Path(machine.store.journal.path, "1").read_bytes()
    magic, crc, _, size, count = struct.unpack_from("<4sIQII", data)
    assert (magic, count, crc) == (b"WRJ1", 1, checksum_by_table(data[8:size]))
    offset, part_size, path_size = struct.unpack_from("<QIH", data, 24)
    path = data[38 : 38 + path_size].decode()
    part = data[38 + path_size : size]
    assert len(part) == part_size
    assert (machine.data / f"{path}.seg").read_bytes()[offset : offset + part_size] == part


def test_a_round_that_is_large_is_written_once(machine: LogMachine, publisher: Publisher) -> None:
    machine.store.journal.round_bytes_max = 1_000
    assert is_journaled(publisher.publish())
    assert not is_journaled(publisher.publish(b"b" * 1_000))


def test_a_round_that_is_written_twice_may_be_larger_in_a_cluster(
    machine: LogMachine, publisher: Publisher
) -> None:
    machine.store.journal.round_bytes_max = 1_000
    publisher.publish()
    assert not is_journaled(publisher.publish(b"b" * 1_000))
    machine.store.open_shards(
        call_from_thread=lambda _: None, is_stream=lambda _: None, spread=lambda _steps, _then: None
    )
    assert is_journaled(publisher.publish(b"b" * 1_000))


def test_a_broker_that_ends_well_leaves_no_journal(machine: LogMachine, publisher: Publisher) -> None:
    publisher.publish()
    directory = Path(machine.store.journal.path)
    assert sorted(path.name for path in directory.iterdir()) == list(NAMES)
    machine.stop()
    assert not any(directory.iterdir())
    machine.lose_all_unsynced()
    assert bodies_after_start(machine) == publisher.bodies
    assert "segments have what the journal has" not in machine.told


def test_a_disk_that_has_little_room_has_no_journal(machine: LogMachine) -> None:
    with patch.object(module, "FREE_SHARE_MAX", 2**60):
        publisher = Publisher(machine)
        publisher.begin()
        assert not is_journaled(publisher.publish())
    assert "cannot make the journal" in machine.told
    for _ in range(3):
        machine.housekeeping.try_again()
        machine.housekeeping.run()
    assert is_journaled(publisher.publish()), "when there is room, it is made"


def record_of(root: Path, name: str, data: bytes) -> bytes:
    """A record with one part."""
    segment = Segment(f"{root}/{name}", 1)
    segment.flying = Buffer()
    head = Buffer()
    put_head(head, 7, [segment], len(f"{root}/"))
    return Operation(WRITE_SAFELY, data=head, parts=[segment.flying]).tobytes() + data


def test_without_syncs_there_is_no_journal(machine: LogMachine, publisher: Publisher) -> None:
    journal = Journal(machine.data, machine.files, machine.housekeeping, FILE_BYTES, sync=False)
    assert journal.record(publisher.log.segments) is None
    assert machine.housekeeping.waiting == []


def test_a_path_that_leads_elsewhere_is_not_written(machine: LogMachine) -> None:
    directory = machine.data / "journal"
    directory.mkdir(exist_ok=True)
    (directory / "1").write_bytes(record_of(machine.data, "../elsewhere", b""))
    with patch.object(machine.files, "write_pieces") as written:
        assert machine.store.journal.recover(machine.notes.warning) == 1
    assert not written.called


@pytest.mark.parametrize("count", [1, 3, 3_000])
def test_records_are_written_as_they_are_read(tmp_path: Path, count: int) -> None:
    """More parts than the system takes at once are written one by one."""
    segments = [Segment(f"{tmp_path}/queues/{number}/{'1'.zfill(20)}", 1) for number in range(count)]
    parts = []
    for number, segment in enumerate(segments):
        segment.flying = Buffer()
        put_head(segment.flying, number, [], 0)  # any bytes would do
        parts.append(segment.flying)
    head = Buffer()
    size = put_head(head, 7, segments, len(f"{tmp_path}/"))
    written = written_by_disk(tmp_path / "file", head, parts, at=10)
    assert len(written) == 10 + size
    assert read_record(written, 10) == (
        7,
        size,
        [(f"queues/{number}/{'1'.zfill(20)}", 0, parts[number].tobytes()) for number in range(count)],
    )


def written_by_disk(path: Path, head: Buffer, parts: list[Buffer], at: int) -> bytes:
    disk = Disk()
    disk.start()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        disk.submit([Operation(WRITE_SAFELY, file=file, data=head, offset=at, parts=parts)])
        until_readable(disk.done)
        assert disk.result() is None
    finally:
        os.close(file)
        disk.stop()
    return path.read_bytes()


def test_the_golden_journal_is_read_as_it_was_written(machine: LogMachine) -> None:
    golden = Path(__file__).parents[2] / "golden" / "journal-1"
    path = f"queues/7/priority-3/{'123'.zfill(20)}"
    assert list(records_in(golden.read_bytes())) == [
        (0, [(path, 64, b"first of one"), ("queues/8/" + "1".zfill(20), 0, b"")]),
        (133, None),
        (214, [(path, 76, b"second")]),
    ]
    assert bad_records_in(golden.read_bytes()) == [133]
