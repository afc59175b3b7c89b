"""One shard at one store: its role, its epoch, and what it knows of the record.

The epoch of a shard at a store is the highest that the store has heard of. It never goes down, not even over
a restart, and nothing of a lower epoch is taken. A store leads if the record says so, with its run and in
that epoch; else it follows whoever leads in that epoch.

The record is changed by one compare-and-swap at a time. If its outcome is not known, it may still be written
later, as long as the record has the revision that it compares. So until another revision is seen, a store
that may be admitted counts as a member, and a store that may be elected echoes no other leader's beacons. A
leader that may have handed over delivers nothing. So without need nobody begins what etcd may not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from warren.cluster import clearing, config
from warren.cluster.config import Known, Leadership, ShardRecord, StoreId
from warren.cluster.effects import (
    Apply,
    Cas,
    CasAnswer,
    Committed,
    KeepEpoch,
    ReadMarks,
    Role,
    RoleChanged,
    Send,
)
from warren.cluster.follower import Follower
from warren.cluster.leader import HandOver, Leader, Wish
from warren.cluster.messages import Ack, Batch, Beacon, Inventory, Refused
from warren.cluster.reads import Reads
from warren.cluster.roles import ROLES, Occasion
from warren.cluster.standing import is_gone, stands_at
from warren.cluster.this_node import LedLogs, ThisNode
from warren.cluster.transactions import Outcome
from warren.storage.replication import AllMarks, LogChange, LogId, Records, SegmentState


class Shard:
    def __init__(
        self, node: ThisNode, number: int, logs: LedLogs, *, epoch: int, is_whole: bool, now: float
    ) -> None:
        self.node = node  # what the shards of this node share
        self.number = number  # of the shard
        self.logs = logs  # as memory has them; asked only while this store leads
        self.epoch = epoch  # the highest that the store knows of
        self.role = Role.OUTSIDER  # changed by `_change_role` only
        self.known: Known | None = None  # the newest record that was seen
        self.follower = Follower(node, number, now)  # idle while this store leads
        self.leader: Leader | None = None  # this store's term, while it leads
        self.led_epoch = 0  # of its last term
        self.pending: int | None = None  # the revision that a compare-and-swap under way compares
        self.take_back: Callable[[], None] = _nothing  # called if that one was not sent
        self.stood_at: int | None = None  # the revision at which this store may yet be elected
        self.stood_against: tuple[StoreId | None, int] = (None, 0)  # a silent leader, and the epoch after its
        self.dead: Leadership | None = None  # the leader, if its process is known to be gone
        self.reads = Reads(node, number, now)  # of the record
        self.has_failed = False  # whether its owner has failed to do something for it, not long ago
        self.failed_at = now  # when that was
        self.quiet_until = now  # time alone changes nothing for a follower in step that hears its leader
        self.preferred_asked_at = now  # when the preferred leader was last to take over
        self.follower.epoch = epoch
        self.follower.is_whole = is_whole
        self.follower.is_noted = not is_whole
        if not node.rules.grace_after_boot:
            self.follower.patience.heard_at = now - node.settings.grace

    # --- the record ---

    def learn(self, known: Known, now: float) -> None:
        """The record, as a read, a watch or the answer to a compare-and-swap tells it."""
        if self.known is not None and known.revision < self.known.revision:
            return
        if self.known is not None and known.revision == self.known.revision:
            if self.leader is not None and not self.node.rules.late_cas and self.pending is None:
                self.leader.forget_admissions()
            return
        self.known = known
        record = known.record
        self.node.etcd.answered()
        self._end_doubt(known.revision)
        if record.epoch > self.epoch:
            self._enter(record.epoch, now)
            self.follower.patience.hear(now)
        if record.epoch == self.epoch and self._is_mine(record.leader):
            if self.leader is not None:
                self.leader.learn(known, now)
                self.leader.carry_out_plan(now)
                self.review(now)
            elif self.led_epoch < record.epoch:
                self._lead(known, now)
        elif self.leader is None:
            self._follow_record(record, now)

    def _end_doubt(self, revision: int) -> None:
        """What compares an older revision than this cannot be written any more."""
        if self.stood_at is not None and self.stood_at < revision:
            self.stood_at = None
        if self.pending is not None and self.pending < revision:
            self.pending = None

    def _follow_record(self, record: ShardRecord, now: float) -> None:
        mine = self.node.me.store
        is_named = clearing.is_named(mine, record)
        self._change_role(Occasion.NAMED if is_named else Occasion.NOT_NAMED)
        if is_named and record.epoch == self.epoch and record.leader is not None:
            self.follower.follow(record.leader.store, record.epoch, now)

    def _is_mine(self, leader: Leadership | None) -> bool:
        if leader is None:
            return False
        if not self.node.rules.new_epoch_at_restart:
            return leader.store == self.node.me.store
        return leader == self.node.me

    def record_read(self, number: int, known: Known, now: float) -> None:
        """What a `ReadRecord` asked for, perhaps after a compare-and-swap whose outcome is not known."""
        self.reads.answered(number, known, now)
        self.learn(known, now)
        if self.leader is None:
            self._consider_standing(now)

    def cas_answered(self, revision: int, answer: CasAnswer, now: float) -> None:
        """A compare-and-swap at this revision has an answer."""
        is_newest = self.pending == revision
        if is_newest:
            self.pending = None
        if isinstance(answer, Known):
            self.node.etcd.answered()
            self.reads.note(answer, is_older=answer.revision < revision)
            self.learn(answer, now)
        else:
            self.node.etcd.failed(now)
            if answer is Outcome.UNKNOWN:
                self._ask(now)
            elif is_newest:
                self._was_not_sent(now)

    def _was_not_sent(self, now: float) -> None:
        """What was last to be written never will be: etcd is away, and this shard goes on as it is."""
        self.take_back()
        leader = self.leader
        if leader is not None:
            if leader.stopped_at is not None and leader.handed_at is None and not self._is_unfit(now):
                leader.resume()
            self.review(now)

    def _ask(self, now: float) -> None:
        self.reads.ask(self.epoch, self.known, now)

    def _cas(self, record: ShardRecord, now: float, take_back: Callable[[], None]) -> None:
        """Send a compare-and-swap. Call `take_back` if it turns out that it was not sent."""
        assert self.known is not None
        self.pending = self.known.revision
        self.take_back = take_back
        self.node.etcd.asks(now)
        self.node.effects.append(Cas(self.number, self.known.revision, record))

    # --- epochs and roles ---

    def _change_role(self, occasion: Occasion) -> None:
        """The one place that changes the role."""
        role = ROLES.get((self.role, occasion))
        if role is not None:
            self.role = role
            self.node.effects.append(RoleChanged(self.number, self.epoch, role))

    def _enter(self, epoch: int, now: float) -> None:
        """A higher epoch than all before is known. A leader of an older one does not lead any more."""
        self.epoch = epoch
        self.stood_at = None  # the record has changed, so this store cannot be elected by what it sent
        self.node.effects.append(KeepEpoch(self.number, epoch))
        if self.leader is not None:
            self.leader = None
            self._change_role(Occasion.DEPOSED)
        self.follower.follow(None, epoch, now)

    def _lead(self, known: Known, now: float) -> None:
        node = self.node
        self.led_epoch = known.record.epoch
        self.follower.follow(None, self.epoch, now)
        silent, epoch = self.stood_against
        self.leader = Leader(node, self.number, known, self.logs, now)
        self.leader.silent = silent if epoch == self.epoch else None
        self._change_role(Occasion.ELECTED)
        # Whatever this store has was perhaps never synced: when this is, all of it is.
        node.effects.append(Apply(self.number, self.epoch, (), self.leader.barrier))
        self.follower.unsynced.clear()
        # Followers need not wait for the next beacon, nor this leader for its echoes.
        for store in node.links:
            if store in known.record.replicas or store in known.record.joining:
                node.effects.append(Send(store, Beacon(now, ((self.number, self.epoch),))))
        self.review(now)

    def hear_term(self, sender: StoreId, epoch: int, now: float) -> bool:
        """A beacon says that its sender leads in this epoch. Whether to echo it."""
        if epoch < self.epoch and self.node.rules.fence:
            self.node.effects.append(Send(sender, Refused(self.number, self.epoch)))
            return False
        if epoch != self.epoch:
            self._enter(epoch, now)
            self._change_role(Occasion.NAMED)
        if self.leader is not None:
            return False
        if self.follower.leader != sender:
            self.follower.follow(sender, epoch, now)
        self.follower.patience.hear(now)
        self.follower.not_before = now  # it may have refused a session because it did not know yet
        self.follower.open(now)
        return self.stood_at is None or not self.node.rules.no_echo_while_standing

    def hear_epoch(self, epoch: int, now: float) -> None:
        """Another node knows of this epoch, and does not lead."""
        if epoch > self.epoch:
            self._enter(epoch, now)
            self._ask(now)

    # --- messages ---

    def inventory(self, sender: StoreId, message: Inventory, now: float) -> None:
        """A follower wants a session."""
        leader = self.leader
        if leader is None or message.epoch != self.epoch or not self._is_sound or not leader.keeps(sender):
            self.hear_epoch(message.epoch, now)
            self.node.effects.append(Send(sender, Refused(self.number, self.epoch)))
            return
        leader.inventory(sender, message, now)
        self.review(now)

    def refused(self, sender: StoreId, message: Refused, now: float) -> None:
        """A node does not lead, or does not follow because it knows of a later epoch."""
        self.hear_epoch(message.epoch, now)
        if self.leader is None and sender == self.follower.leader:
            self.follower.close(now, wait=self.node.settings.ask_again)

    def batch(self, sender: StoreId, message: Batch, now: float) -> None:
        """A leader sends changes."""
        if message.epoch < self.epoch and self.node.rules.fence:
            self.node.effects.append(Send(sender, Refused(self.number, self.epoch)))
            return
        if message.epoch == self.follower.epoch and self.leader is None:
            self.follower.batch(sender, message, now)

    def ack(self, sender: StoreId, ack: Ack, now: float) -> None:
        """A follower has synced batches."""
        if self.leader is not None and ack.epoch == self.epoch:
            self.leader.ack(sender, ack.number, ack.session, now)
            self.review(now)

    def echo(self, sender: StoreId, epoch: int, sent_at: float, now: float) -> None:
        """A node has echoed a beacon."""
        if self.leader is not None and epoch == self.epoch:
            self.leader.lease.echo(sender, sent_at, now)
            if self.role is not Role.OPEN:
                self.review(now)

    # --- the disk ---

    def synced(self, token: int, now: float) -> None:
        """An `Apply` of this shard, and all before it, is synced."""
        self.follower.synced(token)
        if self.leader is not None and self.leader.barrier <= token:
            self.leader.is_synced(0)
            self.review(now)

    def index_synced(self, epoch: int, index: int, now: float) -> None:
        """What this store appended as a leader, up to this index, is synced here."""
        if self.leader is not None and epoch == self.epoch:
            self.leader.is_synced(index)
            self.review(now)

    def inventory_taken(
        self, session: int, logs: Sequence[tuple[LogId, Sequence[SegmentState]]], now: float
    ) -> None:
        self.follower.inventory_taken(session, logs, now)

    def records_read(self, to: StoreId, session: int, records: Records | None, now: float) -> None:
        if self.leader is not None:
            self.leader.records_read(to, session, records, now)

    def reading_failed(self, to: StoreId, session: int) -> None:
        """Records for a follower cannot be read. They are not dropped: it must not do without them."""
        if self.leader is not None:
            self.leader.refuse(to, session)

    def marks_read(self, want: ReadMarks, marks: AllMarks | None, now: float) -> None:
        if self.leader is not None:
            self.leader.marks_read(want, marks, now)

    def go_on(self, to: StoreId, session: int, now: float) -> None:
        if self.leader is not None:
            self.leader.go_on(to, session, now)

    def apply_failed(self, now: float) -> None:
        """An `Apply` does not fit what the store has: the follower begins anew, with an inventory."""
        if self.leader is None:
            self.follower.unsynced.clear()  # what comes behind it in the same read must not be acked
            self.follower.close(now)

    def damage_found(self, now: float) -> None:
        """A segment of this store is damaged: it must not lead, and gets the segment from another store."""
        self.follower.damage_found(now)
        if self.leader is not None:
            self.leader.stop(now)
            self.leader.end_catchups()

    def step_failed(self, now: float) -> None:
        """The owner has failed to do something with the store's files, or to use them. The store hands over,
        leads nothing of this shard for a while, and begins anew: with an inventory; or with another term, if
        nobody is there to take over.
        """
        self.has_failed, self.failed_at = True, now
        if self.leader is not None:
            self.leader.stop(now)
            self.leader.end_catchups()
        else:
            self.follower.unsynced.clear()
            self.follower.close(now, wait=self.node.settings.ask_again)

    # --- copies that are not kept any more ---

    def clear(self, now: float) -> None:
        """The store has copies of this shard, and keeps it no more, as far as it knows: they go, if so."""
        known, follower = self.known, self.follower
        if known is None or self.leader is not None or not follower.clearing.is_idle:
            return
        if known.record.epoch < self.epoch:  # this store knows better: etcd may have been restored
            return
        if not clearing.is_named(self.node.me.store, known.record):
            follower.close(now)
            follower.clearing.begin(now)

    def gone_confirmed(self, number: int, known: Known, now: float) -> None:
        """The record, as it was read for `ConfirmGone`."""
        self.learn(known, now)
        if known.record.epoch >= self.epoch:
            self.follower.clearing.answered(number, known.record)

    def copies_removed(self, number: int) -> None:
        """What `RemoveCopies` asked for is done."""
        self.follower.clearing.removed(number)

    # --- links ---

    def link_up(self, store: StoreId, now: float) -> None:
        """A node can be spoken to. If it is the leader's, in another run, then that leader is gone."""
        leader = None if self.known is None else self.known.record.leader
        if leader is not None and leader.store == store and leader.run != self.node.links[store]:
            self.dead = leader
        if self.leader is None:
            self.follower.open(now)
        else:
            self._begin_anew(self.leader, store)

    def _begin_anew(self, leader: Leader, store: StoreId) -> None:
        """Each way has a link of its own. So a follower may have opened a session while it could not be
        spoken to, or may not know that the link ended over which it got one: it has to open another.
        """
        leader.end_session(store)
        if store in leader.record.replicas or store in leader.record.joining:
            self.node.effects.append(Send(store, Refused(self.number, self.epoch)))

    def link_down(self, store: StoreId, now: float) -> None:
        """A node cannot be spoken to any more."""
        if self.leader is not None:
            self.leader.end_session(store)
        elif store == self.follower.leader:
            self.follower.close(now)

    def peer_gone(self, store: StoreId, now: float) -> None:
        """The process of a node is not there: whoever led in it does not lead any more."""
        leader = None if self.known is None else self.known.record.leader
        if leader is not None and leader.store == store:
            self.dead = leader
        if self.leader is None:
            self._consider_standing(now)
        else:
            self._make_wish(self.leader, now)  # nothing is confirmed until the store is counted out

    def peer_leaves(self, now: float) -> None:
        """A node has said farewell: count it out at once."""
        if self.leader is not None:
            self._make_wish(self.leader, now)

    # --- leading ---

    @property
    def takes_publishes(self) -> bool:
        """Whether this store leads, and takes what is new."""
        return self.role is Role.OPEN and self.leader is not None and self.leader.stopped_at is None

    @property
    def _is_sound(self) -> bool:
        """Whether this store can use what it has. It may have been elected before it was known that not."""
        return (self.follower.is_whole and not self.has_failed) or not self.node.rules.only_whole_stand

    def append(self, changes: Sequence[LogChange], now: float) -> int:
        """The leader's logs have changed. Say the index of these changes."""
        assert self.leader is not None
        return self.leader.append(changes, now)

    def may_deliver(self, now: float) -> bool:
        """Whether nobody else can be delivering: asked once a turn, before anything is delivered."""
        leader = self.leader
        if leader is None or self.role is not Role.OPEN:
            return False
        if leader.stopped_at is not None and self.node.rules.stop_before_hand_over:
            return False
        return not self.node.rules.lease or leader.lease.holds(leader.others, now)

    def copies_there(self, now: float) -> tuple[int, int]:
        """How many replicas this leader hears of, itself included, and how many there should be."""
        leader = self.leader
        if leader is None:
            return 0, 0
        heard = [
            store
            for store in leader.record.replicas
            if store == self.node.me.store or not leader.lease.has_lapsed(store, now)
        ]
        return len(heard), len(leader.record.replicas)

    def review(self, now: float) -> None:
        """Open, suspend or resume; tell what is committed."""
        leader = self.leader
        if leader is None:
            return
        rules = self.node.rules
        holds = not rules.lease or leader.lease.holds(leader.others, now)
        if leader.stopped_at is not None and rules.stop_before_hand_over:
            holds = False
        if self.role is Role.OPENING:
            if not rules.open_when_in_step and leader.commit < 0:
                leader.commit = 0
            if leader.commit >= 0 and holds and self._is_sound:
                self._change_role(Occasion.IN_STEP)
        elif holds:
            if self.role is not Role.OPEN:
                self._change_role(Occasion.RENEWED)
        else:
            self._change_role(Occasion.LAPSED)
        # What is committed as the leader stops is confirmed still: no one else can lead until it hands over.
        if leader.commit > leader.told and (self.role is Role.OPEN or leader.stopped_at is not None):
            leader.told = leader.commit
            self.node.effects.append(Committed(self.number, self.epoch, leader.commit))
        if self.role is Role.OPENING or leader.stopped_at is not None:
            self._make_wish(leader, now)  # nobody is served until it is written

    def drain(self, now: float) -> None:
        """The node hands over what it leads, as soon as somebody can take it."""
        if self.leader is not None:
            self._consider_stopping(self.leader, now)
            self.review(now)

    def hand_over(self, now: float) -> None:
        """The owner cannot serve all of it here: another store should lead, if one can."""
        leader = self.leader
        if leader is not None and self.takes_publishes and leader.has_heir():
            self._intend(leader, HandOver(None, for_good=False), now)

    def move(self, successor: StoreId, now: float) -> bool:
        """Hand over to this store, which is the preferred leader from then on, if etcd answers soon. False if
        it cannot be now.
        """
        leader = self.leader
        if leader is None or not self.takes_publishes or not leader.is_ready(successor):
            return False
        self._intend(leader, HandOver(successor, for_good=True), now)
        return True

    # --- time ---

    def tick(self, now: float) -> None:
        """Time has passed."""
        follower, settings = self.follower, self.node.settings
        if self.has_failed and now - self.failed_at > settings.failure_patience:
            self._consider_another_try(now)
        is_quiet = follower.was_in_step and self.leader is None and not self._is_dead(follower.leader)
        if is_quiet and now < self.quiet_until:
            return
        if self.reads.is_due(now, wants_news=self._wants_news(now)):
            self._ask(now)
        if self.leader is not None:
            self._consider_stopping(self.leader, now)
            self.review(now)
            self._make_wish(self.leader, now)
        else:
            follower.tick(now)
            self._consider_standing(now)
            if is_quiet and not self._is_behind and self.pending is None and self.stood_at is None:
                self.quiet_until = min(self.reads.next_at, self._suspects_at)

    @property
    def _is_behind(self) -> bool:
        """Whether the record that is known is older than what this store has heard."""
        return self.known is None or self.known.record.epoch != self.epoch

    @property
    def _suspects_at(self) -> float:
        """When this store begins to suspect that its leader is gone."""
        return self.follower.patience.heard_at + self.node.settings.lease

    def _wants_news(self, now: float) -> bool:
        """Whether the record should be read as soon as can be. A store that may have to stand reads it first:
        if etcd is away, it would only be in doubt, and its leader suspended, although that may be back soon.
        """
        if self._is_behind:
            return True
        return self.leader is None and self.reads.confirmed_at < self._suspects_at <= now

    def _is_dead(self, store: StoreId | None) -> bool:
        """Whether a process of this store is known to be gone: perhaps the one that leads."""
        return self.dead is not None and self.dead.store == store

    def _may_swap(self, now: float) -> bool:
        """Whether a compare-and-swap can be sent now. One by a record that is older than what this store has
        heard, or that etcd has lost, would change nothing.
        """
        if self.pending is not None or self._is_behind or self.reads.is_lost:
            return False
        return self.node.etcd.may_ask(now)

    def _make_wish(self, leader: Leader, now: float) -> None:
        if not self._may_swap(now):
            return
        assert self.known is not None
        wish: Wish | None = leader.wish(now)
        if wish is not None:
            is_first = leader.is_sending(wish, self.known.revision) or not self.node.rules.earlier_doubt
            self._cas(wish.record, now, partial(leader.was_not_sent, wish) if is_first else _nothing)

    def _is_unfit(self, now: float) -> bool:
        """Whether this store must not lead on, whoever takes over, and even if nobody does."""
        since = self.node.disk_failing_since
        is_failing = since is not None and now - since > self.node.settings.disk_patience
        return is_failing or not self._is_sound

    def _should_go(self, leader: Leader) -> bool:
        """Whether this store leads on only until another one can."""
        record = leader.record
        leaves = self.node.me.store in record.leaving and bool(record.joining)
        return self.node.is_draining or leaves

    def _consider_stopping(self, leader: Leader, now: float) -> None:
        patience = 2 * self.node.settings.hand_over_patience
        if self._is_unfit(now):
            leader.stop(now)
            leader.gives_up = False
        elif leader.stopped_at is not None:
            if now - leader.stopped_at > patience:
                leader.gives_up = True
                if leader.handed_at is None:
                    leader.resume()
        elif now - leader.planned_at > patience:
            leader.plan = None  # etcd has not answered
            if not self._should_go(leader):
                self._consider_preferred(leader, now)
            elif leader.has_heir():
                self._intend(leader, HandOver(None, for_good=False), now)

    def _intend(self, leader: Leader, plan: HandOver, now: float) -> None:
        leader.intend(plan, now)
        self._make_wish(leader, now)

    def _consider_preferred(self, leader: Leader, now: float) -> None:
        """Hand the shard back to the store that should lead it, if that has been in step for long."""
        node, settings = self.node, self.node.settings
        preferred = node.preferred.get(self.number, leader.record.replicas[0])
        session = leader.sessions.get(preferred)
        if session is None or preferred not in leader.record.isr or preferred in leader.record.leaving:
            return
        if not leader.may_get(preferred):
            return
        if now - node.preferred_at < settings.preferred_every or session.in_step_since is None:
            return
        if now - max(session.in_step_since, self.preferred_asked_at) > settings.preferred_after:
            self.preferred_asked_at = node.preferred_at = now
            self._intend(leader, HandOver(preferred, for_good=False), now)

    def _consider_another_try(self, now: float) -> None:
        """It is a while since something has failed. The term in which it has cannot go on; if nobody is there
        who could be handed the shard, this store begins another one, with what it finds in its files.
        """
        leader = self.leader
        if leader is None or leader.begun_at > self.failed_at:
            self.has_failed = False
        elif self.node.can_lead and self._may_swap(now) and not leader.others_there():
            self._cas(config.elect(leader.record, self.node.me), now, _nothing)

    def _consider_standing(self, now: float) -> None:
        """Stand for election if the leader is gone, and this store may lead."""
        known, node = self.known, self.node
        if known is None or not self._may_swap(now):
            return
        record, mine = known.record, node.me
        leader, patience = record.leader, self.follower.patience
        has_leader = leader is not None and leader.store != mine.store and not self._is_dead(leader.store)
        if has_leader and self.stood_at is None and now < patience.ends_at:
            return  # nothing says that the leader is gone
        is_eligible = mine.store in record.isr or not node.rules.only_in_sync_stand
        may_stand = is_eligible and node.can_lead and self._is_sound
        if not may_stand or now < stands_at(record, mine.store, self.dead, patience, node):
            if self.stood_at is not None:  # the leader is back, or this store must not lead: end the doubt
                self._cas(record, now, _nothing)
        elif is_gone(record, mine.store, self.dead, node) or self.reads.confirmed_at >= self._suspects_at:
            self._stand(record, now)

    def _stand(self, record: ShardRecord, now: float) -> None:
        assert self.known is not None
        rules, mine = self.node.rules, self.node.me
        is_first = self.stood_at is None or not rules.earlier_doubt
        self.stood_at = self.known.revision
        self.stood_against = (None if record.leader is None else record.leader.store, record.epoch + 1)
        if rules.only_in_sync_stand:
            made = config.elect(record, mine)
        else:
            made = record._replace(epoch=record.epoch + 1, leader=mine)
        self._cas(made, now, self._did_not_stand if is_first else _nothing)

    def _did_not_stand(self) -> None:
        """This store cannot be elected by what it sent, since nothing was sent."""
        self.stood_at = None


def _nothing() -> None:
    """Nothing is to be taken back."""
