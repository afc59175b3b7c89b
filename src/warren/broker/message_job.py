"""Moves, copies or deletes messages of a queue, as many as that takes, while clients go on.

A job walks through its queue (`walk.py`) in turns to come, a share of each. Each share is a batch: its
messages are published to the target like any others, under the target's rules, and the next batch begins when
this one is safe on disk.

    move    A message leaves its queue when it is safe in the target. Until then the target delivers nothing,
            so that no consumer acks a message there that a crash would give back to the old queue. If both
            queues are on disk, a note says what is between them (`MoveNotes`), so that after a crash no
            message is in both.
    copy    Messages stay where they are.
    delete  Messages are dropped as by a purge: they are not dead-lettered.

A message that is moved or copied is new in the target: its TTL begins anew. If the target deduplicates, a
message that it has seen before is left where it is. If the target is full and refuses messages, the job
stops. So the target's rules lose no message on its way in. Messages that are out with clients are not
touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from warren.broker.entry import Entry
from warren.broker.message import Message
from warren.broker.outcome import AFTER_NEXT_ROUND, ON_ITS_WAY
from warren.broker.queue import Hold, Queue
from warren.broker.selector import Selector
from warren.broker.store import MoveNotes, MoveRun, Store

LOOKS_MAX = 200  # messages that a job looks at in a turn: selectors make that some milliseconds
PUBLISH_WORK = 10  # units of work for a message that is moved or copied
BATCH_BYTES_MAX = 1024 * 1024  # of bodies in a batch, and one message
LOOK_AGAIN_SECONDS = 0.2  # while an alarm holds publishers, or the disk fails


class Kind(StrEnum):
    MOVE = "move"
    COPY = "copy"
    DELETE = "delete"


class State(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    STOPPED = "stopped"  # it cannot go on; `reason` says why


@dataclass(frozen=True, kw_only=True)
class JobOrder:
    """What an operator asks for."""

    kind: Kind
    source: Queue
    target: Queue | None = None
    selector: Selector | None = None
    count_max: int | None = None


class MessageJob:
    def __init__(
        self,
        order: JobOrder,
        store: Store,
        *,
        is_blocked: Callable[[], bool],
        ended: Callable[[], None],
    ) -> None:
        self.order = order
        self.is_blocked = is_blocked  # whether publishers are blocked now, by an alarm
        self.ended = ended  # called when the job is not running any more
        self.surroundings = order.source.surroundings
        self.walk = order.source.walk(order.selector)
        self.state = State.RUNNING
        self.reason = ""  # why the job was stopped
        self.done = 0  # messages that were moved, copied or deleted
        self.done_bytes = 0  # of their bodies
        self.left_out = 0  # messages that the target had seen before, and so were left in the source
        self.is_cancelled = False
        self.batch = Batch(Hold(()))
        self.notes: MoveNotes | None = None  # of messages between two logs
        if order.kind is Kind.MOVE and order.target is not None:
            self.notes = store.begin_moves(order.source.vhost, order.source.name, order.target.name)

    def start(self) -> None:
        self.order.source.used()
        self.surroundings.turns.later(self._go_on)

    def cancel(self) -> None:
        """End the job. What is done stays done."""
        self.is_cancelled = True

    def _go_on(self) -> None:
        """Deal with the next batch, or end: in a turn after the one in which the last batch was done with."""
        if self.notes is not None and not self.notes.are_settled():
            self._look_again()
        elif self.is_cancelled:
            self._end(State.CANCELLED)
        elif self._must_stop():
            self._end(State.STOPPED)
        elif self.walk.is_over or self.done == self.order.count_max:
            self._end(State.DONE)
        elif self.is_blocked():
            self._look_again()
        else:
            self._do_batch()

    def _must_stop(self) -> bool:
        for queue in (self.order.source, self.order.target):
            if queue is not None and queue.deleted and not self.reason:
                is_led_elsewhere = queue.stands() is not None
                self.reason = (
                    f"{queue.what} {'has another leader now' if is_led_elsewhere else 'was deleted'}"
                )
        return bool(self.reason)

    def _look_again(self) -> None:
        turns = self.surroundings.turns
        self.surroundings.timers.call_later(LOOK_AGAIN_SECONDS, lambda: turns.later(self._go_on))

    def _end(self, state: State) -> None:
        self.state = state
        self.walk.end()
        if self.notes is not None:
            self.notes.remove()
        self.ended()

    # --- a batch ---

    def _do_batch(self) -> None:
        self.batch = Batch(self._held())
        try:
            self._fill_batch()
            if self.notes is not None and self.batch.runs:
                self.notes.write(self.batch.runs)
        except Exception as error:  # noqa: BLE001 - what was published has to be dealt with in any case
            self.reason = self.reason or f"error: {error}"
            self.surroundings.turns.report(error)
        if not self.batch.is_unsafe:
            self._batch_is_safe()
            return
        target = self.order.target
        assert target is not None, "something was published"
        assert target.safety is not None, "a queue with a log has a safety"
        target.safety.when_safe(lambda _round: self._batch_is_safe(), self._target_has_ended)

    def _held(self) -> Hold:
        """The target of a move delivers nothing until the batch is done with."""
        target = self.order.target
        return Hold([target] if target is not None and self.order.kind is Kind.MOVE else ())

    def _batch_is_safe(self) -> None:
        """The messages of the batch leave the source, and the target may deliver them. What that writes and
        sends is written and sent, in this order, at the end of this turn.
        """
        batch, source = self.batch, self.order.source
        for entry in batch.entries:
            source.forget(entry)
        batch.entries.clear()
        batch.hold.end()
        source.touch()
        self.surroundings.turns.later(self._go_on)

    def _target_has_ended(self) -> None:
        """The target has another leader now, and nobody knows what of the batch it has: all of that stays in
        the source, too.
        """
        batch, source = self.batch, self.order.source
        if not source.deleted:
            for entry in batch.entries:
                source.put_back(entry)
        self.done, self.done_bytes = self.done - batch.count, self.done_bytes - batch.bytes
        self.reason = "another node leads the target now"
        batch.entries.clear()
        batch.hold.end()
        self.surroundings.turns.later(self._go_on)

    def _fill_batch(self) -> None:
        """Deal with messages for as long as the share of this turn lasts."""
        order, budget = self.order, self.surroundings.turns.budget
        self.surroundings.clock.refresh()
        self.walk.begin_turn(LOOKS_MAX)
        while budget.left > 0 and self.batch.bytes < BATCH_BYTES_MAX and self.done != order.count_max:
            entry = self.walk.find()
            if entry is None or not self._deal_with(entry):
                return

    def _deal_with(self, entry: Entry) -> bool:
        """Deal with a message that was found. Return whether to go on."""
        order = self.order
        if order.target is None:
            self._take()
        elif order.target.has_seen(entry.message):
            self.left_out += 1
            self.walk.pass_by()
            return True
        elif not self._publish(entry, order.target):
            return False
        elif order.kind is Kind.MOVE:
            self._take()
        else:
            self.walk.pass_by()
        self.done += 1
        self.done_bytes += entry.size
        self.batch.count += 1
        self.batch.bytes += entry.size
        return True

    def _take(self) -> None:
        taken = self.walk.take()
        if taken is not None:
            self.batch.entries.append(taken)

    def _publish(self, entry: Entry, target: Queue) -> bool:
        """Publish a message to the target; False if that is full. Before the job stops for that, the target
        has a turn to deliver what this batch has brought.
        """
        message = entry.message.came_at(self.surroundings.clock.time_ms)
        if target.is_full_for(message):
            if not self.batch.count:
                self.reason = f"{target.what} is full"
            return False
        self.surroundings.turns.budget.left -= PUBLISH_WORK
        if target.publish(message) in {ON_ITS_WAY, AFTER_NEXT_ROUND}:
            self.batch.is_unsafe = True
            self.batch.note(self._run(entry, message, target))
        return True

    def _run(self, entry: Entry, message: Message, target: Queue) -> MoveRun | None:
        """Where a message is on disk, in the source and in the target; None if not in both."""
        old, new = self.order.source.place_on_disk(entry.message), target.place_on_disk(message)
        if self.notes is None or old is None or new is None:
            return None
        return MoveRun(old[0], entry.position, new[0], new[1], 1)


class Batch:
    """Messages that a job deals with in one turn."""

    def __init__(self, hold: Hold) -> None:
        self.hold = hold  # keeps the target from delivering
        self.entries: list[Entry] = []  # taken out of the source, which has not forgotten them yet
        self.count = 0  # how many messages were dealt with
        self.bytes = 0  # of their bodies
        self.is_unsafe = False  # whether any message is on its way to the target's disk
        self.runs: list[MoveRun] = []  # which messages go from log to log

    def note(self, run: MoveRun | None) -> None:
        """Note a message that goes from log to log. If it lies behind the last one in both, so does its
        note.
        """
        if run is None:
            return
        if self.runs:
            last = self.runs[-1]
            following = last._replace(
                old_position=last.old_position + last.length,
                new_position=last.new_position + last.length,
                length=1,
            )
            if run == following:
                self.runs[-1] = last._replace(length=last.length + 1)
                return
        self.runs.append(run)
