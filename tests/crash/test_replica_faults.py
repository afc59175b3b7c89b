"""A follower on a disk that fails at every operation in turn, and whose power is cut at every moment.

One scenario is run over and over: all kinds of changes that a leader may send. A failure names the operation,
and the seed where there is one:

    FAULTS_OPERATION=17 pytest tests/crash/test_replica_faults.py        only this one
    FAULTS_SEEDS=100 pytest tests/crash/test_replica_faults.py           more kinds of loss at each moment
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest

from tests.support.faulty_disk import write_tree
from tests.support.log_machine import TIME_MS, message
from tests.support.shard_machine import ShardMachine
from warren.storage.format import ACKED, HEADER_BYTES, encode_mark, encode_record, encode_segment_header
from warren.storage.replication import (
    AllMarks,
    Drop,
    LogChange,
    LogId,
    Marks,
    NamedOffset,
    Records,
    RemoveLog,
    SegmentState,
    SetAside,
    Truncate,
)

MEMORY = Path("/dev/shm")  # noqa: S108 - nothing here needs a disk of its own
SEEDS = int(os.environ.get("FAULTS_SEEDS", "2"))
ONLY = os.environ.get("FAULTS_OPERATION")
QUEUE = LogId(129)
PART = LogId(129, "priority-3")
STREAM = LogId(257)
Inventory = dict[LogId, list[SegmentState]]


class Original:
    """A segment as its leader has it."""

    def __init__(self, log: LogId, base: int, epoch: int, *bodies: bytes) -> None:
        self.log, self.base, self.epoch = log, base, epoch
        encoded = [
            encode_record(base + i, TIME_MS + base + i, message(body)) for i, body in enumerate(bodies)
        ]
        self.data = encode_segment_header(base, epoch) + b"".join(encoded)
        self.ends = list(accumulate(map(len, encoded), initial=HEADER_BYTES))

    def records(self, first: int, count: int) -> Records:
        """Some of its records, counted from 0; the header comes with the first one."""
        offset = self.ends[first] if first else 0
        data = self.data[offset : self.ends[first + count]]
        return Records(self.log, self.base, self.epoch, offset, self.base + first + count - 1, count, data)

    def marks(self, first: int, count: int, deliveries: int) -> Marks:
        return Marks(self.log, self.base, self.epoch, encode_mark(self.base, first, count, deliveries))

    def all_marks(self, first: int, count: int, deliveries: int) -> AllMarks:
        return AllMarks(self.log, self.base, self.epoch, encode_mark(self.base, first, count, deliveries))


ONE = Original(QUEUE, 1, 1, b"a" * 30, b"b" * 40, b"c" * 50, b"d")
FIVE = Original(QUEUE, 5, 1, b"e" * 100, b"f" * 30)
SIX = Original(QUEUE, 6, 2, b"never confirmed", b"neither")
SEVEN = Original(QUEUE, 7, 3, b"nor this", b"nor that")
AGAIN = Original(QUEUE, 7, 4, b"g" * 20, b"h" * 20, b"i" * 20, b"j" * 20, b"k" * 5_000)
HIGH = Original(PART, 1, 1, b"x" * 10, b"y" * 10)
HIGHER = Original(PART, 9, 1, b"z")
FIRST = Original(STREAM, 1, 1, b"s" * 60, b"t" * 60)
LATER = Original(STREAM, 3, 4, b"u" * 60, b"v" * 60)
ORIGINALS = {
    (one.log, one.base, one.epoch): one for one in (ONE, FIVE, SIX, SEVEN, AGAIN, HIGH, HIGHER, FIRST, LATER)
}

BATCHES: list[list[LogChange]] = [
    [ONE.records(0, 2), HIGH.records(0, 2)],
    [ONE.records(2, 1), ONE.marks(0, 2, 1)],
    [ONE.records(3, 1), FIVE.records(0, 2), FIRST.records(0, 2), NamedOffset(STREAM, "billing", 1)],
    [
        ONE.marks(0, 1, ACKED),
        FIVE.marks(1, 1, 1),
        HIGH.marks(0, 2, ACKED),
        Drop(PART, 1, 1),
        HIGHER.records(0, 1),
    ],
    # a leader of epoch 2, which does not have all of the second segment
    [
        Truncate(QUEUE, 5, 1, FIVE.ends[1]),
        ONE.all_marks(0, 2, ACKED),
        AllMarks(QUEUE, 5, 1, b""),
        SIX.records(0, 2),
    ],
    # one of epoch 3, which has: the segment goes on
    [SetAside(QUEUE, 6, 2), FIVE.records(1, 1), SEVEN.records(0, 1)],
    [SEVEN.records(1, 1), SEVEN.marks(0, 2, 1)],
    # one of epoch 4, which begins with the same position
    [SetAside(QUEUE, 7, 3), FIVE.all_marks(0, 1, 2), AGAIN.records(0, 1)],
    [AGAIN.records(1, 1), LATER.records(0, 2), Drop(STREAM, 1, 1), NamedOffset(STREAM, "billing", None)],
    [AGAIN.records(2, 1)],
    [AGAIN.records(3, 1), AGAIN.marks(0, 1, ACKED)],
    [AGAIN.records(4, 1), Drop(QUEUE, 1, 1)],
    [Truncate(QUEUE, 7, 4, AGAIN.ends[3]), AGAIN.all_marks(0, 1, ACKED)],
    [Drop(QUEUE, 7, 4), AGAIN.records(0, 2)],
    [RemoveLog(PART)],
]


@contextmanager
def scratch_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as path:
        yield Path(path)


class Scenario:
    """A follower that gets all batches."""

    def __init__(self, path: Path) -> None:
        self.machine = ShardMachine(path / "node")
        self.machine.streams.add(STREAM.queue)
        self.machine.settle()
        self.machine.faults.done.clear()
        self.states: list[Inventory] = [{}]  # what there is to be, with more and more changes
        self.safe = 0  # how many of them are

    def run(self) -> None:
        """Some batches come while those before are not safe yet."""
        machine = self.machine
        assert machine.replica is not None
        for number, batch in enumerate(BATCHES):
            for change in batch:
                machine.replica.apply([change], partial(self.is_safe, len(self.states)))
                self.states.append(machine.replica.inventory())
            machine.world.run()
            if number % 3:
                machine.settle()
        machine.settle()
        while machine.housekeeping.failed:  # what could not be deleted is tried again, ever more rarely
            machine.store.tidy()
            machine.settle()
        for error in machine.world.errors:
            raise error
        assert self.safe == sum(map(len, BATCHES))
        assert not machine.mismatches

    def is_safe(self, number: int) -> None:
        assert number == self.safe + 1, "in order"
        self.safe = number

    def check_left(self, left: ShardMachine) -> None:
        """What a start finds tells the truth, and has all that is safe."""
        assert left.replica is not None
        found = {
            (log, state.base, state.epoch): state
            for log, states in left.replica.inventory().items()
            for state in states
        }
        files = left.segments()
        for (log, base, epoch), state in found.items():
            name = f"{log.queue}/{log.part and log.part + '/'}{base:020}.seg"
            original = ORIGINALS[log, base, epoch]
            assert not state.damaged
            assert files[name] == original.data[: state.length]
            assert state.length in original.ends[1:]
        possible = self.states[self.safe :]
        for key in {
            (log, s.base, s.epoch) for states in possible for log, some in states.items() for s in some
        }:
            lengths = [length_of(key, inventory) for inventory in possible]
            length = found[key].length if key in found else 0
            assert length >= min(lengths), key
        for log in {log for log, _, _ in found if log != STREAM}:
            assert left.replica.log(log).is_settled


def length_of(key: tuple[LogId, int, int], inventory: Inventory) -> int:
    log, base, epoch = key
    return next((s.length for s in inventory.get(log, ()) if (s.base, s.epoch) == (base, epoch)), 0)


@contextmanager
def new_scenario() -> Iterator[Scenario]:
    with scratch_directory() as path:
        scenario = Scenario(path)
        try:
            yield scenario
        finally:
            scenario.machine.faults.before = None
            scenario.machine.close()


def operations() -> list[str]:
    with new_scenario() as scenario:
        scenario.run()
        return list(scenario.machine.faults.done)


def numbers(done: list[str]) -> list[int]:
    return [int(ONLY)] if ONLY else list(range(len(done)))


@contextmanager
def left_over(path: Path) -> Iterator[ShardMachine]:
    machine = ShardMachine(path)
    machine.streams.add(STREAM.queue)
    try:
        yield machine
    finally:
        machine.close()


def check_power_cut(scenario: Scenario, seed: int) -> None:
    tree = scenario.machine.platter.crashed(Random(seed))
    with scratch_directory() as path:
        (path / "node").mkdir()
        write_tree(path / "node" / "data", tree)
        (path / "node" / "data" / "running").write_text("an earlier boot\n")
        with left_over(path / "node") as left:
            scenario.check_left(left)
            assert left.shards.store_id == scenario.machine.shards.store_id
            check_that_it_leads(left)


def check_kill(scenario: Scenario) -> None:
    with scratch_directory() as path:
        shutil.copytree(scenario.machine.data, path / "node" / "data")
        (path / "node" / "data" / "running").write_text("boot 1\n")
        with left_over(path / "node") as left:
            scenario.check_left(left)
            check_that_it_leads(left)


def check_that_it_leads(left: ShardMachine) -> None:
    """It can: each log is recovered, and what changes in it is handed out."""
    led = left.lead(9)
    before = led.inventory()
    log, position = led.open_log(QUEUE)
    stream, last = led.open_stream(STREAM.queue)
    log.append(message(b"new"), position + 1, False)
    stream.append(message(b"new"), last + 1, TIME_MS + 100)
    appended = [change for change in left.take() if isinstance(change, Records)]
    assert [(change.log, change.epoch, change.offset) for change in appended] == [
        (QUEUE, 9, 0),
        (STREAM, 9, 0),
    ]
    for states in before.values():
        assert all(state.epoch < 9 for state in states)


def final_state(scenario: Scenario) -> object:
    return scenario.machine.segments(), scenario.machine.marks()


def test_the_scenario_uses_all_that_can_fail() -> None:
    done = operations()
    kinds = {operation.rpartition(" ")[0] for operation in done}
    assert kinds >= {
        "create",
        "cut segment",
        "delete directory",
        "delete segment",
        "make directory",
        "rename",
        "reopen segment",
        "replace ack file",
        "set aside segment",
        "sync",
        "sync names",
        "write",
        "write index",
        "write safely",
    }


@pytest.mark.parametrize(
    ("error", "times"),
    [(errno.ENOSPC, 1), (errno.EIO, 1), (errno.ENOSPC, 4)],
    ids=["full once", "broken once", "full for a while"],
)
def test_whatever_fails_all_goes_on_by_itself(error: int, times: int) -> None:
    with new_scenario() as scenario:
        scenario.run()
        done, expected = list(scenario.machine.faults.done), final_state(scenario)
    for number in numbers(done):
        with new_scenario() as scenario:
            scenario.machine.faults.fail(at=number, error=error, times=times)
            try:
                scenario.run()
                assert final_state(scenario) == expected
                check_kill(scenario)
            except Exception as problem:
                problem.add_note(f"FAULTS_OPERATION={number}: {done[number]}")
                raise


def test_whenever_the_power_is_cut_the_inventory_is_true() -> None:
    with new_scenario() as scenario:
        faults = scenario.machine.faults

        def cut() -> None:
            number = len(faults.done)
            if ONLY is not None and number != int(ONLY):
                return
            for seed in range(SEEDS):
                try:
                    check_power_cut(scenario, seed)
                except Exception as problem:
                    problem.add_note(f"FAULTS_OPERATION={number}, seed {seed}")
                    raise

        faults.before = cut
        scenario.run()
        cut()


def test_whenever_the_process_ends_the_inventory_is_true() -> None:
    with new_scenario() as scenario:
        scenario.machine.faults.before = lambda: check_kill(scenario)
        scenario.run()
        check_kill(scenario)
