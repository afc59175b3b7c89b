"""A stream's log against a list: appended to, read by many with filters, dropped from the front, and read
back after restarts, kills, power cuts and damage to its files.

What holds all the time: an offset that anybody has seen never stands for another message.

More examples: LOG_EXAMPLES=2000. A failing example is printed as the steps that lead there.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.log_machine import QUEUE, STREAM, TIME_MS, LogMachine
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Table, encode_name
from warren.broker.message import Message
from warren.broker.store import StreamReader
from warren.broker.stream_filter import StreamFilter, filter_values
from warren.storage.format import records
from warren.storage.stream_segment import StreamSegment, decode_chunks

pytestmark = pytest.mark.slow

SIZES = st.sampled_from([0, 10, 200, 700, 20_000, 70_000])
VALUES = st.sampled_from([None, None, "", "a", "b", "a,b", "c", "d,a"])
WANTED = st.sampled_from([None, None, ["a"], ["b"], ["a,b"], ["c", "d"], ["z"]])
SEEDS = st.integers(0, 2**32)
MEMORY = Path("/dev/shm")  # noqa: S108 - nothing here needs a disk of its own
NOTHING_YET, NOT_YET_FOUND = -1, -2
TOLD_AFTER_A_CRASH = {
    "torn tail",
    "no record in segment",
    "segment is empty",
    "segment's header is not sound",
    "others could get at files of the broker; not any more",
}


@dataclass(eq=False)
class Item:
    position: int
    time_ms: int
    body: bytes
    values: str | None

    def matches(self, wanted: StreamFilter | None) -> bool:
        values = filter_values(self.values)
        if wanted is None or not values:
            return wanted is None or wanted.match_unfiltered
        return any(alternative <= values for alternative in wanted.alternatives)


@dataclass(eq=False)
class Reading:
    reader: StreamReader
    wanted: StreamFilter | None
    position: int


@dataclass
class Model:
    """`items` are those that are there; `known` all that ever were: after a power cut some may be back."""

    items: list[Item] = field(default_factory=list)
    known: dict[int, Item] = field(default_factory=dict)
    seen: dict[int, bytes] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)


def as_filter(wanted: list[str] | None, *, match_unfiltered: bool) -> StreamFilter | None:
    if wanted is None:
        return None
    return StreamFilter([filter_values(text) for text in wanted], match_unfiltered=match_unfiltered)


def read_on(reader: StreamReader, most: int) -> Iterator[tuple[int, Message]]:
    for _ in range(most):
        while (size := reader.ready()) == NOT_YET_FOUND:
            pass
        if size == NOTHING_YET:
            return
        message = reader.take()
        assert len(message.body) == size
        yield reader.next_position() - 1, message


class StreamLogTest(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp(prefix="warren-log-", dir=MEMORY if MEMORY.is_dir() else None))
        self.model = Model()
        self.readings: list[Reading] = []
        self.time_ms = TIME_MS
        self.has_gaps = False

    def teardown(self) -> None:
        if hasattr(self, "machine"):
            self.machine.close()
        shutil.rmtree(self.scratch)

    @initialize(segment_bytes=st.sampled_from([200, 3_000, 300_000]), open_files_max=st.sampled_from([2, 8]))
    def begin(self, segment_bytes: int, open_files_max: int) -> None:
        self.machine = LogMachine(
            self.scratch, segment_bytes=segment_bytes, open_files_max=open_files_max, arguments=STREAM
        )
        self.log, self.position = self.machine.open_stream()

    @property
    def safe(self) -> list[Item]:
        last = self.log.safe_position()
        return [item for item in self.model.items if item.position <= last]

    # --- messages ---

    @rule(size=SIZES, count=st.integers(1, 9), values=VALUES, step_ms=st.sampled_from([0, 1, 1000]))
    def append(self, size: int, count: int, values: str | None, step_ms: int) -> None:
        headers: Table | None = None if values is None else {"x-stream-filter-value": values}
        properties = BasicProperties(headers=headers, delivery_mode=2).encode()
        for _ in range(count):
            self.position += 1
            self.time_ms += step_ms
            body = b"%d.%d." % (self.position, Random().getrandbits(64)) + bytes(size)
            message = Message(encode_name(""), encode_name(QUEUE), properties, body, True, 0, False, False)
            self.log.append(message, self.position, self.time_ms)
            item = Item(self.position, self.time_ms, body, values)
            self.model.items.append(item)
            self.model.known[self.position] = item

    @precondition(lambda self: len(self.readings) < 4)
    @rule(data=st.data(), wanted=WANTED, match_unfiltered=st.booleans())
    def start_to_read(self, data: st.DataObject, wanted: list[str] | None, match_unfiltered: bool) -> None:
        position = data.draw(st.integers(self.log.first_position(), self.position + 3))
        chosen = as_filter(wanted, match_unfiltered=match_unfiltered)
        self.readings.append(Reading(self.log.reader(position, chosen), chosen, position))

    @precondition(lambda self: self.readings)
    @rule(data=st.data(), most=st.integers(1, 20))
    def read_on(self, data: st.DataObject, most: int) -> None:
        reading = data.draw(st.sampled_from(self.readings))
        expected = [
            item for item in self.safe if item.position >= reading.position and item.matches(reading.wanted)
        ][:most]
        found = list(read_on(reading.reader, most))
        self.same(found, expected)
        if found:
            reading.position = found[-1][0] + 1

    @precondition(lambda self: self.readings)
    @rule(data=st.data())
    def stop_reading(self, data: st.DataObject) -> None:
        self.readings.remove(data.draw(st.sampled_from(self.readings)))

    @rule(data=st.data())
    def look_up_a_time(self, data: st.DataObject) -> None:
        time_ms = data.draw(st.integers(TIME_MS - 1, self.time_ms + 1))
        later = (item.position for item in self.safe if item.time_ms >= time_ms)
        assert self.log.position_at(time_ms) == next(later, self.log.safe_position() + 1)

    def same(self, found: list[tuple[int, Message]], expected: list[Item]) -> None:
        """What was read, which somebody has seen then."""
        assert [position for position, _ in found] == [item.position for item in expected]
        for (position, read), item in zip(found, expected, strict=True):
            assert (read.body, read.time_ms) == (item.body, item.time_ms)
            headers = decode_properties(read.properties).headers or {}
            assert headers.pop("x-stream-offset") == position - 1
            assert headers.get("x-stream-filter-value") == item.values
            assert self.model.seen.setdefault(position, read.body) == read.body

    # --- segments and offsets ---

    @rule(segment_bytes=st.sampled_from([None, 100, 5_000, 100_000]))
    def set_segment_bytes(self, segment_bytes: int | None) -> None:
        self.log.set_segment_bytes(segment_bytes)

    @rule(
        max_bytes=st.sampled_from([None, None, 0, 2_000, 100_000]),
        max_messages=st.sampled_from([None, None, 0, 7]),
        age_ms=st.sampled_from([None, None, 0, 2_000]),
    )
    def retain(self, max_bytes: int | None, max_messages: int | None, age_ms: int | None) -> None:
        since_ms = None if age_ms is None else self.time_ms - age_ms
        left = [*self.log.segments]

        def is_too_much(oldest: StreamSegment) -> bool:
            return (
                (max_bytes is not None and sum(segment.end for segment in left) > max_bytes)
                or (max_messages is not None and left[-1].last - oldest.base + 1 > max_messages)
                or (since_ms is not None and oldest.last_ms < since_ms)
            )

        while any(segment.written for segment in left[1:]) and is_too_much(left[0]):
            del left[0]
        self.log.retain(max_bytes, max_messages, since_ms)
        assert self.log.segments == left
        first = self.log.first_position()
        self.model.items = [item for item in self.model.items if item.position >= first]
        self.machine.store.write_marks()

    @rule(name=st.sampled_from(["one", "two", "ü\n"]), offset=st.none() | st.integers(0, 2**63))
    def note_offset(self, name: str, offset: int | None) -> None:
        self.log.note_offset(name, offset)
        self.model.offsets.pop(name, None)
        if offset is not None:
            self.model.offsets[name] = offset
        self.machine.store.write_marks()

    # --- the disk ---

    @rule()
    def finish_round(self) -> None:
        self.machine.finish_round()

    @rule(after=st.integers(0, 4), error=st.sampled_from([errno.EIO, errno.ENOSPC]))
    def fail_a_round(self, after: int, error: int) -> None:
        self.machine.faults.fail(at=len(self.machine.faults.done) + after, error=error)
        self.machine.finish_round()
        self.machine.faults.plan = None
        self.machine.world.advance(0.6)

    @rule()
    def finish_all(self) -> None:
        """Then all is safe, nothing is left of what was dropped, and chunks say what is in their segments."""
        self.machine.run()
        assert [item.position for item in self.safe] == [item.position for item in self.model.items]
        kept = {segment.path for segment in self.log.segments}
        directory = Path(self.log.chain.directory.path)
        on_disk = [*directory.glob("*.seg"), *directory.glob("*.chunks")]
        assert {str(path.with_suffix("")) for path in on_disk} == kept
        for segment in self.log.segments:
            file = Path(segment.path + ".chunks")
            assert file.exists() == segment.is_closed()
            if segment.is_closed():
                count, end, (last, last_ms), chunks = decode_chunks(file.read_bytes(), segment.base)
                anew = StreamSegment(segment.path, segment.base)
                anew.end = end
                anew.note_all(Path(segment.path + ".seg").read_bytes())
                assert (count, end, last) == (segment.count, segment.end, segment.last)
                assert anew.chunks is not None
                assert self.has_gaps or chunks.tobytes() == anew.chunks.tobytes()
                assert last_ms == anew.last_ms

    @rule()
    def keep_house(self) -> None:
        self.machine.housekeeping.run()

    @rule()
    def what_is_safe_is_on_the_platter(self) -> None:
        tree = self.machine.platter.least()
        for part in ("queues", self.machine.directory.name):
            found = tree.get(part, {})
            assert isinstance(found, dict)
            tree = found
        data = [content for name, content in sorted(tree.items()) if name.endswith(".seg")]
        synced = {r.position for content in data if isinstance(content, bytes) for r in records(content)}
        assert {item.position for item in self.safe} <= synced

    # --- the end, and what comes after it ---

    @rule(damage=st.sampled_from([None, None, "remove", "cut", "flip", "empty"]), seed=SEEDS)
    def restart(self, damage: str | None, seed: int) -> None:
        self.machine.stop()
        if damage is not None:
            for file in sorted(Path(self.log.chain.directory.path).glob("*.chunks")):
                damage_file(file, damage, Random(seed))
        self.machine.start()
        self.reopen(sure=self.model.items, may_be_told={"chunks file is not sound"} if damage else set())
        assert self.log.offsets == self.model.offsets

    @precondition(lambda self: any(segment.count > 2 for segment in self.log.segments))
    @rule(data=st.data(), lose_chunks=st.booleans())
    def restart_with_a_bad_record(self, data: st.DataObject, lose_chunks: bool) -> None:
        """In the middle of a segment; it is lost, and nothing else."""
        self.machine.stop()
        segment = data.draw(st.sampled_from([each for each in self.log.segments if each.count > 2]))
        file = Path(segment.path + ".seg")
        sound = [*records(file.read_bytes())][1:-1]
        bad = data.draw(st.sampled_from(sound)) if sound else None
        if bad is not None:
            flip(file, bad.offset + 40)
            self.model.items = [item for item in self.model.items if item.position != bad.position]
        if lose_chunks:
            Path(segment.path + ".chunks").unlink(missing_ok=True)
        self.has_gaps = True
        self.machine.start()
        self.reopen(sure=self.model.items, may_be_told=set())

    @rule(seed=SEEDS)
    def kill(self, seed: int) -> None:
        """What was not safe may be there or not, but nothing behind what is not."""
        safe = self.safe
        self.machine.kill(Random(seed))
        self.machine.start()
        self.reopen(sure=safe, may_be_told=TOLD_AFTER_A_CRASH)

    @rule(seed=SEEDS)
    def cut_power(self, seed: int) -> None:
        safe = self.safe
        self.has_gaps = True  # of what was not safe, some may be there and some before it not
        self.machine.cut_power(Random(seed))
        self.machine.start()
        told = TOLD_AFTER_A_CRASH | {"chunks file is not sound", "segment is missing"}
        self.reopen(sure=safe, may_be_told=told)
        self.model.offsets = dict(self.log.offsets)  # older ones, if they were not synced

    def reopen(self, *, sure: list[Item], may_be_told: set[str]) -> None:
        assert set(self.machine.told) <= may_be_told | ({"bad record"} if self.has_gaps else set())
        self.log, self.position = self.machine.open_stream()
        self.readings = []
        found = list(read_on(self.log.reader(1, None), 1_000_000))
        there = [position for position, _ in found]
        assert {item.position for item in sure} <= set(there)
        self.model.items = [self.model.known[position] for position in there]
        self.same(found, self.model.items)
        assert self.position >= max(self.model.seen, default=0)
        if not self.has_gaps:  # nor anything bad to be told of
            assert not there or there == list(range(there[0], there[-1] + 1))
            assert self.log.count == len(there)
        self.time_ms = max(self.time_ms, self.log.newest_ms())

    # --- what holds at any time ---

    @invariant()
    def the_log_counts_as_the_model_does(self) -> None:
        segments = self.log.segments
        assert self.log.size_bytes == sum(segment.end for segment in segments)
        assert self.log.count == sum(segment.count for segment in segments)
        assert self.log.newest_ms() == (segments[-1].last_ms if segments else 0)
        assert not self.machine.world.errors


def damage_file(file: Path, how: str, rng: Random) -> None:
    size = file.stat().st_size
    if how == "remove":
        file.unlink()
    elif how == "flip":
        flip(file, rng.randrange(size))
    else:
        os.truncate(file, 0 if how == "empty" else rng.randrange(size))


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


TestStreamLog = StreamLogTest.TestCase
TestStreamLog.settings = settings(
    max_examples=int(os.environ.get("LOG_EXAMPLES", "50")),
    stateful_step_count=40,
    report_multiple_bugs=False,
)
