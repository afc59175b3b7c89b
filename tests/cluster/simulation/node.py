"""A simulated node: a process with the real protocol in it, a disk, a clock, and clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tests.cluster.simulation.balancing import known_stores
from tests.cluster.simulation.disk import (
    RECORDS_A_SEGMENT,
    Disk,
    Segment,
    ShardLogs,
    Token,
    Violation,
    pack,
    states,
)
from tests.cluster.simulation.etcd import Request
from warren.cluster.config import Leadership, RunId, StoreId
from warren.cluster.effects import (
    Apply,
    Cas,
    Close,
    Committed,
    ConfirmGone,
    GoOn,
    KeepEpoch,
    KeepWhole,
    ReadMarks,
    ReadRecord,
    ReadRecords,
    RecordIsOlder,
    RemoveCopies,
    Role,
    RoleChanged,
    Send,
    TakeInventory,
)
from warren.cluster.known_stores import KnownStores
from warren.cluster.messages import Acks, Inventory
from warren.cluster.participant import Participant
from warren.cluster.safety import ShardSafety
from warren.storage.replication import AllMarks, Drop, LogChange, LogId, Marks, Records, RemoveLog

if TYPE_CHECKING:
    from tests.cluster.simulation.world import World


class MarksRead(NamedTuple):
    asked: ReadMarks
    marks: AllMarks | None  # as they were when they were asked for


class Term:
    """What clients know of a leader's term."""

    __slots__ = ("appended", "deliverable", "ends", "epoch", "fresh", "safety")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.safety = ShardSafety()
        self.appended: deque[tuple[LogId, int, int]] = deque()  # log, position, number: not confirmed yet
        self.fresh: set[LogId] = set()  # logs in which something was confirmed just now
        self.deliverable: list[tuple[LogId, int, int]] = []
        self.ends: dict[LogId, int] = {}  # where logs go on of which all segments were dropped


class Node:
    __slots__ = (
        "disk",
        "is_failing",
        "is_up",
        "life",
        "newest_session",
        "offset",
        "participant",
        "paused_until",
        "place",
        "rate",
        "reads",
        "stores",
        "terms",
        "tick_at",
        "wipes",
        "world",
    )

    def __init__(self, world: World, place: int) -> None:
        self.world = world
        self.place = place  # among the nodes
        self.life = 0  # how often its process was started
        self.wipes = 0  # of its disk
        self.is_up = False  # its process
        self.is_failing = False  # the disk
        self.rate = 1.0  # of its clock
        self.offset = 0.0  # of its clock
        self.paused_until = 0.0  # in the true time, as the next one
        self.tick_at = 0.0
        self.disk = self._new_disk()
        world.by_store[self.disk.store] = self
        self.reads: list[ReadRecords | GoOn | MarksRead] = []  # for followers that catch up, not answered
        self.terms: dict[int, Term] = {}  # by shard that it leads
        self.newest_session: dict[int, int] = {}  # by shard
        self.participant: Participant
        self.stores: KnownStores  # as this run of the node knows them

    @property
    def store(self) -> StoreId:
        return StoreId(self.disk.store)

    def now(self) -> float:
        return self.offset + self.rate * self.world.time

    def _new_disk(self) -> Disk:
        name = f"{'abcdefgh'[self.place]}{self.wipes if self.world.disk_rules.new_identity else ''}"
        return Disk(name, self.world.shards, marks_go=self.world.disk_rules.marks_go)

    # --- life ---

    def boot(self) -> None:
        world = self.world
        self.life += 1
        self.is_up = True
        world.tick_at = 0.0
        me = Leadership(self.store, RunId(f"{self.store}.{self.life}"))
        self.participant = Participant(me, world.new_session, settings=world.settings, rules=world.rules)
        self.stores = known_stores(world, self)
        world.registry.register(self)
        self.reads = []
        self.terms = {}
        self.newest_session = {}
        now = self.now()
        for shard in range(world.shards):
            epoch = self.disk.durable.epochs[shard] if world.rules.durable_epochs else 0
            whole = self.disk.durable.whole[shard]
            logs = ShardLogs(self.disk, shard)
            made = self.participant.add_shard(shard, logs, epoch=epoch, is_whole=whole, now=now)
            if any(s.damaged for log in self.disk.memory.shards[shard].values() for s in log.values()):
                made.damage_found(now)
        if self.is_failing:
            self.participant.disk_fails(now)
        self.participant.tick(now)
        self.carry_out()

    def crash(self) -> None:
        """The process and the machine end at once."""
        self.is_up = False
        self.disk.power_cut(self.world.chance)
        self.paused_until = 0.0
        for shard in range(self.world.shards):
            self._check(shard, "after a power cut")

    def wipe(self) -> None:
        if self.is_up:
            self.crash()
        self.wipes += 1
        del self.world.by_store[self.disk.store]
        self.disk = self._new_disk()
        self.world.by_store[self.disk.store] = self

    def _check(self, shard: int, what: str, logs: list[LogId] | None = None) -> None:
        world = self.world
        if self.store in world.etcd.records[shard].record.isr:
            world.checks.has_all(shard, self.disk, what, logs)

    # --- effects ---

    def carry_out(self) -> None:
        home = self.participant.node
        if home.effects or home.acks:
            for effect in self.participant.take_effects():
                HANDLERS[type(effect)](self, effect)

    def _send(self, effect: Send) -> None:
        message = effect.message
        if type(message) is Acks:
            for ack in message.acks:
                self.world.checks.acked(self.disk.store, ack.shard, ack.epoch)
        elif type(message) is Inventory:
            self.newest_session[message.shard] = message.session
        self.world.network.send(self, effect.to, message)

    def _apply(self, effect: Apply) -> None:
        shard = effect.shard
        if effect.changes:
            self.world.checks.applies(self.disk.store, shard, effect.epoch)
            for change in effect.changes:
                self.change(shard, change)
        self.disk.pending.append((shard, Token(shard, effect.token)))

    def change(self, shard: int, change: LogChange) -> None:
        """A change reaches memory, and gathers for the disk."""
        memory = self.disk.memory
        took = memory.change(shard, change)
        self.disk.pending.append((shard, change))
        self.world.checks.wrote(shard, self.disk.store, memory.shards[shard], change)
        if took:
            self._check(shard, f"by {change}", [change.log])

    def sync(self) -> None:
        """All that has gathered is synced, or the first part of it."""
        disk, chance = self.disk, self.world.chance
        pending, disk.pending = disk.pending, []
        if not self.world.is_calm and pending and chance.random() < 0.3:
            part = int(chance.random() * len(pending))
            pending, disk.pending = pending[:part], pending[part:]
        durable = disk.durable
        tokens: list[Token] = []
        for shard, change in pending:
            if type(change) is Token:
                tokens.append(change)
            elif type(change) is int or type(change) is bool:
                durable.keep(shard, change)
            elif durable.change(shard, change):  # type: ignore[arg-type] # what is left is a change
                self._check(shard, f"by syncing {change}", [change.log])  # type: ignore[union-attr]
        if not self.is_up:
            return
        now = self.now()
        for token in tokens:
            shard_here = self.participant.shards[token.shard]
            if token.cleared:
                shard_here.copies_removed(token.token)
            elif token.index >= 0:
                shard_here.index_synced(token.epoch, token.index, now)
            else:
                shard_here.synced(token.token, now)
        self.carry_out()

    def _keep_epoch(self, effect: KeepEpoch) -> None:
        self.disk.keep(effect.shard, effect.epoch)

    def _keep_whole(self, effect: KeepWhole) -> None:
        self.disk.keep(effect.shard, effect.is_whole)

    def _take_inventory(self, effect: TakeInventory) -> None:
        logs = [(log, states(log_)) for log, log_ in self.disk.memory.shards[effect.shard].items()]
        participant = self.participant
        participant.shards[effect.shard].inventory_taken(effect.session, logs, self.now())
        self.carry_out()

    def _read_records(self, effect: ReadRecords | GoOn) -> None:
        self.reads.append(effect)

    def _read_marks(self, effect: ReadMarks) -> None:
        marks = self.disk.read_marks(effect.shard, effect.log, effect.base, effect.epoch)
        self.reads.append(MarksRead(effect, marks))

    def answer_read(self) -> None:
        """The disk has read what somebody catches up with."""
        want = self.reads.pop(0)
        if isinstance(want, MarksRead):
            self.participant.shards[want.asked.shard].marks_read(want.asked, want.marks, self.now())
            self.carry_out()
            return
        if isinstance(want, GoOn):
            self.participant.shards[want.shard].go_on(want.to, want.session, self.now())
            self.carry_out()
            return
        length = min(want.end - want.offset, 8 * self.world.chance.randrange(1, 4))
        read = self.disk.read(want.shard, want.log, want.base, want.epoch, want.offset, length)
        self.participant.shards[want.shard].records_read(want.to, want.session, read, self.now())
        self.carry_out()

    def _cas(self, effect: Cas) -> None:
        request = Request(self.place, self.life, effect.shard, effect.revision, effect.record)
        self.world.etcd.requests.append(request)

    def _read_record(self, effect: ReadRecord) -> None:
        request = Request(self.place, self.life, effect.shard, 0, None, asked=effect.number)
        self.world.etcd.requests.append(request)

    def clear(self, shard: int) -> None:
        """Look whether there are copies of a shard that this store does not keep any more."""
        here = self.participant.shards[shard]
        if here.role is Role.OUTSIDER and self.disk.memory.shards[shard]:
            here.clear(self.now())
            self.carry_out()

    def _confirm_gone(self, effect: ConfirmGone) -> None:
        request = Request(self.place, self.life, effect.shard, 0, None, effect.number)
        self.world.etcd.requests.append(request)

    def _record_is_older(self, effect: RecordIsOlder) -> None:
        if not self.world.is_restored:
            raise Violation(f"etcd has lost nothing, and {self.store} says that it has: {effect}")
        self.world.losses += 1

    def _remove_copies(self, effect: RemoveCopies) -> None:
        shard = effect.shard
        self.world.cleared += 1
        for log in list(self.disk.memory.shards[shard]):
            self.change(shard, RemoveLog(log))
        self.disk.pending.append((shard, Token(shard, effect.number, cleared=True)))

    def _close(self, effect: Close) -> None:
        raise Violation(f"{self.store} closes a link: {effect.reason}")

    # --- leading ---

    def _role_changed(self, effect: RoleChanged) -> None:
        if effect.role is Role.OPENING:
            self.world.leaderships += 1
            self.terms[effect.shard] = Term(effect.epoch)
            self.world.checks.leads(effect.shard, effect.epoch, self.disk)
            # It may hear of its election so late that another store leads by now: then it owes nothing.
            self._check(effect.shard, "of a new leader")
        elif effect.role is Role.OPEN:
            self.world.checks.opens(effect.shard, self.disk)
        elif effect.role in (Role.FOLLOWER, Role.OUTSIDER):
            term = self.terms.pop(effect.shard, None)
            if term is not None:
                term.safety.end()

    def _committed(self, effect: Committed) -> None:
        world, shard = self.world, effect.shard
        checks, term = world.checks, self.terms[shard]
        leader = self.participant.shards[shard].leader
        assert leader is not None
        record = world.etcd.records[shard].record
        if world.rules.all_members:  # else I2 tells
            checks.counts(record, effect.epoch, (*leader.others, self.store))
        fresh = term.fresh = set()
        if self._is_first(effect):
            for log, segments in self.disk.memory.shards[shard].items():
                for segment in segments.values():
                    if segment.epoch != effect.epoch:
                        self._count_segment(shard, log, segment)
                        fresh.add(log)
        term.safety.commit(effect.up_to)
        for node in world.nodes:
            if node.store in record.isr:
                checks.has_all(shard, node.disk, "when confirmed", fresh)

    def _confirm(self, shard: int, count: int, _: int) -> None:
        """A publisher gets confirms of all that it published in a turn."""
        term = self.terms[shard]
        for _number in range(count):
            log, position, number = term.appended.popleft()
            self.world.checks.confirm(shard, log, position, number)
            term.deliverable.append((log, position, number))
            term.fresh.add(log)

    def _is_first(self, effect: Committed) -> bool:
        key = (effect.shard, effect.epoch)
        is_first = key not in self.world.opened
        self.world.opened.add(key)
        return is_first

    def _count_segment(self, shard: int, log: LogId, segment: Segment) -> None:
        """All that a leader had when it was elected is committed as it opens."""
        term = self.terms[shard]
        for place, number in enumerate(segment.ids):
            position = segment.base + place
            if position not in segment.marks:
                self.world.checks.confirm(shard, log, position, number)
                term.deliverable.append((log, position, number))

    def publish(self, shard: int, log: LogId, count: int = 1) -> bool:
        """A client publishes some messages in one turn."""
        here = self.participant.shards[shard]
        if not here.takes_publishes:
            return False
        changes = [self._record(shard, log, here.epoch) for _ in range(count)]
        self.terms[shard].safety.when_safe(partial(self._confirm, shard, count))
        self._append(shard, changes)
        return True

    def _record(self, shard: int, log: LogId, epoch: int) -> Records:
        world = self.world
        segments = self.disk.memory.shards[shard].setdefault(log, {})
        tail = segments[max(segments)] if segments else None
        world.numbers += 1
        number = world.numbers
        end = max(self.terms[shard].ends.get(log, 1), tail.end if tail else 1)
        is_sealed = tail is not None and ((tail.epoch != epoch and world.disk_rules.seal) or tail.end < end)
        if tail is None or is_sealed or len(tail.ids) >= RECORDS_A_SEGMENT:
            base = end
            change = Records(log, base, epoch, 0, base, 1, pack((epoch, number)))
        else:
            change = Records(log, tail.base, tail.epoch, tail.length, tail.end, 1, pack((number,)))
        self.change(shard, change)
        self.terms[shard].appended.append((log, change.last, number))
        return change

    def _append(self, shard: int, changes: Sequence[LogChange]) -> None:
        here = self.participant.shards[shard]
        self.world.checks.appended(shard, here.epoch, self.participant.node.me)
        index = here.append(changes, self.now())
        self.terms[shard].safety.appended(index)
        self.disk.pending.append((shard, Token(shard, 0, epoch=here.epoch, index=index)))
        self.carry_out()

    def deliver(self, shard: int, acks: float = 0.7) -> None:
        """A consumer gets a message, and acks it with this chance."""
        here, term = self.participant.shards[shard], self.terms.get(shard)
        if term is None or not here.may_deliver(self.now()):
            return
        world, checks = self.world, self.world.checks
        if not world.disk_rules.committed_only and term.appended:
            log, position, number = term.appended[0]
            checks.delivers(shard, term.epoch, log, position, number)
        if not term.deliverable:
            return
        place = world.chance.randrange(len(term.deliverable))
        log, position, number = term.deliverable[place]
        checks.delivers(shard, term.epoch, log, position, number)
        if world.chance.random() < acks:
            del term.deliverable[place]
            self.ack(shard, log, position, number)

    def ack(self, shard: int, log: LogId, position: int, number: int) -> None:
        segments = self.disk.memory.shards[shard].get(log, {})
        self.world.checks.is_done(shard, log, position, number)
        for segment in segments.values():
            if segment.base <= position < segment.end:
                break
        else:
            return
        changes: list[LogChange] = [Marks(log, segment.base, segment.epoch, pack((position,)))]
        self.change(shard, changes[0])
        is_tail = segment.base == max(segments)
        if len(segment.marks) == len(segment.ids) and (not is_tail or self.world.chance.random() < 0.2):
            drop = Drop(log, segment.base, segment.epoch)
            ends = self.terms[shard].ends
            ends[log] = max(ends.get(log, 1), segment.end)
            self.change(shard, drop)
            changes.append(drop)
        self._append(shard, changes)

    def recover(self, shard: int) -> None:
        """A new leader drops what is done with before it is open, as a recovery does."""
        for log, segments in self.disk.memory.shards[shard].items():
            for segment in segments.values():
                if self.world.checks.done.issuperset(segment.ids):
                    ends = self.terms[shard].ends
                    ends[log] = max(ends.get(log, 1), segment.end)
                    drop = Drop(log, segment.base, segment.epoch)
                    self.change(shard, drop)
                    self._append(shard, [drop])
                    return

    def expire(self, shard: int, log: LogId) -> None:
        """A message expires, committed or not."""
        here = self.participant.shards[shard]
        segments = self.disk.memory.shards[shard].get(log)
        if not here.takes_publishes or not segments:
            return
        segment = segments[max(segments)]
        self.ack(shard, log, segment.end - 1, segment.ids[-1])

    def retain(self, shard: int, log: LogId) -> None:
        """A stream drops its oldest segment, whoever has read it."""
        here = self.participant.shards[shard]
        segments = self.disk.memory.shards[shard].get(log, {})
        if not here.takes_publishes or len(segments) < 2:
            return
        segment = segments[min(segments)]
        self._forget(shard, log, segment)
        drop = Drop(log, segment.base, segment.epoch)
        self.change(shard, drop)
        self._append(shard, [drop])

    def delete_log(self, shard: int, log: LogId) -> None:
        """A queue is deleted; its number is never used again."""
        here = self.participant.shards[shard]
        segments = self.disk.memory.shards[shard].get(log)
        if not here.takes_publishes or segments is None:
            return
        for segment in segments.values():
            self._forget(shard, log, segment)
        remove = RemoveLog(log)
        self.change(shard, remove)
        self._append(shard, [remove])
        self.world.delete_log(shard, log)

    def _forget(self, shard: int, log: LogId, segment: Segment) -> None:
        for place, number in enumerate(segment.ids):
            self.world.checks.is_done(shard, log, segment.base + place, number)
        term = self.terms[shard]
        keep = [d for d in term.deliverable if d[0] != log or not segment.base <= d[1] < segment.end]
        term.deliverable = keep


HANDLERS: dict[type, Callable[..., None]] = {
    Send: Node._send,
    Apply: Node._apply,
    KeepEpoch: Node._keep_epoch,
    KeepWhole: Node._keep_whole,
    TakeInventory: Node._take_inventory,
    ReadRecords: Node._read_records,
    GoOn: Node._read_records,
    ReadMarks: Node._read_marks,
    Cas: Node._cas,
    ReadRecord: Node._read_record,
    ConfirmGone: Node._confirm_gone,
    RemoveCopies: Node._remove_copies,
    Committed: Node._committed,
    RoleChanged: Node._role_changed,
    RecordIsOlder: Node._record_is_older,
    Close: Node._close,
}
