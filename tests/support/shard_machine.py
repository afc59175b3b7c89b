"""A node of a cluster as far as its disk is concerned: it leads a shard, or has a copy of it, on a disk that
loses and fails.

Nothing happens by itself: `settle` lets the disk, the event loop and the background go on until nothing is
left to do. `resync` does what a leader and a follower do when they meet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tests.support.log_machine import LogMachine
from warren.amqp.budget import Budget
from warren.broker.turns import Turns
from warren.storage.ack_file import read_fates
from warren.storage.copying import read_marks, read_records
from warren.storage.fates import Fates
from warren.storage.led_shard import LedShard
from warren.storage.replica import Replica
from warren.storage.replication import LogChange, LogId, RemoveLog, SetAside, Truncate
from warren.storage.segment_copies import ReplicaMismatch

SHARD = 3
ROUNDS_MAX = 1_000
RETRY_SECONDS = 0.6


class ShardMachine(LogMachine):
    """A store that keeps one shard. The data directory is `data` in the given directory."""

    def __init__(self, path: Path, **settings: int) -> None:
        path.mkdir(exist_ok=True)
        self.streams: set[int] = set()  # the numbers of queues that are streams
        super().__init__(path, **settings)  # type: ignore[arg-type]  # all of them are numbers

    def start(self) -> None:
        super().start()
        self.mismatches: list[ReplicaMismatch] = []
        self.led: LedShard | None = None
        self.replica: Replica | None = None
        self.turns = Turns(self.world, Budget(), lambda: None, self.world.report)
        self.shards = self.store.open_shards(
            call_from_thread=self.world.call_soon,
            is_stream=lambda queue: queue in self.streams,
            spread=self.turns.spread,
        )
        found = self.shards.find(SHARD)
        self.replica = self.shards.follow(SHARD, found, on_mismatch=self.mismatches.append)

    def settle(self) -> None:
        """Go on until nothing is left to do."""
        for _ in range(ROUNDS_MAX):
            while self.finish_round():
                pass
            self.store.write_marks()
            if not (self.housekeeping.waiting or self.world.soon or self.disk.is_busy or self.world.later):
                return
            self.housekeeping.run()
            if not (self.world.soon or self.disk.is_busy):
                self.world.advance(RETRY_SECONDS)
        raise AssertionError("it is never done")

    # --- roles ---

    def lead(self, epoch: int) -> LedShard:
        assert self.replica is not None
        leading: list[LedShard] = []
        self.shards.lead(self.replica, epoch, leading.append)
        self.settle()
        self.replica, self.led = None, leading[0]
        return leading[0]

    def follow(self) -> Replica:
        if self.led is not None:
            following: list[Replica] = []
            self.shards.follow_again(self.led, following.append)
            self.settle()
            self.led, self.replica = None, following[0]
        assert self.replica is not None
        return self.replica

    def take(self) -> list[LogChange]:
        """The end of a turn: what has changed in it."""
        assert self.led is not None
        self.store.write_marks()
        return self.led.take()

    def apply(self, changes: list[LogChange]) -> list[bool]:
        """Take what the leader sends. The list has something in it once all of it is safe."""
        assert self.replica is not None
        safe: list[bool] = []
        self.replica.apply(changes, lambda: safe.append(True))
        return safe

    @property
    def shard_directory(self) -> Path:
        return self.data / "shards" / str(SHARD)

    def segments(self) -> dict[str, bytes]:
        """All segments in the shard's directory, by their names."""
        files = sorted(self.shard_directory.rglob("*.seg"))
        return {str(file.relative_to(self.shard_directory)): file.read_bytes() for file in files}

    def marks(self) -> dict[str, bytes]:
        """What the ack files of these segments come to."""
        found = {}
        for file in sorted(self.shard_directory.rglob("*.seg")):
            acks, base = file.with_suffix(".acks"), int(file.stem)
            fates = read_fates(acks, base)[0] if acks.exists() else Fates(base)
            found[str(file.relative_to(self.shard_directory))] = fates.encode()
        return found


def resync(leader: ShardMachine, follower: ShardMachine) -> list[bool]:
    """Bring a follower's copies in step with what the leader has now."""
    return follower.apply(list(plan(leader, follower)))


def plan(leader: ShardMachine, follower: ShardMachine) -> Iterator[LogChange]:
    """What to send so that the follower has what the leader has."""
    led, replica = leader.led, follower.replica
    assert led is not None
    assert replica is not None
    theirs, ours = replica.inventory(), led.inventory()
    for log, states in theirs.items():
        known = {(state.base, state.epoch) for state in ours.get(log, ())}
        if (
            log not in ours
            and log.queue not in {other.queue for other in ours}
            and led.replica.logs.get(log) is None
        ):
            yield RemoveLog(log)
            continue
        for state in states:
            if (state.base, state.epoch) not in known or state.damaged:
                yield SetAside(log, state.base, state.epoch)
    for log in ours:
        yield from plan_of_log(
            led, log, {(s.base, s.epoch): s.length for s in theirs.get(log, ()) if not s.damaged}
        )


def plan_of_log(led: LedShard, log: LogId, theirs: dict[tuple[int, int], int]) -> Iterator[LogChange]:
    for state in led.inventory()[log]:
        length = theirs.get((state.base, state.epoch), 0)
        if length > state.length:
            yield Truncate(log, state.base, state.epoch, state.length)
        source = led.source(log, state.base)
        assert source is not None
        while length < source.written:
            records = read_records(source, length)
            assert records is not None
            yield records
            length += len(records.data)
        rest = led.unwritten(log, state.base, length, state.length) if length < state.length else None
        if rest is not None:
            yield rest
        marks = led.marks(log, state.base)
        assert marks is not None
        yield read_marks(marks)
    yield from led.offsets(log)


def close_all(*machines: ShardMachine) -> None:
    for machine in machines:
        machine.close()


def file_names(directory: Path) -> list[str]:
    return sorted(os.path.relpath(file, directory) for file in directory.rglob("*") if file.is_file())
