"""Runs the shards of a node: the protocol (`Participant`), between disk, links and etcd.

Whatever happens becomes a call of the protocol, with the time. The effects that it wants are carried out
then, in their order, before anything else happens. The owner uses the logs of shards that are open, and has
`end_turn` called at the end of each turn: what has changed in these logs goes to the followers at once, and
does not wait for this node's own disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from structlog.stdlib import BoundLogger

from warren.broker.node import World
from warren.broker.timers import Timer
from warren.cluster.config import Known, Leadership, RunId, StoreId
from warren.cluster.effects import (
    Apply,
    Cas,
    CasAnswer,
    Close,
    Committed,
    ConfirmGone,
    Effect,
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
from warren.cluster.messages import Batch, Message
from warren.cluster.participant import Participant
from warren.cluster.safety import ShardSafety
from warren.cluster.settings import Settings
from warren.cluster.shard import Shard
from warren.cluster.transactions import Outcome
from warren.server.cluster.catchup_reads import CatchupReads
from warren.server.cluster.peers import Peers
from warren.server.cluster.shard_here import Finish, ShardHere
from warren.server.cluster.shard_records import ShardRecords
from warren.server.cluster.shard_terms import ShardOwner, ShardTerms
from warren.storage.led_shard import LedShard
from warren.storage.replica import Replica
from warren.storage.replication import LogId
from warren.storage.segment_copies import ReplicaMismatch
from warren.storage.shards import Shards

TICK_SECONDS = 0.05
CLEAR_SECONDS = 1.0  # between looks whether there are copies that this node does not keep any more
SESSION_BYTES = 8
STOOD_STILL_SECONDS = 0.5  # without a tick: the leases are looked at before anything is delivered
STUCK_SECONDS = 5.0  # a round of the disk that takes longer counts as a failure


def boot_time() -> float:
    """Seconds of a clock that never jumps, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ShardRunner:
    """Is told by the `Switchboard` what happens on a node's links to others."""

    def __init__(
        self,
        me: Leadership,
        shards: Shards,
        world: World,
        owner: ShardOwner,
        log: BoundLogger,
        *,
        settings: Settings,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self.shards = shards
        self.world = world
        self.owner = owner
        self.log = log
        self.clock = clock
        self.participant = Participant(me, self._new_session, settings=settings)
        self.participant.on_error = self._step_failed
        self.here: dict[int, ShardHere] = {}  # all shards of the cluster
        self.terms = ShardTerms(self.here, self.participant.shards, shards, world, owner, log)
        self.led = self.terms.led  # those that this node leads, and can append to
        self.reads = CatchupReads(self.here, world, log, self._tell, self.damaged)
        self.peers: Peers | None = None
        self.records: ShardRecords | None = None
        self.timer: Timer | None = None
        self.ticked_at = 0.0  # when the protocol was last told the time
        self.cleared_at = 0.0  # when it was last looked for copies that are not kept any more
        self.has_committed = False  # something, since `on_committed` was called
        self.is_carrying_out = False
        self.is_stopped = False

    def _new_session(self) -> int:
        return int.from_bytes(self.world.random_bytes(SESSION_BYTES), "big") | 1

    # --- start and end ---

    def add(self, number: int, copies: Replica) -> None:
        """The node looks after a shard, of which it has these copies."""
        here = ShardHere(number, copies, self.owner.has_queue, partial(self._step_failed, number))
        self.here[number] = here
        self.participant.add_shard(
            number,
            here,
            epoch=self.shards.epoch_of(number),
            is_whole=self.shards.is_whole(number),
            now=self.clock(),
        )
        if any(state.damaged for log in here.logs() for state in here.segments(log)):
            self._damage_found(number)

    def start(self, peers: Peers, records: ShardRecords) -> None:
        self.peers, self.records = peers, records
        records.start()
        self._tick()

    async def stop(self) -> None:
        """Nothing is said or decided from now on."""
        self.is_stopped = True
        if self.timer is not None:
            self.timer.cancel()
        if self.records is not None:
            await self.records.stop()
        if self.peers is not None:
            await self.peers.stop()

    def _tick(self) -> None:
        if not self.is_stopped:
            self.timer = self.world.call_later(TICK_SECONDS, self._tick)
            now = self.ticked_at = self.clock()
            self._look_at_disk()
            self.participant.tick(now)
            if now - self.cleared_at > CLEAR_SECONDS:
                self.cleared_at = now
                self._clear(now)
            self.carry_out()

    def _clear(self, now: float) -> None:
        """Remove copies of shards that are not kept here any more."""
        for number, here in self.here.items():
            shard = self._shard(number)
            if shard.role is Role.OUTSIDER and here.led is None and here.copies.logs:
                shard.clear(now)

    def _look_at_disk(self) -> None:
        """A store that cannot write must not lead for long: nothing is confirmed meanwhile."""
        commit, participant = self.shards.commit, self.participant
        flight = commit.flight
        is_stuck = flight is not None and self.world.now() - flight.begun > STUCK_SECONDS
        if commit.failure is None and not is_stuck:
            participant.disk_works()
            return
        if participant.node.disk_failing_since is None:
            self.log.warning("the disk fails, so this node will lead nothing", shards=len(self.led))
        participant.disk_fails(self.clock())

    def mismatch(self, found: ReplicaMismatch, number: int) -> None:
        """A copy is another than the leader takes it for: the follower begins anew, with an inventory."""
        self.log.warning("a copy does not fit what its leader sends", shard=number, reason=str(found))
        self._tell(number, lambda shard, now: shard.apply_failed(now))

    def damaged(self, number: int, log: LogId, base: int) -> None:
        """A segment here has not all that was written: this store must not lead, and fetches it anew."""
        self.log.warning("a segment is damaged", shard=number, queue=log.queue, part=log.part, base=base)
        self.here[number].note_damage(log, base)
        self._damage_found(number)

    def _damage_found(self, number: int) -> None:
        self._tell(number, lambda shard, now: shard.damage_found(now))

    def _shard(self, number: int) -> Shard:
        return self.participant.shards[number]

    def _tell(self, number: int, what: Callable[[Shard, float], None]) -> None:
        """Tell the protocol something of a shard, and do what it wants then."""
        what(self._shard(number), self.clock())
        self.carry_out()

    # --- the links ---

    def link_up(self, store: StoreId, run: RunId) -> None:
        self.participant.link_up(store, run, self.clock())
        self.carry_out()

    def link_down(self, store: StoreId) -> None:
        self.participant.link_down(store, self.clock())
        self.carry_out()

    def peer_gone(self, store: StoreId) -> None:
        self.participant.peer_gone(store, self.clock())
        self.carry_out()

    def received(self, store: StoreId, messages: Sequence[Message]) -> None:
        now = self.clock()
        for message in messages:
            try:
                self.participant.received(store, message, now)
            except Exception as error:  # noqa: BLE001 - the other messages are of other shards
                self._message_failed(store, message, error)
        self.carry_out()

    # --- etcd ---

    def learn(self, number: int, known: Known) -> None:
        """The record of a shard, as a watch tells it."""
        if number in self.here and not self.is_stopped:
            self._tell(number, lambda shard, now: shard.learn(known, now))

    def _swapped(self, number: int, revision: int, answer: CasAnswer) -> None:
        self._tell(number, lambda shard, now: shard.cas_answered(revision, answer, now))

    def _record_read(self, effect: ReadRecord, known: Known) -> None:
        self._tell(effect.shard, lambda shard, now: shard.record_read(effect.number, known, now))

    # --- leading ---

    def hand_over(self, number: int) -> None:
        """Hand over a shard, if another node can lead it."""
        self._tell(number, lambda shard, now: shard.hand_over(now))

    def drain(self) -> None:
        """Hand over all that this node leads, and lead nothing more."""
        self.participant.drain(self.clock())
        self.carry_out()

    def leave(self) -> None:
        """Hand over all that this node leads: its process ends then."""
        self.participant.leave(self.clock())
        self.carry_out()

    def say_farewell(self) -> None:
        """Nothing is led here any more. Other leaders should count this node out."""
        self.participant.say_farewell()
        self.carry_out()

    def before_draining(self) -> None:
        """If this process has stood still, another node may lead by now: see to that before anything is
        delivered. What has come over sockets is often handled before the timer.
        """
        now = self.clock()
        if now - self.ticked_at > STOOD_STILL_SECONDS and self.timer is not None and not self.is_stopped:
            self.ticked_at = now
            self.participant.tick(now)
            self.carry_out()

    def end_turn(self) -> None:
        """At the end of each turn, when its marks are written: what has changed goes to the followers."""
        now = self.clock()
        for number, here in self.led.items():
            if here.has_batch():
                led, safety = here.led, here.safety
                assert led is not None
                assert safety is not None
                shard = self._shard(number)
                if shard.leader is None or shard.leader.epoch != led.epoch or shard.has_failed:
                    continue  # its end is about to be carried out
                if shard.leader.handed_at is not None:
                    continue  # the next leader may lead already: what it got now would be published twice
                try:
                    self._hand_out(here, led, safety, shard, now)
                except Exception as error:  # noqa: BLE001 - what the other shards have must not wait
                    self._step_failed(number, error)
        self.carry_out()

    def _hand_out(
        self, here: ShardHere, led: LedShard, safety: ShardSafety, shard: Shard, now: float
    ) -> None:
        assert shard.leader is not None
        index = shard.append(led.take(), now)
        safety.appended(index)
        safety.owes = shard.leader.is_behind
        self._sync_index(here, led.epoch, index)

    def _sync_index(self, here: ShardHere, epoch: int, index: int) -> None:
        """Tell the protocol when this node's own disk has a batch; of a round's batches, only the last."""
        gathering = self.shards.commit.gathering
        if gathering not in here.indexes:
            self.shards.commit.when_safe(partial(self._index_is_synced, here, epoch))
        here.indexes[gathering] = index

    def _index_is_synced(self, here: ShardHere, epoch: int, round_number: int) -> None:
        """The end of the turn, which follows the end of a round, carries out what comes of it."""
        index = here.indexes.pop(round_number)
        self._shard(here.number).index_synced(epoch, index, self.clock())

    # --- effects ---

    def carry_out(self) -> None:
        """Do what the protocol wants, and what follows from that."""
        if self.is_carrying_out or self.is_stopped:
            return
        self.is_carrying_out = True
        try:
            while True:
                effects = self.participant.take_effects()
                for effect in effects:
                    try:
                        HANDLERS[type(effect)](self, effect)
                    except Exception as error:  # noqa: BLE001 - the other effects are of other shards
                        self._effect_failed(effect, error)
                if self.has_committed:
                    self.has_committed = False
                    self.terms.on_committed()
                elif not effects:
                    return
        finally:
            self.is_carrying_out = False

    # --- what fails ---

    def _tell_failure(self, error: Exception, **what: object) -> None:
        self.log.error("a shard's part here has failed", reason=repr(error), **what)
        self.world.report(error)

    def _step_failed(self, number: int, error: Exception) -> None:
        """Nobody knows what was done and what was not: the shard is not led here, and what this store has of
        it is compared with another leader's.
        """
        self._tell_failure(error, shard=number)
        self._shard(number).step_failed(self.clock())

    def _message_failed(self, store: StoreId, message: Message, error: Exception) -> None:
        number: int | None = getattr(message, "shard", None)
        if number in self.here:
            self._step_failed(number, error)
        else:
            self._tell_failure(error, store=store)
            self._close(Close(store, "what it says cannot be dealt with"))

    def _effect_failed(self, effect: Effect, error: Exception) -> None:
        """Whoever waits for what comes of it is told that nothing comes. What a follower was to get begins
        anew with its next session.
        """
        if isinstance(effect, Send):
            self._sending_failed(effect.to, effect.message, error)
        elif isinstance(effect, ReadRecords | ReadMarks):
            self._tell_failure(error, shard=effect.shard)
            self._shard(effect.shard).reading_failed(effect.to, effect.session)
        elif isinstance(effect, Cas):
            self._tell_failure(error, shard=effect.shard)
            self._shard(effect.shard).cas_answered(effect.revision, Outcome.UNKNOWN, self.clock())
        elif isinstance(effect, Close):
            self._tell_failure(error, store=effect.to)
        elif isinstance(effect, ReadRecord | ConfirmGone):  # is asked for again
            self._tell_failure(error, shard=effect.shard)
        else:
            self._step_failed(effect.shard, error)

    def _sending_failed(self, to: StoreId, message: Message, error: Exception) -> None:
        if isinstance(message, Batch):
            self._tell_failure(error, shard=message.shard, store=to)
            self._shard(message.shard).reading_failed(to, message.session)
        else:
            self._tell_failure(error, store=to)
            self._close(Close(to, "not all that is said to it can be sent"))

    # --- effects of each kind ---

    def _send(self, effect: Send) -> None:
        if self.peers is not None:
            self.peers.send(effect.to, effect.message)

    def _close(self, effect: Close) -> None:
        if self.peers is not None:
            self.peers.close_link(effect.to, effect.reason)

    def _cas(self, effect: Cas) -> None:
        assert self.records is not None, "the protocol knows a record, so it was read"
        tell = partial(self._swapped, effect.shard, effect.revision)
        self.records.swap(effect.shard, effect.revision, effect.record, tell)

    def _read_record(self, effect: ReadRecord) -> None:
        if self.records is not None:
            self.records.read(effect.shard, partial(self._record_read, effect))

    def _record_is_older(self, effect: RecordIsOlder) -> None:
        self.log.error(
            "etcd has lost what was written to it: this shard's leader cannot be changed",
            shard=effect.shard,
            epoch=effect.epoch,
            epoch_in_etcd=effect.record_epoch,
        )

    def _confirm_gone(self, effect: ConfirmGone) -> None:
        if self.records is not None:
            self.records.read(effect.shard, partial(self._gone_confirmed, effect))

    def _gone_confirmed(self, effect: ConfirmGone, known: Known) -> None:
        self._tell(effect.shard, lambda shard, now: shard.gone_confirmed(effect.number, known, now))

    def _remove_copies(self, effect: RemoveCopies) -> None:
        here = self.here[effect.shard]
        self.log.info("copies of a shard are removed, which others keep", shard=effect.shard)

        def step(finish: Finish) -> None:
            assert here.led is None, "who leads is named by the record"
            self.shards.clear(here.copies, lambda copies: finish(lambda: are_gone(copies)))

        def are_gone(copies: Replica) -> None:
            here.copies = copies
            self._tell(effect.shard, lambda shard, _now: shard.copies_removed(effect.number))

        here.then(step)

    def _keep_epoch(self, effect: KeepEpoch) -> None:
        self.here[effect.shard].then_at_once(partial(self.shards.note_epoch, effect.shard, effect.epoch))

    def _keep_whole(self, effect: KeepWhole) -> None:
        self.here[effect.shard].then_at_once(
            partial(self.shards.note_whole, effect.shard, is_whole=effect.is_whole)
        )

    def _apply(self, effect: Apply) -> None:
        here = self.here[effect.shard]
        here.then_at_once(partial(self._apply_to, here, effect))

    def _apply_to(self, here: ShardHere, effect: Apply) -> None:
        is_safe = partial(self._is_synced, effect.shard, effect.token)
        assert self.shards.epoch_of(effect.shard) >= effect.epoch, "what is acked in an epoch holds for ever"
        if here.led is not None:
            assert not effect.changes, "a leader's changes are its own"
            self.shards.commit.when_safe(lambda _round: is_safe())
            return
        try:
            here.copies.apply(effect.changes, is_safe)
        except ReplicaMismatch as error:
            self.mismatch(error, effect.shard)
        except Exception:
            for log, base in {(change.log, getattr(change, "base", 0)) for change in effect.changes}:
                self.damaged(effect.shard, log, base)  # nobody knows what of it is there
            raise

    def _is_synced(self, number: int, token: int) -> None:
        """The end of the turn, which follows the end of a round, sends all acks of the round."""
        self._shard(number).synced(token, self.clock())

    def _take_inventory(self, effect: TakeInventory) -> None:
        here = self.here[effect.shard]

        def step(finish: Finish) -> None:
            assert here.led is None, "what was led is a copy again"
            here.copies.when_settled(lambda: finish(is_settled))

        def is_settled() -> None:
            logs = list(here.copies.inventory().items())
            self._tell(effect.shard, lambda shard, now: shard.inventory_taken(effect.session, logs, now))

        here.then(step)

    def _go_on(self, effect: GoOn) -> None:
        self.world.call_soon(partial(self._go_on_now, effect))

    def _go_on_now(self, effect: GoOn) -> None:
        self._tell(effect.shard, lambda shard, now: shard.go_on(effect.to, effect.session, now))

    def _committed(self, effect: Committed) -> None:
        here = self.here[effect.shard]
        led, safety = here.led, here.safety
        if led is None or safety is None or led.epoch != effect.epoch:
            return  # nobody can have appended anything
        if effect.up_to > safety.committed:
            safety.commit(effect.up_to)
            self.has_committed = True


HANDLERS: dict[type[Effect], Callable[[ShardRunner, Any], None]] = {
    Send: ShardRunner._send,
    Close: ShardRunner._close,
    Cas: ShardRunner._cas,
    ReadRecord: ShardRunner._read_record,
    ConfirmGone: ShardRunner._confirm_gone,
    RemoveCopies: ShardRunner._remove_copies,
    KeepEpoch: ShardRunner._keep_epoch,
    KeepWhole: ShardRunner._keep_whole,
    Apply: ShardRunner._apply,
    TakeInventory: ShardRunner._take_inventory,
    ReadRecords: lambda runner, effect: runner.reads.read_records(effect),
    ReadMarks: lambda runner, effect: runner.reads.read_marks(effect),
    GoOn: ShardRunner._go_on,
    Committed: ShardRunner._committed,
    RoleChanged: lambda runner, effect: runner.terms.role_changed(effect),
    RecordIsOlder: ShardRunner._record_is_older,
}
