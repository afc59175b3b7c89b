"""The invariants of the cluster, looked at after each step.

`C` is what was confirmed and is not done with. I2: every store in the in-sync set has all of C, synced. It is
looked at where it can break: when something is confirmed, when a store joins the set, and when a store loses
something, by a change, a power cut or in its memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.cluster.simulation.disk import Disk, Log, Logs, Violation
from warren.cluster import config
from warren.cluster.config import Leadership, ShardRecord, StoreId
from warren.storage.replication import AllMarks, LogChange, LogId, Marks, Records


class Checks:
    def __init__(self, shards: int, min_in_sync: int) -> None:
        self.min_in_sync = min_in_sync
        self.confirmed: list[dict[LogId, dict[int, int]]] = [{} for _ in range(shards)]  # C, by position
        self.count = 0  # of all that were ever confirmed
        self.done: set[int] = set()  # records that were acked, dropped or purged
        self.written: dict[
            tuple[int, LogId, int, int], list[int]
        ] = {}  # records by shard, log, base and epoch
        self.terms: dict[tuple[int, int], Leadership] = {}  # who leads, by shard and epoch
        self.had: dict[tuple[int, int], dict[tuple[LogId, int, int], int]] = {}  # by a leader at its opening
        self.promised: dict[tuple[str, int], int] = {}  # the highest epoch that a store has acked, by shard
        self.delivered_in = [0] * shards  # the highest epoch in which something was delivered
        self.excused: set[tuple[str, int]] = set()  # stores with damaged segments, and the shard

    # --- I1, I3, I4: the record ---

    def record_changed(self, shard: int, old: ShardRecord, new: ShardRecord) -> None:
        """I1: each change is one of the named ones, and an epoch has one leader. I3, I4."""
        try:
            config.check(new, min_in_sync=self.min_in_sync)
        except config.IllegalChange as error:
            raise Violation(f"I3, I4: {error}: {new}") from error
        if config.named_change(old, new, min_in_sync=self.min_in_sync) is None or new.epoch < old.epoch:
            raise Violation(f"I1: no change leads from {old} to {new}")
        if new.leader is not None and self.terms.setdefault((shard, new.epoch), new.leader) != new.leader:
            raise Violation(f"I1: epoch {new.epoch} has two leaders")

    # --- I2, I10, I16: the in-sync set has all that was confirmed ---

    def has_all(self, shard: int, disk: Disk, what: str, logs: Iterable[LogId] | None = None) -> None:
        """A store of the in-sync set has all of C, synced and in memory."""
        confirmed = self.confirmed[shard]
        for log in confirmed if logs is None else logs:
            wanted = confirmed.get(log)
            if wanted:
                for state in (disk.durable, disk.memory):
                    lacks = _lacks(state.shards[shard].get(log, {}), wanted)
                    if lacks is not None and (disk.store, shard) not in self.excused:
                        place = f"{log} {lacks} of shard {shard}"
                        raise Violation(f"I2 {what}: {disk.store} in sync lacks {wanted[lacks]} at {place}")

    def is_excused(self, shard: int, disk: Disk) -> bool:
        """Whether a store that had damaged segments lacks something, or cannot know that it does not."""
        if not disk.durable.whole[shard]:
            return True
        for log, wanted in self.confirmed[shard].items():
            if _lacks(disk.durable.shards[shard].get(log, {}), wanted) is not None:
                return True
        return any(s.damaged for log in disk.memory.shards[shard].values() for s in log.values())

    def confirm(self, shard: int, log: LogId, position: int, number: int) -> None:
        """I6: a position has one record."""
        if number in self.done:
            return
        there = self.confirmed[shard].setdefault(log, {})
        if there.setdefault(position, number) != number:
            raise Violation(f"I6: {there[position]} and {number} are both confirmed at {log} {position}")
        self.count += 1

    def is_done(self, shard: int, log: LogId, position: int, number: int) -> None:
        self.done.add(number)
        there = self.confirmed[shard].get(log)
        if there is not None and there.get(position) == number:
            del there[position]

    def leads(self, shard: int, epoch: int, disk: Disk) -> None:
        """A term begins. Note what the leader has, for I10."""
        self.had[shard, epoch] = {
            (log, segment.base, segment.epoch): segment.length
            for log, segments in disk.memory.shards[shard].items()
            for segment in segments.values()
        }

    def opens(self, shard: int, disk: Disk) -> None:
        """No leader serves what it cannot read."""
        if (disk.store, shard) in self.excused and self.is_excused(shard, disk):
            raise Violation(f"I2: {disk.store} opens with a segment that is damaged, or was")

    def admitted(self, shard: int, epoch: int, leader: Disk | None, joiner: Disk) -> None:
        """I10: who gets into the in-sync set has all that the leader had when its epoch began."""
        self.has_all(shard, joiner, "of a joiner")
        if leader is None:
            return
        for (log, base, of_epoch), length in self.had.get((shard, epoch), {}).items():
            mine = leader.memory.shards[shard].get(log, {}).get(base)
            if mine is None or mine.epoch != of_epoch:
                continue  # it was dropped since
            if self.done.issuperset(mine.ids):
                continue  # it was dropped, and the leader has restarted before that was synced
            theirs = joiner.durable.shards[shard].get(log, {}).get(base)
            if theirs is None or theirs.epoch != of_epoch or theirs.length < min(length, mine.length):
                raise Violation(f"I10: {joiner.store} was admitted without {log} {base} of epoch {of_epoch}")

    # --- I5, I8, I12: what is written ---

    def wrote(self, shard: int, store: str, logs: Logs, change: LogChange) -> None:
        """A change has reached a store's memory."""
        if isinstance(change, Records):
            self._same_prefix(shard, store, logs[change.log][change.base].ids, change)
        if isinstance(change, (Records, Marks, AllMarks)):
            self._marks_are_right(store, logs.get(change.log, {}), change)

    def _same_prefix(self, shard: int, store: str, ids: list[int], change: Records) -> None:
        """I5: same base and epoch means that one is a prefix of the other."""
        known = self.written.setdefault((shard, change.log, change.base, change.epoch), [])
        first = len(ids) - change.count
        for place in range(first, len(ids)):
            if place == len(known):
                known.append(ids[place])
            elif known[place : place + 1] != [ids[place]]:
                raise Violation(f"I5: {store} has other records in {change.log} {change.base}")

    def _marks_are_right(self, store: str, log: Log, change: Records | Marks | AllMarks) -> None:
        """I12: what is marked was done with."""
        segment = log.get(change.base)
        if segment is None or segment.epoch != change.epoch:
            return
        for position in segment.marks:
            place = position - segment.base
            if place >= len(segment.ids):
                raise Violation(f"I12: {store} has a mark beyond the end of {change.log} {change.base}")
            if segment.ids[place] not in self.done:
                raise Violation(f"I12: {store} has a mark of {segment.ids[place]}, which is not done with")

    def appended(self, shard: int, epoch: int, who: Leadership) -> None:
        """I8: only the run that was elected appends in an epoch."""
        if self.terms.get((shard, epoch)) != who:
            raise Violation(f"I8: {who} appends in epoch {epoch} of {self.terms.get((shard, epoch))}")

    # --- I7, I17: fences ---

    def acked(self, store: str, shard: int, epoch: int) -> None:
        """A store promises that nothing of a lower epoch will change it."""
        key = (store, shard)
        if self.promised.get(key, 0) < epoch:
            self.promised[key] = epoch

    def applies(self, store: str, shard: int, epoch: int) -> None:
        if epoch < self.promised.get((store, shard), 0):
            raise Violation(f"I7, I17: {store} takes a batch of epoch {epoch}, and acked a later one")

    # --- I9: members ---

    def counts(self, record: ShardRecord, epoch: int, members: Iterable[StoreId]) -> None:
        """I9: who confirms counts all of the in-sync set."""
        if record.epoch == epoch and not set(record.isr) <= set(members):
            raise Violation(f"I9: confirmed by {tuple(members)}, while {record.isr} are in sync")

    # --- I11, I13: deliveries ---

    def delivers(self, shard: int, epoch: int, log: LogId, position: int, number: int) -> None:
        if epoch < self.delivered_in[shard]:
            raise Violation(f"I13: epoch {epoch} delivers after epoch {self.delivered_in[shard]} did")
        self.delivered_in[shard] = epoch
        if number not in self.done and self.confirmed[shard].get(log, {}).get(position) != number:
            raise Violation(f"I11: {number} is delivered and not confirmed")


def _lacks(log: Log, wanted: dict[int, int]) -> int | None:
    """The first position that a log should have and does not."""
    has: dict[int, int] = {}
    for segment in log.values():
        if not segment.damaged:
            has.update(zip(range(segment.base, segment.end), segment.ids, strict=True))
    for position, number in wanted.items():
        if has.get(position) != number:
            return position
    return None
