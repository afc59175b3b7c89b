"""Copies of a shard's logs: what a leader hands out makes the same files on a follower."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.log_machine import TIME_MS, message, read_on
from tests.support.shard_machine import SHARD, ShardMachine, close_all, resync
from warren.cluster.safety import ShardSafety
from warren.storage import diverged
from warren.storage.copying import DamagedSegment, read_records, source_of
from warren.storage.data_files import DataFiles, FileKind, FileProblem
from warren.storage.format import (
    ACKED,
    HEADER_BYTES,
    MARK_BYTES,
    encode_mark,
    encode_record,
    encode_segment_header,
)
from warren.storage.log_listing import LogListing, describe
from warren.storage.queue_log import QueueLog
from warren.storage.replica import Replica
from warren.storage.replication import (
    AllMarks,
    Drop,
    LogId,
    Marks,
    NamedOffset,
    Records,
    RemoveLog,
    SegmentState,
    SetAside,
    Truncate,
)
from warren.storage.segment_copies import ReplicaMismatch
from warren.storage.stream_log import SegmentedStream
from warren.storage.verify import verify

QUEUE = LogId(129)
PART = LogId(129, "priority-3")
STREAM = LogId(257)


class Pair:
    """A leader in epoch 1, and a follower."""

    def __init__(self, path: Path, **settings: int) -> None:
        self.leader = ShardMachine(path / "a", **settings)
        self.follower = ShardMachine(path / "b", **settings)
        self.led = self.leader.lead(1)
        self.log, _ = self.led.open_log(QUEUE)
        self.position = 0

    def append(self, *bodies: bytes, log: QueueLog | None = None) -> None:
        for body in bodies:
            self.position += 1
            (log or self.log).append(message(body), self.position, False)

    def send(self) -> list[bool]:
        """The end of the leader's turn."""
        return self.follower.apply(self.leader.take())

    def settle(self) -> None:
        self.leader.settle()
        self.follower.settle()

    def check_same(self) -> None:
        self.settle()
        assert self.follower.segments() == self.leader.segments()
        assert self.follower.marks() == self.leader.marks()
        assert not self.follower.mismatches

    def turn_round(self, epoch: int) -> None:
        """The follower leads from now on."""
        self.leader, self.follower = self.follower, self.leader
        self.follower.follow()
        self.led = self.leader.lead(epoch)
        self.log, self.position = self.led.open_log(QUEUE)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    close_all(made.leader, made.follower)


def records(pair: Pair) -> Records:
    """What the follower got last: two records that begin a segment."""
    pair.append(b"one", b"two")
    (found,) = pair.leader.take()
    assert isinstance(found, Records)
    return found


# --- while it is in step ---


def test_leader_hands_out_bytes_before_any_round_has_written_them(pair: Pair) -> None:
    first = records(pair)
    assert (first.base, first.epoch, first.offset, first.last, first.count) == (1, 1, 0, 2, 2)
    pair.append(b"three")
    (second,) = pair.leader.take()
    assert isinstance(second, Records)
    assert (second.offset, second.last, second.count) == (len(first.data), 3, 1)
    assert pair.leader.take() == []
    pair.leader.settle()
    assert pair.leader.segments() == {f"129/{1:020}.seg": first.data + second.data}


def test_bytes_of_a_round_that_ended_within_the_turn_are_handed_out(pair: Pair) -> None:
    pair.append(b"one")
    pair.leader.settle()
    pair.append(b"two")
    (found,) = pair.leader.take()
    assert isinstance(found, Records)
    assert (found.offset, found.last, found.count) == (0, 2, 2)
    pair.follower.apply([found])
    pair.check_same()


def test_batch_is_safe_when_a_round_has_synced_it_and_not_before(pair: Pair) -> None:
    pair.append(b"one")
    safe = pair.send()
    pair.follower.world.run()
    assert pair.follower.disk.is_busy
    assert safe == []
    pair.follower.settle()
    assert safe == [True]
    assert pair.follower.platter.least()["shards"]


def test_segments_marks_and_drops_are_the_same_on_both(pair: Pair) -> None:
    for number in range(40):
        pair.append(bytes(50 + number))
        if number % 7 == 0:
            pair.send()
    pair.send()
    got = read_on(pair.log, 20)
    for position, _ in got:
        pair.log.delivered(position, 1)
    pair.send()
    for position, _ in got[:13]:
        pair.log.acked(position)
    changes = pair.leader.take()
    assert {type(change) for change in changes} == {Marks, Drop}
    pair.follower.apply(changes)
    pair.check_same()
    assert len(pair.follower.segments()) > 2


def test_parts_are_copied_into_directories_of_their_own(pair: Pair) -> None:
    part, _ = pair.led.open_log(PART)
    pair.append(b"one")
    pair.append(b"two", log=part)
    pair.send()
    pair.check_same()
    assert sorted(pair.follower.segments()) == [f"129/{1:020}.seg", f"129/priority-3/{2:020}.seg"]


def test_large_body_is_copied_with_its_checksum(tmp_path: Path) -> None:
    pair = Pair(tmp_path, segment_bytes=100_000)
    pair.append(b"small", bytes(1024 * 1024 + 5), b"next")
    pair.send()
    pair.check_same()
    assert len(pair.follower.segments()) == 2
    close_all(pair.leader, pair.follower)


def test_closed_segments_of_a_copy_get_their_index(pair: Pair) -> None:
    pair.append(*[bytes(100)] * 20)
    pair.send()
    pair.check_same()
    directory = pair.follower.shard_directory / "129"
    indexed = {file.stem for file in directory.glob("*.idx")}
    assert indexed == {file.stem for file in sorted(directory.glob("*.seg"))[:-1]}
    for name in indexed:
        of_leader = pair.leader.shard_directory / "129" / f"{name}.idx"
        assert (directory / f"{name}.idx").read_bytes() == of_leader.read_bytes()


def test_stream_is_copied_with_its_chunks_and_named_offsets(pair: Pair) -> None:
    pair.leader.streams.add(STREAM.queue)
    pair.follower.streams.add(STREAM.queue)
    stream, _ = pair.led.open_stream(STREAM.queue)
    for position in range(1, 21):
        stream.append(message(bytes(100)), position, TIME_MS + position)
    stream.note_offset("billing", 7)
    stream.note_offset("audit", 3)
    stream.note_offset("audit", None)
    pair.send()
    pair.check_same()
    directory, original = (machine.shard_directory / "257" for machine in (pair.follower, pair.leader))
    chunks = [file.name for file in sorted(directory.glob("*.chunks"))]
    assert chunks
    for name in chunks:
        assert (directory / name).read_bytes() == (original / name).read_bytes()
    stream.retain(None, 10, None)
    pair.send()
    pair.check_same()
    pair.leader, pair.follower = pair.follower, pair.leader
    pair.follower.follow()
    stream, position = pair.leader.lead(2).open_stream(STREAM.queue)
    assert (position, stream.offsets) == (20, {"billing": 7})


def led_stream(pair: Pair) -> tuple[SegmentedStream, ShardSafety]:
    """A replicated stream with two messages, the first of which all members have."""
    pair.leader.streams.add(STREAM.queue)
    pair.follower.streams.add(STREAM.queue)
    stream, _ = pair.led.open_stream(STREAM.queue)
    safety = ShardSafety()
    stream.hold_back(safety)
    stream.append(message(b"one"), 1, TIME_MS)
    safety.appended(1)
    stream.append(message(b"two"), 2, TIME_MS)
    safety.appended(2)
    pair.leader.settle()
    safety.commit(1)
    return stream, safety


def test_stream_is_read_up_to_what_all_members_have(pair: Pair) -> None:
    stream, safety = led_stream(pair)
    told: list[int] = []
    stream.when_more_is_safe(lambda: told.append(stream.safe_position()))
    reader = stream.reader(1, None)
    assert reader.ready() == 3
    assert reader.take().body == b"one"
    assert reader.ready() == -1, "the second one is synced here, and that is not enough"
    assert (stream.safe_position(), stream.all_is_safe()) == (1, False)
    safety.commit(2)
    assert told == [2]
    assert reader.ready() == 3
    assert reader.take().body == b"two"
    assert stream.all_is_safe()


def test_bytes_of_a_stream_that_others_may_read_are_those_that_all_members_have(pair: Pair) -> None:
    stream, safety = led_stream(pair)
    [segment] = stream.segments
    [listed] = describe(LogListing().take(stream, stream.segments))
    assert (listed.ends.size, listed.ends.last) == (stream.safe_bytes(segment), 1)
    assert stream.safe_bytes(segment) < segment.written
    safety.commit(2)
    [listed] = describe(LogListing().take(stream, stream.segments))
    assert (listed.ends.size, listed.ends.last) == (segment.written, 2)


def test_stream_keeps_its_last_segment_until_all_members_have_something_behind_it(pair: Pair) -> None:
    """Else a leader that begins with neither would give the same offsets again."""
    stream, safety = led_stream(pair)
    safety.commit(2)
    stream.roll(3, TIME_MS)
    stream.append(message(b"three"), 3, TIME_MS)
    safety.appended(3)
    pair.leader.settle()
    stream.retain(None, 1, None)
    assert stream.first_position() == 1
    safety.commit(3)
    stream.retain(None, 1, None)
    assert stream.first_position() == 3
    pair.send()
    pair.check_same()


def test_stream_that_is_opened_again_has_all_that_its_shard_has(pair: Pair) -> None:
    led_stream(pair)
    pair.send()
    pair.settle()
    pair.leader, pair.follower = pair.follower, pair.leader
    pair.follower.follow()
    stream, position = pair.leader.lead(2).open_stream(STREAM.queue)
    stream.hold_back(ShardSafety())
    assert (position, stream.safe_position(), stream.all_is_safe()) == (2, 2, True)
    [segment] = stream.segments
    assert stream.safe_bytes(segment) == segment.written


def test_deleted_queue_goes_with_its_parts(pair: Pair) -> None:
    part, _ = pair.led.open_log(PART)
    pair.append(b"one")
    pair.append(b"two", log=part)
    pair.send()
    pair.settle()
    pair.log.delete()
    changes = pair.leader.take()
    assert changes == [RemoveLog(PART), RemoveLog(QUEUE)] or changes == [RemoveLog(QUEUE), RemoveLog(PART)]
    pair.follower.apply(changes)
    pair.check_same()
    assert pair.follower.segments() == {}
    assert not list(pair.follower.shard_directory.iterdir())
    with pytest.raises(ReplicaMismatch, match="deleted"):
        pair.follower.apply([Records(QUEUE, 1, 1, 0, 1, 1, b"")])


def test_queue_that_is_deleted_while_its_part_was_never_opened_goes_as_a_whole(pair: Pair) -> None:
    part, _ = pair.led.open_log(PART)
    pair.append(b"one")
    pair.append(b"two", log=part)
    pair.send()
    pair.settle()
    pair.turn_round(2)
    resync(pair.leader, pair.follower)
    pair.settle()
    pair.log.delete()
    assert pair.led.inventory() == {}
    pair.send()
    pair.check_same()
    assert pair.leader.follow().inventory() == {}
    assert not list(pair.follower.shard_directory.iterdir())


def test_part_that_is_led_again_is_deleted_with_its_queue(pair: Pair) -> None:
    for epoch in (2, 3):
        part, position = pair.led.open_log(PART)
        part.append(message(b"of a part"), position + 1, False)
        pair.append(b"one")
        pair.send()
        pair.settle()
        pair.turn_round(epoch)
        resync(pair.leader, pair.follower)
        pair.settle()
    part, position = pair.led.open_log(PART)
    part.append(message(b"last"), position + 1, False)
    pair.log.delete()
    pair.send()
    pair.check_same()
    assert not pair.leader.store.is_failing
    assert pair.follower.segments() == {}


def test_what_is_appended_while_a_segment_is_read_for_a_follower_is_not_read(pair: Pair) -> None:
    """The follower gets it as a change: it must not come twice."""
    pair.append(b"one")
    pair.leader.take()
    (segment,) = pair.log.segments
    planned = segment.end
    pair.append(b"two")
    found = pair.led.unwritten(QUEUE, 1, 0, planned)
    assert found is not None
    assert (len(found.data), found.last, found.count) == (planned, 1, 1)
    assert pair.led.unwritten(QUEUE, 1, planned, planned) is None
    pair.leader.settle()
    read = read_records(source_of(QUEUE, segment, planned), 0)
    assert read is not None
    assert (len(read.data), read.last, read.count) == (planned, 1, 1)


def test_marks_alone_may_wait(pair: Pair) -> None:
    pair.append(b"one")
    assert not pair.led.has_only_marks()
    pair.leader.take()
    pair.log.acked(1)
    pair.leader.settle()
    assert pair.led.changed
    assert pair.led.has_only_marks()
    pair.append(b"two")
    assert not pair.led.has_only_marks()


# --- what does not fit is refused, and changes nothing ---


def refuse(pair: Pair, change: object, reason: str) -> None:
    assert pair.follower.replica is not None
    before = pair.follower.replica.inventory()
    with pytest.raises(ReplicaMismatch, match=reason):
        pair.follower.apply([change])  # type: ignore[list-item]
    assert pair.follower.replica.inventory() == before


def test_records_that_do_not_fit_are_refused(pair: Pair) -> None:
    first = records(pair)
    pair.append(b"three")
    (second,) = pair.leader.take()
    assert isinstance(second, Records)
    refuse(pair, second, "no segment")
    refuse(pair, first._replace(epoch=2), "epoch")
    refuse(pair, first._replace(base=2), "header|base")
    refuse(pair, first._replace(last=3), "damaged")
    refuse(pair, first._replace(count=1), "damaged")
    damaged = bytearray(first.data)
    damaged[HEADER_BYTES + 40] ^= 1
    refuse(pair, first._replace(data=bytes(damaged)), "damaged")
    refuse(pair, first._replace(data=first.data[:-8]), "damaged")
    pair.follower.apply([first])
    refuse(pair, first, "there already")
    refuse(pair, second._replace(offset=second.offset + 8), "bytes")
    refuse(pair, second._replace(epoch=2), "epoch")
    refuse(pair, second._replace(data=first.data[HEADER_BYTES:], count=2, last=2), "damaged")
    pair.follower.apply([second])
    pair.check_same()


def test_what_came_before_a_refused_change_is_done_before_the_next_batch_is_safe(pair: Pair) -> None:
    first = records(pair)
    pair.append(b"three")
    (rest,) = pair.leader.take()
    pair.follower.apply([first, rest])
    pair.follower.settle()
    with pytest.raises(ReplicaMismatch, match="no segment"):
        pair.follower.apply([Truncate(QUEUE, 1, 1, len(first.data)), Marks(QUEUE, 9, 1, b"")])
    safe = pair.follower.apply([])
    while not safe:
        pair.follower.finish_round()
        pair.follower.housekeeping.run()
    assert pair.follower.segments() == {f"129/{1:020}.seg": first.data}


def test_marks_and_cuts_that_do_not_fit_are_refused(pair: Pair) -> None:
    first = records(pair)
    mark = encode_mark(1, 0, 1, 1)
    refuse(pair, Marks(QUEUE, 1, 1, mark), "no segment")
    pair.follower.apply([first])
    refuse(pair, Marks(QUEUE, 1, 2, mark), "epoch")
    refuse(pair, Marks(QUEUE, 1, 1, encode_mark(2, 0, 1, 1)), "damaged")
    refuse(pair, AllMarks(QUEUE, 1, 1, mark[: MARK_BYTES - 1]), "damaged")
    refuse(pair, Truncate(QUEUE, 1, 1, len(first.data) + 8), "bytes")
    refuse(pair, Truncate(QUEUE, 1, 1, HEADER_BYTES), "bytes")
    refuse(pair, Drop(QUEUE, 1, 2), "epoch")
    refuse(pair, SetAside(QUEUE, 1, 2), "epoch")
    refuse(pair, NamedOffset(LogId(129, "../x"), "name", 1), "part")
    pair.check_same()


# --- cutting and setting aside ---


def test_truncation_takes_records_and_their_marks_and_keeps_what_was_cut(pair: Pair) -> None:
    first = records(pair)
    pair.append(b"three")
    (second,) = pair.leader.take()
    pair.follower.apply([first, second, Marks(QUEUE, 1, 1, encode_mark(1, 0, 3, 1))])
    pair.follower.settle()
    safe = pair.follower.apply([Truncate(QUEUE, 1, 1, len(first.data))])
    assert pair.follower.replica is not None
    assert pair.follower.replica.inventory() == {QUEUE: [SegmentState(1, 1, len(first.data))]}
    pair.follower.settle()
    assert safe == [True]
    name = f"129/{1:020}.seg"
    assert pair.follower.segments() == {name: first.data}
    assert pair.follower.marks() == {name: encode_mark(1, 0, 2, 1)}
    (kept,) = (pair.follower.data / "diverged").rglob("*.seg")
    assert isinstance(second, Records)
    assert kept.read_bytes() == first.data[:HEADER_BYTES] + second.data
    assert "records that the leader does not have are set aside" in pair.follower.told
    pair.follower.apply([second])
    pair.follower.settle()
    assert pair.follower.segments() == {name: first.data + second.data}


def test_truncation_within_a_record_is_told_as_damage(pair: Pair) -> None:
    first = records(pair)
    pair.follower.apply([first])
    pair.follower.settle()
    pair.follower.apply([Truncate(QUEUE, 1, 1, len(first.data) - 8)])
    pair.follower.settle()
    assert len(pair.follower.mismatches) == 1
    assert pair.follower.replica is not None
    (state,) = pair.follower.replica.inventory()[QUEUE]
    assert state.damaged


def test_segment_of_another_epoch_takes_the_place_of_one_that_is_set_aside(pair: Pair) -> None:
    pair.append(b"one")
    pair.send()
    pair.settle()
    old = pair.follower.segments()
    pair.leader.restart()
    pair.led = pair.leader.lead(2)
    pair.log, pair.position = pair.led.open_log(QUEUE)
    for _ in pair.log.purge():
        pass
    pair.log.drop_dead_tail()
    pair.leader.settle()
    pair.leader.restart()
    pair.led = pair.leader.lead(3)
    pair.log, pair.position = pair.led.open_log(QUEUE)
    assert pair.position == 0
    pair.append(b"another")
    safe = resync(pair.leader, pair.follower)
    pair.check_same()
    assert safe == [True]
    assert sorted(pair.follower.segments()) == sorted(old)
    assert pair.follower.segments() != old
    (kept,) = (pair.follower.data / "diverged").rglob("*.seg")
    assert kept.read_bytes() == next(iter(old.values()))


def test_drop_and_records_with_the_same_base_may_come_in_one_batch(pair: Pair) -> None:
    first = records(pair)
    pair.follower.apply([first])
    pair.follower.settle()
    safe = pair.follower.apply([Drop(QUEUE, 1, 1), first])
    pair.follower.settle()
    assert safe == [True]
    assert pair.follower.segments() == {f"129/{1:020}.seg": first.data}


def journaled(pair: Pair) -> tuple[Records, Records]:
    """Records of the follower, and more of the same segment that a round has made safe by the journal, which
    a start writes into the segments again.
    """
    sent = []
    for body in (b"first", b"second", b"third"):
        pair.append(body)
        (some,) = pair.leader.take()
        assert isinstance(some, Records)
        pair.follower.apply([some])
        pair.follower.settle()
        sent.append(some)
    assert any("write safely" in done for done in pair.follower.faults.done)
    return sent[0]._replace(data=sent[0].data + sent[1].data, last=2, count=2), sent[2]


def test_journal_does_not_bring_back_what_was_cut(pair: Pair) -> None:
    left, _ = journaled(pair)
    pair.follower.apply([Truncate(QUEUE, 1, 1, len(left.data))])
    pair.follower.settle()
    pair.follower.lose_all_unsynced()
    pair.follower.start()
    assert pair.follower.segments() == {f"129/{1:020}.seg": left.data}
    assert pair.follower.replica is not None
    assert pair.follower.replica.inventory() == {QUEUE: [SegmentState(1, 1, len(left.data))]}


def test_segment_that_was_cut_and_goes_on_has_all_of_it_after_a_power_cut(pair: Pair) -> None:
    left, more = journaled(pair)
    pair.follower.apply([Truncate(QUEUE, 1, 1, len(left.data))])
    pair.follower.settle()
    safe = pair.follower.apply([more])
    pair.follower.settle()
    assert safe == [True]
    pair.follower.lose_all_unsynced()
    pair.follower.start()
    assert pair.follower.segments() == {f"129/{1:020}.seg": left.data + more.data}


@pytest.mark.parametrize("gone", [SetAside(QUEUE, 1, 1), Drop(QUEUE, 1, 1)])
def test_journal_does_not_lengthen_a_segment_that_came_again(pair: Pair, gone: SetAside | Drop) -> None:
    left, _ = journaled(pair)
    pair.follower.apply([gone, left])
    pair.follower.settle()
    pair.follower.lose_all_unsynced()
    pair.follower.start()
    assert pair.follower.segments() == {f"129/{1:020}.seg": left.data}


def test_journal_does_not_write_into_a_segment_of_another_epoch(pair: Pair) -> None:
    journaled(pair)
    pair.follower.apply([SetAside(QUEUE, 1, 1)])
    others = [encode_record(position, TIME_MS, message(b"other")) for position in (1, 2, 3)]
    other = encode_segment_header(1, 2) + b"".join(others)
    pair.follower.apply([Records(QUEUE, 1, 2, 0, 3, 3, other)])
    pair.follower.settle()
    pair.follower.lose_all_unsynced()
    pair.follower.start()
    assert pair.follower.segments() == {f"129/{1:020}.seg": other}


# --- restarts, and changes of the leader ---


def test_inventory_after_a_restart_is_the_same(pair: Pair) -> None:
    pair.append(*[bytes(100)] * 20)
    pair.send()
    pair.check_same()
    assert pair.follower.replica is not None
    before = pair.follower.replica.inventory()
    pair.follower.restart()
    assert pair.follower.replica.inventory() == before == pair.led.inventory()
    pair.append(*[bytes(100)] * 20)
    pair.send()
    pair.check_same()


def test_torn_tail_is_cut_and_sent_again(pair: Pair) -> None:
    pair.append(b"one")
    pair.send()
    pair.settle()
    pair.append(b"two")
    pair.send()
    pair.follower.kill(Random(4))
    pair.follower.start()
    resync(pair.leader, pair.follower)
    pair.check_same()


def test_bit_flip_in_a_tail_is_told_in_the_inventory(pair: Pair) -> None:
    pair.append(b"one", b"two")
    pair.send()
    pair.check_same()
    pair.follower.kill(Random(1))
    file = pair.follower.shard_directory / "129" / f"{1:020}.seg"
    data = bytearray(file.read_bytes())
    data[HEADER_BYTES + 20] ^= 1
    file.write_bytes(data)
    pair.follower.start()
    assert pair.follower.replica is not None
    assert pair.follower.replica.inventory() == {QUEUE: [SegmentState(1, 1, len(data), damaged=True)]}
    resync(pair.leader, pair.follower)
    pair.check_same()


def test_follower_that_leads_goes_on_in_a_segment_of_its_own_epoch(pair: Pair) -> None:
    pair.append(b"one", b"two")
    pair.send()
    pair.settle()
    pair.turn_round(2)
    assert pair.position == 2
    assert [body.body for _, body in read_on(pair.log)] == [b"one", b"two"]
    assert pair.log.deliveries_of(1) == 1
    pair.append(b"three")
    changes = pair.leader.take()
    assert [(type(change), getattr(change, "base", 0)) for change in changes] == [(Records, 3), (Marks, 1)]
    pair.follower.apply(changes)
    pair.check_same()
    assert [state.epoch for state in pair.led.inventory()[QUEUE]] == [1, 2]


def test_leader_that_has_to_follow_gives_up_what_nobody_else_has(pair: Pair) -> None:
    pair.append(b"one")
    pair.send()
    pair.append(b"never sent")
    pair.log.acked(2)
    pair.leader.settle()
    pair.turn_round(2)
    pair.append(b"another")
    resync(pair.leader, pair.follower)
    pair.check_same()
    assert len(list((pair.follower.data / "diverged").rglob("*.seg"))) == 1
    pair.turn_round(3)
    assert [body.body for _, body in read_on(pair.log)] == [b"one", b"another"]


def test_leader_that_is_asked_to_follow_while_a_round_is_in_flight_writes_it_first(pair: Pair) -> None:
    pair.append(b"one")
    pair.send()
    pair.leader.world.run()
    assert pair.leader.disk.is_busy
    pair.append(b"two")
    pair.send()
    pair.turn_round(2)
    resync(pair.leader, pair.follower)
    pair.check_same()


def test_recovery_that_drops_a_segment_tells_the_copies(pair: Pair) -> None:
    pair.append(*[bytes(200)] * 6)
    pair.send()
    for position in (1, 2, 3):
        pair.log.acked(position)
    pair.send()
    for position in (4, 5, 6):
        pair.log.acked(position)
    pair.send()
    pair.settle()
    pair.turn_round(2)
    pair.send()
    pair.check_same()
    assert pair.led.inventory() == {}


def test_segment_that_a_recovery_removed_may_come_again(pair: Pair) -> None:
    """What is written then must not go into the file of before, which may still be open without a name."""
    first = records(pair)
    pair.follower.apply([first, Marks(QUEUE, 1, 1, encode_mark(1, 0, 2, ACKED))])
    pair.follower.settle()
    led = pair.follower.lead(2)
    led.open_log(QUEUE)
    assert pair.follower.take() == [Drop(QUEUE, 1, 1)]
    pair.follower.follow()
    pair.follower.apply([first, AllMarks(QUEUE, 1, 1, encode_mark(1, 0, 1, 1))])
    pair.follower.settle()
    name = f"129/{1:020}.seg"
    assert pair.follower.segments() == {name: first.data}
    assert pair.follower.marks() == {name: encode_mark(1, 0, 1, 1)}


def test_closed_segment_that_goes_on_after_all_is_indexed_anew(pair: Pair) -> None:
    """The copy was told that a segment is over by a leader that did not have all of it."""
    first = records(pair)
    pair.append(b"three")
    (rest,) = pair.leader.take()
    pair.follower.apply([first])
    other = ShardMachine(pair.leader.data.parent.parent / "c")
    other.apply([first])
    other.settle()
    led = other.lead(2)
    log, position = led.open_log(QUEUE)
    log.append(message(b"other"), position + 1, False)
    pair.follower.apply(other.take())
    pair.follower.settle()
    assert (pair.follower.shard_directory / "129" / f"{1:020}.idx").exists()
    pair.follower.apply([SetAside(QUEUE, 3, 2), rest])
    pair.follower.settle()
    pair.leader.settle()
    assert pair.follower.segments() == pair.leader.segments()
    assert not (pair.follower.shard_directory / "129" / f"{1:020}.idx").exists()
    other.close()


def test_many_logs_are_recovered_in_a_thread_and_opened_at_once(pair: Pair) -> None:
    numbers = range(1_000, 1_020)
    for number in numbers:
        log, _ = pair.led.open_log(LogId(number))
        log.append(message(str(number).encode()), 1, False)
    part, _ = pair.led.open_log(LogId(1_003, "seen"))
    part.append(message(b"seen"), 1, False)
    pair.send()
    pair.settle()
    pair.leader, pair.follower = pair.follower, pair.leader
    pair.follower.follow()
    led = pair.leader.lead(2)
    led.are_recovered(led.recovery(set(numbers), set())())
    for number in numbers:
        log, position = led.open_log(LogId(number))
        assert (position, [found.body for _, found in read_on(log)]) == (1, [str(number).encode()])
    log, _ = led.open_log(LogId(1_003, "seen"))
    assert [found.body for _, found in read_on(log)] == [b"seen"]
    assert all(isinstance(change, Marks) for change in pair.leader.take())


def read_back(machine: ShardMachine, epoch: int) -> None:
    """Lead in an epoch, have the queue's logs read back, and follow again before anybody has opened them."""
    led = machine.lead(epoch)
    led.are_recovered(led.recovery({QUEUE.queue}, set())())
    machine.follow()


def test_copy_knows_what_a_recovery_has_removed_though_its_log_was_never_opened(pair: Pair) -> None:
    first = records(pair)
    pair.follower.apply([first, Marks(QUEUE, 1, 1, encode_mark(1, 0, 2, ACKED))])
    pair.follower.settle()
    read_back(pair.follower, 2)
    assert pair.follower.segments() == {}
    assert pair.follower.follow().inventory() == {}


def test_segment_that_a_recovery_took_for_complete_may_go_on(pair: Pair) -> None:
    """The recovery has written an index of what was there, and a later one would stop where that ends."""
    first = records(pair)
    pair.append(b"three")
    (rest,) = pair.leader.take()
    other = ShardMachine(pair.leader.data.parent.parent / "c")
    other.apply([first])
    other.settle()
    log, position = other.lead(2).open_log(QUEUE)
    log.append(message(b"other"), position + 1, False)
    pair.follower.apply([first])
    pair.follower.apply(other.take())
    pair.follower.settle()
    read_back(pair.follower, 3)
    pair.follower.apply([SetAside(QUEUE, 3, 2), rest])
    pair.settle()
    assert pair.follower.segments() == pair.leader.segments()
    log, position = pair.follower.lead(4).open_log(QUEUE)
    assert [found.body for _, found in read_on(log)] == [b"one", b"two", b"three"]
    other.close()


def test_shard_is_no_copy_while_its_logs_are_read_back(pair: Pair) -> None:
    pair.append(b"one")
    pair.send()
    pair.settle()
    led = pair.follower.lead(2)
    read = led.recovery({QUEUE.queue}, set())
    following: list[Replica] = []
    pair.follower.shards.follow_again(led, following.append)
    pair.follower.settle()
    assert not following
    led.are_recovered(read())
    pair.follower.settle()
    assert [list(copies.inventory()) for copies in following] == [[QUEUE]]
    pair.follower.led, pair.follower.replica = None, following[0]


def test_logs_of_a_queue_that_is_not_there_any_more_go_everywhere(pair: Pair) -> None:
    part, _ = pair.led.open_log(PART)
    pair.append(b"one")
    pair.append(b"two", log=part)
    pair.send()
    pair.settle()
    pair.leader, pair.follower = pair.follower, pair.leader
    pair.follower.follow()
    led = pair.leader.lead(2)
    led.open_log(LogId(1_000))
    assert led.unopened() == {QUEUE.queue}
    led.remove(QUEUE.queue)
    assert led.unopened() == set()
    pair.send()
    pair.check_same()
    for machine in (pair.leader, pair.follower):
        assert machine.follow().inventory() == {}
        assert not list(machine.shard_directory.glob("129*"))


def test_what_is_set_aside_has_a_limit_and_the_oldest_goes_first(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diverged, "KEPT_BYTES_MAX", 400)
    keeper = pair.follower.shards.diverged
    for base in (1, 2, 3):
        keeper.keep(SHARD, QUEUE, base, 1, HEADER_BYTES, bytes(150))
    kept = sorted(int(file.name[:20]) for file in keeper.path.rglob("*.seg"))
    assert kept == [2, 3]
    keeper.keep(SHARD, QUEUE, 4, 1, HEADER_BYTES, bytes(500))
    assert "records that the leader does not have are too large to be kept" in pair.follower.told


def test_what_is_set_aside_never_takes_the_place_of_something_else(pair: Pair) -> None:
    keeper = pair.follower.shards.diverged
    for data in (b"one", b"other", b"one"):
        keeper.keep(SHARD, QUEUE, 1, 1, HEADER_BYTES, data)
    kept = sorted(file.read_bytes()[HEADER_BYTES:] for file in keeper.path.rglob("*.seg"))
    assert kept == [b"one", b"other"]


def test_segment_that_recovery_cannot_read_is_not_dropped_elsewhere(pair: Pair) -> None:
    """A node with damaged files must not have others delete theirs."""
    pair.append(*[bytes(100)] * 10)
    pair.send()
    pair.settle()
    pair.leader, pair.follower = pair.follower, pair.leader
    pair.follower.follow()
    led = pair.leader.lead(2)
    name = f"{1:020}"
    directory = pair.leader.shard_directory / "129"
    later = b"WARREN\0S" + (9).to_bytes(4, "little")
    (directory / f"{name}.seg").write_bytes(later + bytes(500))
    (directory / f"{name}.idx").unlink()
    led.open_log(QUEUE)
    assert not [change for change in pair.leader.take() if isinstance(change, Drop)]


@pytest.mark.parametrize("count", [1, 10])
def test_damage_that_a_takeover_meets_is_told_and_drops_nothing(pair: Pair, count: int) -> None:
    pair.append(*[bytes(100)] * count)
    pair.send()
    pair.settle()
    pair.leader, pair.follower = pair.follower, pair.leader
    pair.follower.follow()
    led = pair.leader.lead(2)
    file = pair.leader.shard_directory / "129" / f"{1:020}.seg"
    data = bytearray(file.read_bytes())
    data[HEADER_BYTES + 60] ^= 1
    file.write_bytes(data)
    file.with_suffix(".idx").unlink(missing_ok=True)
    told: list[str] = []
    pair.leader.store.problems.on_damage = told.append
    log, _ = led.open_log(QUEUE)
    assert set(told) == {str(file.with_suffix(""))}
    assert not [change for change in pair.leader.take() if isinstance(change, Drop)]
    assert all(segment.damaged for segment in log.segments if segment.base == 1)
    assert not pair.leader.store.problems.damaged, "it may be whole when this store leads again"


def test_chunks_for_a_copy_are_whole_records(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.storage.copying.CHUNK_BYTES", 150)
    pair.append(b"one", b"two", bytes(300), b"four")
    pair.leader.settle()
    source = pair.led.source(QUEUE, 1)
    assert source is not None
    sizes, offset = [], 0
    while (found := read_records(source, offset)) is not None:
        sizes.append(found.count)
        pair.follower.apply([found])
        offset += len(found.data)
    assert sizes == [2, 1, 1]
    pair.check_same()


def test_damaged_segment_is_not_copied_from(pair: Pair) -> None:
    pair.append(b"one", b"two")
    pair.leader.settle()
    source = pair.led.source(QUEUE, 1)
    assert source is not None
    first = read_records(source, 0)
    assert first is not None
    file = Path(source.path + ".seg")
    data = bytearray(file.read_bytes())
    data[HEADER_BYTES + 20] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedSegment, match="no record at 32"):
        read_records(source, 0)
    assert read_records(source, len(first.data)) is None


def test_all_marks_replace_those_that_are_there_and_those_that_wait(pair: Pair) -> None:
    first = records(pair)
    name = f"129/{1:020}.seg"
    pair.follower.apply([first, Marks(QUEUE, 1, 1, encode_mark(1, 0, 1, 5))])
    pair.follower.apply([AllMarks(QUEUE, 1, 1, b"")])
    pair.follower.settle()
    assert pair.follower.marks() == {name: b""}
    mark = encode_mark(1, 0, 2, 1)
    pair.follower.apply([Marks(QUEUE, 1, 1, mark)])
    pair.follower.settle()
    assert pair.follower.marks() == {name: mark}
    pair.follower.apply([AllMarks(QUEUE, 1, 1, mark), Marks(QUEUE, 1, 1, encode_mark(1, 0, 1, 2))])
    pair.follower.settle()
    both = encode_mark(1, 0, 1, 2) + encode_mark(1, 1, 1, 1)
    assert pair.follower.marks() == {name: both}
    pair.follower.apply([AllMarks(QUEUE, 1, 1, mark)])
    pair.follower.settle()
    assert pair.follower.marks() == {name: mark}


def test_shard_that_is_not_known_has_an_empty_inventory(tmp_path: Path) -> None:
    machine = ShardMachine(tmp_path / "a")
    assert machine.replica is not None
    assert machine.replica.inventory() == {}
    assert machine.shards.there() == [SHARD]
    machine.close()


def test_verify_looks_into_copies_too(pair: Pair) -> None:
    pair.follower.streams.add(STREAM.queue)
    stream, _ = pair.led.open_stream(STREAM.queue)
    for position in range(1, 11):
        stream.append(message(bytes(100)), position, TIME_MS + position)
    stream.note_offset("billing", 3)
    part, _ = pair.led.open_log(PART)
    pair.append(*[bytes(100)] * 10)
    pair.append(b"of a part", log=part)
    pair.send()
    pair.settle()
    pair.follower.stop()
    problems: list[FileProblem] = []
    checked = verify(DataFiles(pair.follower.data), problems.append)
    assert problems == []
    assert (checked.queues, checked.records) == (3, 21)
    file = min((pair.follower.shard_directory / "129").glob("*.seg"))
    data = bytearray(file.read_bytes())
    data[HEADER_BYTES + 50] ^= 1
    file.write_bytes(data)
    verify(DataFiles(pair.follower.data), problems.append)
    assert {(problem.file, problem.kind) for problem in problems} == {(str(file), FileKind.DAMAGE)}
