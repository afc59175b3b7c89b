"""Three stores with copies of a shard: whatever the leader does, whenever a process ends or the power is
cut, and whoever leads next, all that was confirmed is there, and after a resync the files are the same
everywhere.

A message is confirmed when it is safe with the leader and all that are in sync with it. Whoever is in sync
may lead next; nobody else may.

More examples: REPLICA_EXAMPLES=2000. A failing example is printed as the steps that lead there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.log_machine import TIME_MS, browse, message, read_on
from tests.support.shard_machine import ShardMachine, plan
from warren.storage import queue_log, rewriting
from warren.storage.format import records
from warren.storage.queue_log import QueueLog
from warren.storage.replication import LogChange, LogId

pytestmark = pytest.mark.slow

MEMORY = Path("/dev/shm")  # noqa: S108 - nothing here needs a disk of its own
QUEUES = [LogId(129), LogId(129, "priority-3"), LogId(130)]
STREAM = LogId(257)
SEEDS = st.integers(0, 2**32)
SIZES = st.sampled_from([0, 10, 40, 100, 400])
STORES = st.integers(0, 2)


@dataclass(eq=False)
class Store:
    """One of the three."""

    machine: ShardMachine
    in_sync: bool = True
    batches: int = 0  # how many batches of this epoch are safe here


@dataclass
class Turn:
    """What is confirmed when a batch is safe everywhere."""

    number: int
    messages: list[tuple[LogId, int, bytes]] = field(default_factory=list)


class ReplicaTest(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.limits = [
            patch.object(queue_log, "DEAD_TAIL_BYTES_MIN", 200),
            patch.object(rewriting, "ACKS_BYTES_MIN", 64),
            patch.object(rewriting, "TIMES_LARGER", 1),
            patch.object(rewriting, "ADDED_BYTES_MAX", 16),
        ]
        for limit in self.limits:
            limit.start()
        self.scratch = Path(
            tempfile.mkdtemp(prefix="warren-replica-", dir=MEMORY if MEMORY.is_dir() else None)
        )
        self.epoch = 0
        self.bodies = 0
        self.confirmed: dict[LogId, dict[int, bytes]] = {log: {} for log in [*QUEUES, STREAM]}
        self.acked: dict[LogId, set[int]] = {log: set() for log in [*QUEUES, STREAM]}

    @initialize(segment_bytes=st.sampled_from([200, 500, 3_000]))
    def begin(self, segment_bytes: int) -> None:
        self.stores = []
        for name in "abc":
            machine = ShardMachine(self.scratch / name, segment_bytes=segment_bytes)
            machine.streams.add(STREAM.queue)
            self.stores.append(Store(machine))
        self.elect(0)

    def teardown(self) -> None:
        try:
            if hasattr(self, "stores"):
                self.check_all()
        finally:
            for store in getattr(self, "stores", []):
                store.machine.close()
            shutil.rmtree(self.scratch)
            for limit in self.limits:
                limit.stop()

    # --- who leads ---

    def elect(self, index: int) -> None:
        """A store that is in sync leads, in a new epoch. The others have to resync."""
        assert self.stores[index].in_sync
        for store in self.stores:
            if store.machine.led is not None:
                store.machine.follow()
        self.epoch += 1
        self.leader = self.stores[index]
        self.members = [store for store in self.stores if store.in_sync]
        led = self.leader.machine.lead(self.epoch)
        self.turns: list[Turn] = []
        self.turn = Turn(1)
        self.live: set[int] = set()  # followers that get what changes, by their index
        for store in self.stores:
            store.batches = 0
        self.logs: dict[LogId, QueueLog] = {}
        self.positions: dict[LogId, int] = {}
        for log in QUEUES:
            self.logs[log], self.positions[log] = led.open_log(log)
        self.stream, self.positions[STREAM] = led.open_stream(STREAM.queue)
        self.unread = {log: len(browse(opened)) for log, opened in self.logs.items()}
        self.check_leader()

    def check_leader(self) -> None:
        """All that was confirmed, and not acked, is there."""
        for log, opened in self.logs.items():
            there = {position: found.body for position, found in browse(opened)}
            for position, body in self.confirmed[log].items():
                if position not in self.acked[log]:
                    assert there.get(position) == body, (log, position)
        kept = self.stream.first_position()
        there = stream_bodies(self.leader.machine)
        for position, body in self.confirmed[STREAM].items():
            if position >= kept:
                assert there.get(position) == body, (STREAM, position)

    # --- what the leader does ---

    def new_body(self, size: int) -> bytes:
        self.bodies += 1
        return f"{self.epoch}-{self.bodies}-".encode() + bytes(size)

    @rule(log=st.sampled_from(QUEUES), size=SIZES, count=st.integers(1, 6))
    def append(self, log: LogId, size: int, count: int) -> None:
        for _ in range(count):
            self.positions[log] += 1
            body = self.new_body(size)
            self.logs[log].append(message(body), self.positions[log], False)
            self.turn.messages.append((log, self.positions[log], body))

    @rule(size=SIZES, count=st.integers(1, 4))
    def append_to_stream(self, size: int, count: int) -> None:
        for _ in range(count):
            self.positions[STREAM] += 1
            body = self.new_body(size)
            self.stream.append(message(body), self.positions[STREAM], TIME_MS + self.bodies)
            self.turn.messages.append((STREAM, self.positions[STREAM], body))

    @rule(log=st.sampled_from(QUEUES), count=st.integers(1, 8), acked=st.integers(0, 8))
    def deliver(self, log: LogId, count: int, acked: int) -> None:
        """Only what is confirmed is delivered."""
        opened = self.logs[log]
        position = opened.peek()
        while count and position in self.confirmed[log]:
            ((position, _),) = read_on(opened, 1)
            opened.delivered(position, opened.deliveries_of(position) + 1)
            if acked:
                opened.acked(position)
                self.acked[log].add(position)
                acked -= 1
            count -= 1
            position = opened.peek()

    @rule(log=st.sampled_from(QUEUES))
    def purge(self, log: LogId) -> None:
        self.acked[log] |= {position for position, _ in browse(self.logs[log])}
        for _ in self.logs[log].purge():
            pass

    @rule()
    def tidy(self) -> None:
        self.leader.machine.store.commit.tidy()

    @rule(most=st.integers(1, 10))
    def retain(self, most: int) -> None:
        self.stream.retain(None, most, None)

    @rule(name=st.sampled_from(["x", "y"]), offset=st.one_of(st.none(), st.integers(0, 50)))
    def name_offset(self, name: str, offset: int | None) -> None:
        self.stream.note_offset(name, offset)

    @rule()
    def end_turn(self) -> None:
        """What has changed goes to all followers that are live."""
        changes: list[LogChange] = self.leader.machine.take()
        turn, self.turn = self.turn, Turn(self.turn.number + 1)
        self.turns.append(turn)
        self.leader.machine.store.commit.when_safe(
            partial(self.is_safe, self.leader, self.epoch, turn.number)
        )
        for index in self.live:
            store = self.stores[index]
            assert store.machine.replica is not None
            store.machine.replica.apply(changes, partial(self.is_safe, store, self.epoch, turn.number))

    def is_safe(self, store: Store, epoch: int, number: int, _round: int = 0) -> None:
        if epoch == self.epoch and number > store.batches:
            store.batches = number
        self.confirm()

    def confirm(self) -> None:
        members = [store for store in self.stores if store.in_sync]
        number = min(store.batches for store in members)
        while self.turns and self.turns[0].number <= number:
            for log, position, body in self.turns.pop(0).messages:
                self.confirmed[log][position] = body

    # --- what happens to stores ---

    @rule(index=STORES)
    def join(self, index: int) -> None:
        """A follower resyncs, within a turn; it is in sync when all of that is safe."""
        store = self.stores[index]
        if store is self.leader or index in self.live:
            return
        self.end_turn()
        number = self.turn.number - 1
        assert store.machine.replica is not None
        self.live.add(index)
        epoch = self.epoch

        def is_in_step() -> None:
            if epoch == self.epoch and index in self.live:
                store.in_sync = True
                self.is_safe(store, epoch, number)

        store.machine.replica.apply(list(plan(self.leader.machine, store.machine)), is_in_step)

    @rule(index=STORES)
    def leave(self, index: int) -> None:
        """A follower's link ends. It is not in sync any more, if another one is."""
        store = self.stores[index]
        if store is not self.leader:
            self.live.discard(index)
            store.in_sync = False
            self.confirm()

    @rule(index=STORES, operations=st.integers(0, 4), jobs=st.integers(0, 3))
    def go_on(self, index: int, operations: int, jobs: int) -> None:
        """A store's disk and background do some of their work."""
        machine = self.stores[index].machine
        machine.world.run()
        machine.disk.work(operations)
        if machine.disk.is_busy and not machine.disk.pending:
            machine.store.commit.completed()
        machine.housekeeping.run(jobs)
        machine.world.run()
        if self.stores[index] is not self.leader:
            machine.store.write_marks()

    @rule(index=STORES)
    def settle(self, index: int) -> None:
        self.stores[index].machine.settle()

    @rule(index=STORES, seed=SEEDS, power=st.booleans())
    def crash(self, index: int, seed: int, power: bool) -> None:
        store, rng = self.stores[index], Random(seed)
        (store.machine.cut_power if power else store.machine.kill)(rng)
        store.machine.start()
        if store is self.leader:
            candidates = [i for i, one in enumerate(self.stores) if one.in_sync]
            self.elect(rng.choice(candidates))
        else:
            self.live.discard(index)
            if len([one for one in self.stores if one.in_sync]) > 1:
                store.in_sync = False
            self.confirm()

    @rule(index=STORES)
    @precondition(lambda self: self.bodies > 0)
    def hand_over(self, index: int) -> None:
        if self.stores[index].in_sync and self.stores[index] is not self.leader:
            self.elect(index)

    # --- in the end ---

    def check_all(self) -> None:
        for index in range(3):
            self.join(index)
        self.end_turn()
        for _ in range(2):
            for store in self.stores:
                store.machine.settle()
        assert not self.turns, "all is confirmed"
        first = self.leader.machine
        for store in self.stores:
            machine = store.machine
            assert machine.segments() == first.segments()
            assert machine.marks() == first.marks()
            assert not machine.world.errors
            assert not machine.mismatches
        contents = [self.contents_after_restart(store.machine) for store in self.stores]
        assert contents[0] == contents[1] == contents[2]

    def contents_after_restart(self, machine: ShardMachine) -> object:
        machine.stop()
        machine.start()
        led = machine.lead(self.epoch + 1)
        self.leader = next(store for store in self.stores if store.machine is machine)
        self.logs = {log: led.open_log(log)[0] for log in QUEUES}
        self.stream, position = led.open_stream(STREAM.queue)
        self.check_leader()
        return (
            [[(at, found.body) for at, found in browse(log)] for log in self.logs.values()],
            (position, self.stream.count, stream_bodies(machine)),
        )


def stream_bodies(machine: ShardMachine) -> dict[int, bytes]:
    machine.settle()
    found: dict[int, bytes] = {}
    for name, data in machine.segments().items():
        if name.startswith(f"{STREAM.queue}/"):
            found |= {record.position: record.message.body for record in records(data)}
    return found


TestReplica = ReplicaTest.TestCase
TestReplica.settings = settings(
    max_examples=int(os.environ.get("REPLICA_EXAMPLES", "40")), stateful_step_count=40, deadline=None
)
