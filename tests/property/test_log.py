"""A queue's log against a list: appended to, read on, taken out of, browsed, acked, purged, and read back.

More examples: LOG_EXAMPLES=2000. A failing example is printed as the steps that lead there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.log_machine import TIME_MS, LogMachine, browse, entry_of, message, read_on
from warren.broker.message import Message
from warren.broker.store import NOTHING_TO_READ, LogBrowser
from warren.storage import queue_log, rewriting
from warren.storage.queue_log import QueueLog

pytestmark = pytest.mark.slow

SIZES = st.one_of(st.integers(0, 200), st.sampled_from([0, 0, 700, 5_000]))
SEEDS = st.integers(0, 2**32)
MEMORY = Path("/dev/shm")  # noqa: S108 - nothing here needs a disk of its own
VOLATILE = "volatile"
SUFFIXES = {".seg", ".acks", ".new", ".idx", ".due"}


class State(Enum):
    UNREAD = "unread"
    TAKEN = "taken"
    DONE = "done"


@dataclass(eq=False)
class Item:
    position: int
    location: int
    message: Message
    due_ms: int | None
    state: State
    safe: bool = False
    deliveries: int = 0
    returned: bool = False


@dataclass(eq=False)
class Browsing:
    browser: LogBrowser
    position: int = 0


class LogTest(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.limits = [
            patch.object(queue_log, "DEAD_TAIL_BYTES_MIN", 300),
            patch.object(rewriting, "ACKS_BYTES_MIN", 64),
            patch.object(rewriting, "TIMES_LARGER", 1),
            patch.object(rewriting, "ADDED_BYTES_MAX", 16),
        ]
        for limit in self.limits:
            limit.start()
        self.scratch = Path(tempfile.mkdtemp(prefix="warren-log-", dir=MEMORY if MEMORY.is_dir() else None))
        self.items: list[Item] = []
        self.browsings: list[Browsing] = []
        self.position = 0

    def teardown(self) -> None:
        self.machine.close()
        shutil.rmtree(self.scratch)
        for limit in self.limits:
            limit.stop()

    @initialize(
        part=st.sampled_from(["", "priority-3", VOLATILE]),
        segment_bytes=st.sampled_from([200, 500, 3_000, 100_000]),
        open_files_max=st.sampled_from([2, 8]),
    )
    def begin(self, part: str, segment_bytes: int, open_files_max: int) -> None:
        self.machine = LogMachine(self.scratch, segment_bytes=segment_bytes, open_files_max=open_files_max)
        self.part = part
        self.log = self.open()

    def open(self) -> QueueLog:
        return self.machine.open_overflow() if self.part == VOLATILE else self.machine.open(self.part)

    # --- the model ---

    def of(self, state: State) -> list[Item]:
        return [item for item in self.items if item.state is state]

    def first_unread(self, above: int = 0) -> int:
        positions = (item.position for item in self.of(State.UNREAD) if item.position > above)
        return next(positions, NOTHING_TO_READ)

    def take(self, item: Item) -> None:
        item.state = State.DONE if self.part == VOLATILE else State.TAKEN

    # --- messages ---

    @rule(
        size=SIZES,
        count=st.integers(1, 12),
        gap=st.sampled_from([1, 1, 1, 2, 9]),
        expiration=st.sampled_from([None, None, "0", "5000"]),
        scheduled=st.booleans(),
        taken=st.sampled_from([False, False, False, True]),
    )
    def append(
        self, size: int, count: int, gap: int, expiration: str | None, scheduled: bool, taken: bool
    ) -> None:
        for _ in range(count):
            self.position += gap
            time_ms = TIME_MS + self.position
            body = b"%d." % self.position + bytes(size)
            sent = message(body, expiration=expiration, time_ms=time_ms, scheduled=scheduled)
            taken = taken and self.part != VOLATILE
            location = self.log.append(sent, self.position, taken)
            due_ms = time_ms if scheduled else None if expiration is None else time_ms + int(expiration)
            state = State.TAKEN if taken else State.UNREAD
            self.items.append(Item(self.position, location, sent, due_ms, state))

    @rule(most=st.integers(1, 5), data=st.data())
    def read_on(self, most: int, data: st.DataObject) -> None:
        before = data.draw(st.sampled_from([NOTHING_TO_READ, self.position // 2 + 1]))
        expected = [item for item in self.of(State.UNREAD) if item.position < before][:most]
        self.same(read_on(self.log, most, before), expected)
        for item in expected:
            self.take(item)

    @precondition(lambda self: self.of(State.UNREAD))
    @rule(data=st.data(), count=st.integers(1, 4))
    def take_out(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.of(State.UNREAD)))):
            item = data.draw(st.sampled_from(self.of(State.UNREAD)))
            found = self.log.take_out(item.position, item.location)
            assert found is not None
            self.same([(item.position, found)], [item])
            if self.part != VOLATILE:
                assert self.log.deliveries_of(item.position) == item.deliveries
            self.take(item)

    @precondition(lambda self: self.part != VOLATILE and self.of(State.TAKEN))
    @rule(count=st.integers(1, 8))
    def give_back_the_last(self, count: int) -> None:
        """As a queue does, from the tail on."""
        for item in reversed(self.of(State.TAKEN)[-count:]):
            self.give_back(item)

    @precondition(lambda self: self.part != VOLATILE and self.of(State.TAKEN))
    @rule(data=st.data())
    def give_back_any(self, data: st.DataObject) -> None:
        self.give_back(data.draw(st.sampled_from(self.of(State.TAKEN))))

    def give_back(self, item: Item) -> None:
        self.log.give_back(
            entry_of(item.message, item.position, item.location, item.deliveries, item.returned)
        )
        assert self.log.deliveries_of(item.position) == item.deliveries
        assert self.log.has_returned(item.position) == item.returned
        item.state = State.UNREAD

    @precondition(lambda self: any(item.state is not State.UNREAD for item in self.items))
    @rule(data=st.data())
    def take_out_what_is_not_unread(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from([item for item in self.items if item.state is not State.UNREAD]))
        assert self.log.take_out(item.position, item.location) is None

    def same(self, found: list[tuple[int, Message]], expected: list[Item]) -> None:
        assert [position for position, _ in found] == [item.position for item in expected]
        for (_, read), item in zip(found, expected, strict=True):
            assert (read.body, read.properties) == (item.message.body, item.message.properties)
            assert (read.time_ms, read.scheduled) == (item.message.time_ms, item.message.scheduled)

    @precondition(lambda self: self.of(State.TAKEN))
    @rule(data=st.data(), count=st.integers(1, 6))
    def ack(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.of(State.TAKEN)))):
            item = data.draw(st.sampled_from(self.of(State.TAKEN)))
            self.log.acked(item.position)
            item.state = State.DONE
        self.machine.store.write_marks()

    @precondition(lambda self: self.of(State.TAKEN))
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.of(State.TAKEN)))
        item.deliveries += 1
        item.returned = True
        self.log.delivered(item.position, item.deliveries)
        self.machine.store.write_marks()

    @rule(really=st.sampled_from([False, False, True]))
    def purge(self, really: bool) -> None:
        """Not too often: there has to be something to do for the others."""
        if not really:
            return
        for _ in self.log.purge():
            pass
        for item in self.of(State.UNREAD):
            item.state = State.DONE
        self.machine.store.write_marks()

    # --- browsing ---

    @precondition(lambda self: len(self.browsings) < 3)
    @rule()
    def begin_to_browse(self) -> None:
        self.browsings.append(Browsing(self.log.browse()))

    @precondition(lambda self: self.browsings)
    @rule(data=st.data(), steps=st.integers(1, 8), read=st.booleans())
    def browse_on(self, data: st.DataObject, steps: int, read: bool) -> None:
        browsing = data.draw(st.sampled_from(self.browsings))
        for _ in range(steps):
            position = browsing.browser.next_position(browsing.position)
            assert position == self.first_unread(browsing.position)
            if position == NOTHING_TO_READ:
                return
            item = next(item for item in self.items if item.position == position)
            assert browsing.browser.location == item.location
            if read:
                self.same([(position, browsing.browser.read())], [item])
            browsing.position = position

    @precondition(lambda self: self.browsings)
    @rule(data=st.data())
    def browse_from(self, data: st.DataObject) -> None:
        """Anywhere, back or far ahead."""
        browsing = data.draw(st.sampled_from(self.browsings))
        browsing.position = data.draw(st.integers(0, self.position + 1))

    # --- the disk ---

    @rule()
    def finish_round(self) -> None:
        self.machine.finish_round()

    @rule()
    def finish_all(self) -> None:
        """Then all is safe, and nothing is left of segments that were dropped."""
        self.machine.run()
        for item in self.items:
            item.safe = True
        kept = {segment.path for segment in self.log.segments}
        on_disk = [path for path in Path(self.log.chain.directory.path).glob("*") if path.suffix in SUFFIXES]
        assert {str(path).partition(".")[0] for path in on_disk} <= kept

    @rule()
    def keep_house(self) -> None:
        self.machine.housekeeping.run()

    @rule()
    def tidy(self) -> None:
        self.machine.store.tidy()

    @precondition(lambda self: self.part != VOLATILE)
    @rule()
    def restart(self) -> None:
        self.machine.restart()
        self.reopen([item for item in self.items if item.state is not State.DONE])

    @precondition(lambda self: self.part != VOLATILE)
    @rule(seed=SEEDS)
    def kill(self, seed: int) -> None:
        """What was not safe may be there or not."""
        self.machine.kill(Random(seed))
        self.machine.start()
        self.log = self.open()
        there = {position for position, _ in browse(self.log)}
        alive = [item for item in self.items if item.state is not State.DONE]
        assert {item.position for item in alive if item.safe} <= there
        self.reopen([item for item in alive if item.position in there], is_open=True)

    def reopen(self, expected: list[Item], *, is_open: bool = False) -> None:
        if not is_open:
            self.log = self.open()
        self.items, self.browsings = expected, []
        for item in expected:
            item.state, item.safe, item.returned = State.UNREAD, True, False
        dues = [(item.due_ms, item.position, item.location) for item in expected if item.due_ms is not None]
        assert list(self.log.due()) == dues
        assert not set(self.machine.told) - {
            "torn tail",
            "no record in segment",
            "segment is empty",
            "segment's header is not sound",
            "acks beyond the data",
            "marks of records that were never written",
            "recovering queues",  # which is told when it takes long
            "queues recovered",
            "segments have what the journal has",
        }
        self.same(browse(self.log), expected)

    # --- what holds at any time ---

    @invariant()
    def the_log_counts_as_the_model_does(self) -> None:
        unread = self.of(State.UNREAD)
        assert (self.log.unread, self.log.unread_bytes) == (
            len(unread),
            sum(len(item.message.body) for item in unread),
        )
        assert sum(segment.unread for segment in self.log.segments) == len(unread)
        assert sum(segment.alive for segment in self.log.segments) == len(unread) + len(self.of(State.TAKEN))
        assert self.log.peek() == self.first_unread()
        assert not self.machine.world.errors


TestLog = LogTest.TestCase
TestLog.settings = settings(
    max_examples=int(os.environ.get("LOG_EXAMPLES", "150")),
    stateful_step_count=60,
    report_multiple_bugs=False,
)
