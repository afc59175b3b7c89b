"""A leader's term: what it has appended, who has it, and who is a member.

Batches are numbered by their index. Index 0 stands for all that the leader had when its epoch began. A batch
is committed when it is synced here and on every other member: the in-sync set of the record, and whoever may
be in it by an admission that was sent. A follower counts as having nothing until it is in step, that is, has
acked the batch by which all its logs were live; then it has at least index 0.

Nobody votes. Whoever is a member has all that was committed, so any member can lead next.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from warren.cluster import config
from warren.cluster.beacons import NEVER, Lease
from warren.cluster.catchup import Catchup, Progress, size_of
from warren.cluster.config import Known, Leadership, ShardRecord, StoreId
from warren.cluster.effects import Close, GoOn, ReadMarks, ReadRecords, Send
from warren.cluster.inventory import Fetch
from warren.cluster.messages import Batch, Inventory, Refused
from warren.cluster.session import NOTHING, Backoff, Sent, Session
from warren.cluster.settings import BATCH_BYTES_MAX, IN_FLIGHT_BYTES_MAX, INVENTORY_LOGS_MAX
from warren.cluster.this_node import LedLogs, ThisNode
from warren.storage.replication import AllMarks, LogChange, LogId, Records, SegmentState


class Wish(NamedTuple):
    """A record that the leader wants written."""

    record: ShardRecord
    admitted: StoreId | None = None  # counts as a member from now on
    counted_out: frozenset[StoreId] = frozenset()  # wrongly so: only if a rule is switched off


class HandOver(NamedTuple):
    """A leader wants to hand over, without need: it stops when it is seen that etcd takes what is written."""

    successor: StoreId | None  # None: whoever is ready
    for_good: bool  # that one is to be the preferred leader from now on


class Leader:
    """One term of this store as the leader of a shard."""

    def __init__(self, node: ThisNode, shard: int, known: Known, logs: LedLogs, now: float) -> None:
        self.node = node  # what the shards of this node share
        self.shard = shard  # its number
        self.logs = logs  # as memory has them
        self.record = known.record  # the newest of this epoch
        self.epoch = known.record.epoch  # of this term
        self.begun_at = now  # when this store heard that it leads
        self.index = 0  # of the last batch
        self.synced = NOTHING if node.rules.barrier else 0  # the index up to which all is synced here
        self.barrier = node.next_token()  # of the `Apply` that syncs all that this store has
        self.commit = NOTHING  # the index up to which all members have everything
        self.told = NOTHING  # the index up to which `Committed` was told
        self.sessions: dict[StoreId, Session] = {}  # the newest of each follower
        self._pages: dict[StoreId, tuple[int, dict[LogId, tuple[SegmentState, ...]]]] = {}  # of inventories
        self.admitting: dict[StoreId, int] = {}  # who may be a member, by an admission at this revision
        self.counted_out: frozenset[StoreId] = frozenset()  # too early: only if a rule is switched off
        self.others: tuple[StoreId, ...] = ()  # all members but this store
        self.lease = Lease(node.settings.lease)  # who has echoed its beacons
        self.backoffs: dict[StoreId, Backoff] = {}  # of stores that have left the in-sync set
        self.plan: HandOver | None = None  # what it is about to stop for
        self.planned_at = NEVER  # when it last had such a plan
        self.stopped_at: float | None = None  # when it began to hand over
        self.gives_up = False  # handing over: it takes too long, and there is no need
        self.silent: StoreId | None = None  # led before, and was waited for until this store stood
        self.handed_at: int | None = None  # the revision at which another store may yet be made the leader
        self.successor: StoreId | None = None  # the one it should hand over to, if there is a wish
        self.for_good = False  # that one is to be the preferred leader from now on
        self._count_members()

    # --- members ---

    def learn(self, known: Known, now: float) -> None:
        """The record has changed, in this same epoch."""
        left = set(self.record.isr) - set(known.record.isr)
        for store in left:
            settings = self.node.settings
            self.backoffs.setdefault(store, Backoff()).leave(
                now, first=settings.readmission_first, last=settings.readmission_last
            )
        self._end_sessions(known.record)
        self.record = known.record
        self.admitting = {s: revision for s, revision in self.admitting.items() if revision >= known.revision}
        if self.handed_at is not None and self.handed_at < known.revision:
            self.handed_at = None
        self.counted_out = frozenset()
        self._count_members()
        self.advance()

    def _end_sessions(self, record: ShardRecord) -> None:
        """Stores that keep nothing get nothing. One that was added may have left before that, and removed its
        copies: what it acked says nothing any more.
        """
        kept = set(record.replicas)
        if record.adds == self.record.adds or not self.node.rules.fresh_session:
            kept.update(record.joining)
        for store in [store for store in self.sessions if store not in kept]:
            self.end_session(store)
            self.node.effects.append(Send(store, Refused(self.shard, self.epoch)))

    def keeps(self, store: StoreId) -> bool:
        """Whether a store keeps the shard, or is about to."""
        return store in self.record.replicas or store in self.record.joining

    def forget_admissions(self) -> None:
        """Admissions that are not in the record may still be written: only a broken rule forgets them."""
        self.admitting.clear()
        self._count_members()

    def is_sending(self, wish: Wish, revision: int) -> bool:
        """The wish is about to be sent to etcd. Whether only that makes it doubtful what will be written."""
        rules = self.node.rules
        if wish.admitted is not None:
            is_first = wish.admitted not in self.admitting
        else:
            is_first = self.handed_at is None
        if wish.admitted is not None and rules.early_admission:
            self.admitting[wish.admitted] = revision
        if wish.record.epoch != self.epoch and rules.doubtful_hand_over:
            self.handed_at = revision
        if not rules.known_shrink:
            self.counted_out = wish.counted_out
        self._count_members()
        return is_first

    def was_not_sent(self, wish: Wish) -> None:
        """Nothing will come of the wish, nor of an earlier one like it."""
        if wish.admitted is not None:
            self.admitting.pop(wish.admitted, None)
        elif wish.record.epoch != self.epoch:
            self.handed_at = None
        self._count_members()
        self.advance()

    def _count_members(self) -> None:
        mine = self.node.me.store
        members = dict.fromkeys((*self.record.isr, *self.admitting))
        self.others = tuple(store for store in members if store != mine and store not in self.counted_out)

    # --- batches ---

    def append(self, changes: Sequence[LogChange], now: float) -> int:
        """Changes that were made here go to all followers. Say their index."""
        self.index += 1
        changes = tuple(changes)
        is_full = False
        for session in self.sessions.values():
            if session.catchup is None:
                self._send(session, changes, now)
            else:
                passed = session.catchup.pass_on(changes)
                if passed:
                    self._send(session, passed, now)
            if session.in_flight > IN_FLIGHT_BYTES_MAX:
                is_full = True
        if is_full:
            self._end_full_sessions()
        return self.index

    def _end_full_sessions(self) -> None:
        """Nobody waits for a store that is no member: it begins anew when it has acked nothing of so much."""
        for session in list(self.sessions.values()):
            if session.in_flight > IN_FLIGHT_BYTES_MAX and session.store not in self.others:
                self.refuse(session.store, session.session)

    def _send(
        self, session: Session, changes: Sequence[LogChange], now: float, *, in_step: bool = False
    ) -> None:
        size = size_of(changes)
        parts = [tuple(changes)] if size <= BATCH_BYTES_MAX else _parts(changes)
        for position, part in enumerate(parts, 1):
            is_last = position == len(parts)
            session.number += 1
            reaches = self.index if is_last and session.is_counted else NOTHING
            part_size = size if len(parts) == 1 else size_of(part)
            session.unacked.append(Sent(session.number, reaches, part_size, now))
            session.in_flight += part_size
            batch = Batch(self.shard, self.epoch, session.session, session.number, part, in_step and is_last)
            self.node.effects.append(Send(session.store, batch))

    def is_synced(self, index: int) -> None:
        """All batches up to this index are synced here."""
        self.synced = max(self.synced, index)
        self.advance()

    def ack(self, store: StoreId, number: int, of_session: int, now: float) -> None:
        """A follower has synced all batches of its session up to this number."""
        session = self.sessions.get(store)
        if session is None or session.session != of_session:
            return
        unacked = session.unacked
        while unacked and unacked[0].number <= number:
            sent = unacked.popleft()
            session.in_flight -= sent.size
            if sent.reaches > session.acked:
                session.acked = sent.reaches
                if session.in_step_since is None:
                    session.in_step_since = now
                    session.trying_since = None
                    session.is_damaged = False
        if session.catchup is not None:
            self._go_on(session, now)
        self.advance()

    def advance(self) -> None:
        """What all members have is committed."""
        acked = [self._acked(store) for store in self.others]
        rules = self.node.rules
        if not rules.all_members:
            acked = sorted(acked, reverse=True)[: self.node.settings.min_in_sync - 1]
        if rules.own_disk_counts:
            acked.append(self.synced)
        low = min(acked, default=self.index)
        self.commit = max(self.commit, low)

    def _acked(self, store: StoreId) -> int:
        session = self.sessions.get(store)
        return NOTHING if session is None else session.acked

    @property
    def is_behind(self) -> bool:
        """Whether a member owes so much that publishers should wait."""
        for store in self.others:
            session = self.sessions.get(store)
            if session is not None and session.in_flight > IN_FLIGHT_BYTES_MAX:
                return True
        return False

    # --- sessions ---

    def inventory(self, store: StoreId, page: Inventory, now: float) -> None:
        """A follower opens a session, and says what it has; in several pages, if it is much."""
        number, logs = self._pages.pop(store, (page.session, {}))
        if number != page.session:
            logs = {}
        for log, segments in page.logs:
            logs[log] = (*logs.get(log, ()), *segments)
        if len(logs) > INVENTORY_LOGS_MAX:
            self.node.effects.append(Close(store, "its inventory has too many logs"))
            return
        if page.is_last:
            self._begin_session(store, page.session, logs, now)
        else:
            self._pages[store] = (page.session, logs)

    def _begin_session(
        self, store: StoreId, number: int, logs: dict[LogId, tuple[SegmentState, ...]], now: float
    ) -> None:
        session = self.sessions[store] = Session(store, number, now, self.sessions.get(store))
        session.is_damaged = any(segment.damaged for log in logs.values() for segment in log)
        session.catchup = Catchup(
            self.logs,
            logs,
            self.node.rules,
            partial(self._send, session, now=now),
            partial(self._ask, session),
            partial(self._ask_marks, session),
        )
        self._go_on(session, now)

    def records_read(self, store: StoreId, session_number: int, records: Records | None, now: float) -> None:
        """Bytes of a segment were read for a follower that catches up."""
        session = self.sessions.get(store)
        if session is None or session.session != session_number or session.catchup is None:
            return
        session.catchup.send = partial(self._send, session, now=now)
        session.catchup.records_read(records)
        self._go_on(session, now)

    def marks_read(self, want: ReadMarks, marks: AllMarks | None, now: float) -> None:
        """Marks of a segment were read for a follower that catches up."""
        session = self.sessions.get(want.to)
        if session is None or session.session != want.session or session.catchup is None:
            return
        session.catchup.marks_read(want.log, want.base, want.epoch, marks)
        self._go_on(session, now)

    def _ask_marks(self, session: Session, log: LogId, base: int, epoch: int) -> None:
        self.node.effects.append(ReadMarks(self.shard, session.store, session.session, log, base, epoch))

    def go_on(self, store: StoreId, session_number: int, now: float) -> None:
        """Another turn has come for a follower that catches up."""
        session = self.sessions.get(store)
        if session is not None and session.session == session_number and session.catchup is not None:
            session.asks_for_turn = False
            self._go_on(session, now)

    def _go_on(self, session: Session, now: float) -> None:
        catchup = session.catchup
        assert catchup is not None
        catchup.send = partial(self._send, session, now=now)
        if catchup.holds_too_much:
            self.refuse(session.store, session.session)
            return
        progress = catchup.go_on(session.in_flight, self.node.settings.logs_a_turn)
        is_done = progress is Progress.DONE
        if progress is Progress.MORE and not session.asks_for_turn:
            session.asks_for_turn = True
            self.node.effects.append(GoOn(self.shard, session.store, session.session))
        if is_done or (not self.node.rules.all_logs and catchup.live and not session.is_counted):
            session.is_counted = True
            self._send(session, (), now, in_step=True)
        if is_done:
            session.catchup = None

    def _ask(self, session: Session, log: LogId, fetch: Fetch) -> None:
        self.node.effects.append(
            ReadRecords(
                self.shard,
                session.store,
                session.session,
                log,
                fetch.base,
                fetch.epoch,
                fetch.offset,
                fetch.end,
            )
        )

    def end_session(self, store: StoreId) -> None:
        """The link to a follower has ended."""
        self.sessions.pop(store, None)
        self._pages.pop(store, None)

    def refuse(self, store: StoreId, number: int) -> None:
        """A session cannot go on: the follower begins anew after a while."""
        session = self.sessions.get(store)
        if session is not None and session.session == number:
            self.end_session(store)
            self.node.effects.append(Send(store, Refused(self.shard, self.epoch)))

    def end_catchups(self) -> None:
        """This store has not all that it should have: nobody may catch up with what it has."""
        for session in [each for each in self.sessions.values() if each.catchup is not None]:
            self.refuse(session.store, session.session)

    # --- what should be written ---

    def resume(self) -> None:
        """Nobody took over, and nobody can any more."""
        self.stopped_at = self.successor = None
        self.gives_up = self.for_good = False

    def intend(self, plan: HandOver, now: float) -> None:
        """Hand over, as soon as it is seen that etcd takes what is written. Until then all goes on."""
        self.plan, self.planned_at = plan, now

    def carry_out_plan(self, now: float) -> None:
        """Something was written to the record."""
        plan, self.plan = self.plan, None
        if plan is None:
            return
        if self.has_heir(plan.successor):
            self.stop(now, plan.successor, for_good=plan.for_good)
        else:
            self.planned_at = NEVER  # nothing came of it: another plan need not wait

    def stop(self, now: float, successor: StoreId | None = None, *, for_good: bool = False) -> None:
        """Begin to hand over: nothing new is taken, and nothing delivered."""
        if self.stopped_at is None:
            self.plan = None
            self.stopped_at = now
            self.successor = successor
            self.for_good = for_good

    def wish(self, now: float) -> Wish | None:
        """How the record should change now."""
        hand_over = None if self.gives_up else self._hand_over(now)
        return hand_over or self._shrink(now) or self._admission(now) or self._settle()

    def _hand_over(self, now: float) -> Wish | None:
        if self.stopped_at is None:
            return None
        is_late = now - self.stopped_at > self.node.settings.hand_over_patience
        if (self.commit < self.index or self.logs.has_news()) and not is_late:
            return None
        there = self.others_there()
        # Every member has all that was confirmed. One in step opens at once.
        ready = [store for store in there if self._acked(store) >= 0] or (there if is_late else [])
        if not ready:
            return None
        best = self.successor if self.successor in ready else max(ready, key=self._acked)
        assert best is not None
        least = self.node.settings.min_in_sync
        made = config.hand_over(
            self.record,
            Leadership(best, self.node.links[best]),
            for_good=self.for_good and best == self.successor,
            leaves=self.node.is_leaving and len(self.record.isr) > least,
            min_in_sync=least,
        )
        return Wish(made)

    def others_there(self) -> list[StoreId]:
        """Who is in sync, and could be handed the shard, in step or not."""
        links, mine = self.node.links, self.node.me.store
        return [s for s in self.record.isr if s != mine and s in links and self.may_get(s)]

    def may_get(self, store: StoreId) -> bool:
        """Whether a store may be handed the shard: it neither drains nor is about to end."""
        return store not in self.node.avoided and store not in self.node.farewells

    def is_ready(self, store: StoreId) -> bool:
        """Whether a store could take over at once."""
        node = self.node
        is_there = store in self.record.isr and store in node.links and self.may_get(store)
        return is_there and self._acked(store) >= 0

    def has_heir(self, successor: StoreId | None = None) -> bool:
        """Whether this store could take over at once, or anybody if none is named."""
        heirs = self.record.isr if successor is None else (successor,)
        return any(self.is_ready(store) for store in heirs if store != self.node.me.store)

    def is_gone(self, store: StoreId, now: float) -> bool:
        """Whether a member cannot be waited for: its process is gone, it owes an echo or an ack, or it begins
        one session after the other and is never in step.
        """
        if store in self.node.refused or store in self.node.farewells:
            return True
        if store == self.silent and store not in self.sessions:  # it was waited for long enough
            return True
        patience = self.node.settings.lease
        if now - self.begun_at < patience:
            return False
        session = self.sessions.get(store)
        if session is None or session.is_damaged or self.lease.has_lapsed(store, now):
            return True
        if session.trying_since is not None and now - session.trying_since > patience:
            return True
        return bool(session.unacked) and now - session.unacked[0].sent_at > patience

    def _shrink(self, now: float) -> Wish | None:
        mine = self.node.me.store
        late = [s for s in self.record.isr if s != mine and self.is_gone(s, now)]
        if not late:
            return None
        gone = frozenset(late)
        least = self.node.settings.min_in_sync if self.node.rules.never_below_min else 1
        if len(self.record.isr) - len(gone) < least:
            return None
        return Wish(config.shrink(self.record, gone, min_in_sync=least), counted_out=gone)

    def _admission(self, now: float) -> Wish | None:
        record, least = self.record, self.node.settings.min_in_sync
        needed = max(self.commit, 0) if self.node.rules.joiner_has_opening else self.commit
        for store, session in self.sessions.items():
            if store in record.isr or session.acked < needed or self.is_gone(store, now):
                continue
            backoff = self.backoffs.get(store)
            if backoff is not None and now < backoff.until:
                continue
            leaver = next((s for s in record.leaving if s != self.node.me.store), None)
            if store in record.joining and leaver is not None:
                return Wish(config.swap(record, store, leaver, min_in_sync=least), store)
            if store in record.replicas or (store in record.joining and not record.leaving):
                return Wish(config.admit(record, store, min_in_sync=least), store)
        return None

    def _settle(self) -> Wish | None:
        """What was sent may yet be written: the same record at a new revision ends that. It also shows that
        etcd takes what is written, before this leader stops without need.
        """
        is_wanted = self.admitting or self.handed_at is not None or self.plan is not None
        return Wish(self.record) if is_wanted else None


def _parts(changes: Sequence[LogChange]) -> list[tuple[LogChange, ...]]:
    """Changes in batches of about a frame's size."""
    parts: list[tuple[LogChange, ...]] = []
    part: list[LogChange] = []
    size = 0
    for change in changes:
        part.append(change)
        size += size_of((change,))
        if size >= BATCH_BYTES_MAX:
            parts.append(tuple(part))
            part, size = [], 0
    if part:
        parts.append(tuple(part))
    return parts
