"""A shard that is led: what is dropped elsewhere, and what becomes of its logs when the term ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.log_machine import TIME_MS, message, read_on
from tests.support.shard_machine import ShardMachine, close_all
from warren.storage.copying import read_marks
from warren.storage.format import ACKED, HEADER_BYTES, encode_mark
from warren.storage.led_shard import LedShard
from warren.storage.replica import Replica
from warren.storage.replication import Drop, LogChange, LogId, Marks, NamedOffset, Records, SegmentState

QUEUE = LogId(129)
OTHER = LogId(130)
STREAM = LogId(257)
NAME = f"{1:020}"


class Copied:
    """Two machines with the same copies, which a third one has sent them in epoch 1."""

    def __init__(self, path: Path) -> None:
        self.first = ShardMachine(path / "first")
        self.machine, self.follower = ShardMachine(path / "a"), ShardMachine(path / "b")
        for machine in self.all:
            machine.streams.add(STREAM.queue)
        self.led = self.first.lead(1)
        self.sent: list[LogChange] = []
        self.told: list[str] = []  # paths of damaged segments
        self.machine.store.problems.on_damage = self.told.append

    @property
    def all(self) -> tuple[ShardMachine, ShardMachine, ShardMachine]:
        return self.first, self.machine, self.follower

    def append(self, log: LogId, *bodies: bytes) -> None:
        opened, position = self.led.open_log(log)
        for body in bodies:
            position += 1
            opened.append(message(body), position, False)

    def append_to_stream(self, *bodies: bytes) -> None:
        stream, position = self.led.open_stream(STREAM.queue)
        for body in bodies:
            position += 1
            stream.append(message(body), position, TIME_MS + position)
        stream.note_offset("billing", 1)

    def send(self, *more: LogChange) -> None:
        self.sent = [*self.first.take(), *more]
        for machine in (self.machine, self.follower):
            machine.apply(self.sent)
            machine.settle()

    def lead(self) -> LedShard:
        """Both knew the segments when the machine begins to lead."""
        return self.machine.lead(2)

    def file(self, log: LogId, suffix: str) -> Path:
        return self.machine.shard_directory / str(log.queue) / (NAME + suffix)

    def dropped(self) -> list[LogChange]:
        return [change for change in self.machine.take() if isinstance(change, Drop)]


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Copied]:
    made = Copied(tmp_path)
    yield made
    close_all(*made.all)


def test_marks_are_read_while_their_file_is_being_made(copied: Copied) -> None:
    """A thread may look into an ack file that has no header yet."""
    log, position = copied.led.open_log(QUEUE)
    log.append(message(b"one"), position + 1, False)
    log.acked(position + 1)
    source = copied.led.marks(QUEUE, 1)
    assert source is not None
    copied.first.settle()
    Path(source.path + ".acks").write_bytes(b"")
    assert read_marks(source).data == encode_mark(1, 0, 1, ACKED)


def acked(log: LogId, count: int) -> Marks:
    return Marks(log, 1, 1, encode_mark(1, 0, count, ACKED))


def read_back(led: LedShard, *logs: LogId, streams: frozenset[int] = frozenset()) -> None:
    led.are_recovered(led.recovery({log.queue for log in logs}, streams)())


def test_one_log_is_read_back_without_a_look_at_all_the_others(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied.append(QUEUE, b"one")
    copied.send()
    led = copied.lead()
    looked: list[str] = []
    scandir = os.scandir

    def noting(path: str) -> Iterator[os.DirEntry[str]]:
        looked.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noting)
    log, _ = led.open_log(QUEUE)
    assert [found.body for _, found in read_on(log)] == [b"one"]
    assert str(copied.machine.shard_directory) not in looked


# --- a term ends ---


def test_a_log_that_was_read_back_is_opened_when_the_term_ends(copied: Copied) -> None:
    copied.append(QUEUE, b"one", b"two")
    copied.append_to_stream(b"three")
    copied.send()
    led = copied.lead()
    read_back(led, QUEUE, STREAM, streams=frozenset({STREAM.queue}))
    assert not led.opened
    before = led.inventory()
    copies = copied.machine.follow()
    assert set(led.opened) == {QUEUE, STREAM}
    assert copies.inventory() == before
    assert copies.logs[STREAM].offsets() == [NamedOffset(STREAM, "billing", 1)]


def test_a_log_that_no_recovery_has_read_stays_as_it_is(copied: Copied) -> None:
    copied.append(QUEUE, b"one")
    copied.append(OTHER, b"two")
    copied.send()
    led = copied.lead()
    read_back(led, QUEUE)
    untouched = led.replica.logs[OTHER]
    copies = copied.machine.follow()
    assert set(led.opened) == {QUEUE}
    assert copies.logs[OTHER] is untouched


def test_logs_are_let_go_of_one_after_the_other(copied: Copied) -> None:
    """There may be very many, and everything else on the node would have to wait."""
    logs = [LogId(number) for number in range(1, 11)]
    for log in logs:
        copied.append(log, b"body")
    copied.send()
    led = copied.lead()
    read_back(led, *logs)
    before = led.inventory()
    led.open_log(logs[0])
    work: list[tuple[Iterator[int], Callable[[], None]]] = []
    copied.machine.shards.spread = lambda steps, then: work.append((steps, then))
    following: list[Replica] = []
    copied.machine.shards.follow_again(led, following.append)
    copies = dict(led.replica.logs)

    def take_steps(count: Callable[[], int]) -> None:
        """Each step is of one log."""
        [(steps, then)] = work
        work.clear()
        for cost in steps:
            assert cost > 0
            counts.append(count())
        then()
        copied.machine.settle()

    counts: list[int] = []
    take_steps(lambda: len(led.opened) + len(led.ended))
    assert counts == [*range(2, 11), *range(11, 21)], "nine are opened, and all end"
    counts.clear()
    take_steps(lambda: sum(led.replica.logs[log] is not copies[log] for log in logs))
    assert counts == list(range(1, 11))
    assert [replica.inventory() for replica in following] == [before]


def test_a_copy_that_was_read_back_takes_marks_behind_those_of_the_recovery(copied: Copied) -> None:
    """The recovery marks all as delivered, so the ack file is longer than the copy knew."""
    copied.append(QUEUE, b"one", b"two")
    copied.send()
    read_back(copied.lead(), QUEUE)
    copied.machine.follow()
    copied.machine.apply([acked(QUEUE, 1)])
    copied.machine.settle()
    marks = encode_mark(1, 0, 1, ACKED) + encode_mark(1, 1, 1, 1)
    assert copied.machine.marks() == {f"129/{NAME}.seg": marks}
    log, _ = copied.machine.lead(3).open_log(QUEUE)
    assert [found.body for _, found in read_on(log)] == [b"two"]


def cannot_be_read(copied: Copied, log: LogId) -> None:
    """All of the log is acked, so a recovery deletes its files, and fails to."""
    copied.file(log, ".due").mkdir()


def test_a_log_that_cannot_be_opened_is_told_as_damaged_and_the_shard_is_let_go_of(copied: Copied) -> None:
    copied.append(QUEUE, b"one")
    copied.append(OTHER, b"two")
    copied.send(acked(QUEUE, 1))
    led = copied.lead()
    cannot_be_read(copied, QUEUE)
    read = led.recovery({QUEUE.queue, OTHER.queue}, set())
    with pytest.raises(IsADirectoryError):
        read()
    led.are_recovered(None)
    (length,) = [
        len(change.data) for change in copied.sent if isinstance(change, Records) and change.log == QUEUE
    ]
    copies = copied.machine.follow()
    assert set(led.opened) == {OTHER}, "one log must not keep the others from being opened"
    assert copies.inventory()[QUEUE] == [SegmentState(1, 1, length, damaged=True)]
    assert not copies.inventory()[OTHER][0].damaged
    assert copied.told == [str(copied.file(QUEUE, ""))]
    assert ("a log cannot be opened", str(QUEUE)) in [
        (event, fields.get("log")) for event, fields in copied.machine.notes.lines
    ]


# --- what is dropped elsewhere ---


def test_a_segment_whose_files_a_recovery_has_removed_is_dropped_elsewhere(copied: Copied) -> None:
    copied.append(QUEUE, b"one", b"two")
    copied.send(acked(QUEUE, 2))
    led = copied.lead()
    led.open_log(QUEUE)
    assert not copied.file(QUEUE, ".seg").exists()
    changes = copied.machine.take()
    assert changes == [Drop(QUEUE, 1, 1)]
    copied.follower.apply(changes)
    copied.follower.settle()
    assert copied.follower.segments() == {}
    assert copied.told == []


def test_a_segment_that_is_empty_but_has_an_index_is_not_dropped_elsewhere(copied: Copied) -> None:
    """Its file is there, though nothing of it could be read."""
    copied.append(QUEUE, *[bytes(100)] * 10)
    copied.send()
    led = copied.lead()
    copied.file(QUEUE, ".seg").write_bytes(b"")
    log, _ = led.open_log(QUEUE)
    assert "segment is empty" in copied.machine.told
    assert 1 not in [segment.base for segment in log.segments]
    assert copied.dropped() == []


def test_a_segment_without_a_sound_record_is_not_dropped_elsewhere(copied: Copied) -> None:
    """Its file is gone, since its bytes are set aside; recovery has noted that it could not read them."""
    copied.append(QUEUE, b"one")
    copied.send()
    led = copied.lead()
    file = copied.file(QUEUE, ".seg")
    data = file.read_bytes()
    file.write_bytes(data[:HEADER_BYTES] + b"?" * (len(data) - HEADER_BYTES))
    led.open_log(QUEUE)
    assert not file.exists()
    assert copied.dropped() == []
    assert set(copied.told) == {str(file.with_suffix(""))}
