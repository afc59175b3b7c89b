"""Brings a follower up to date: log by log, files in chunks, then live.

    waiting     the follower may lack anything of the log; its changes are not passed on
        |  the plan is made and sent: what is to be removed, cut and fetched
    being sent  chunks are read, one at a time; new changes of the log are held
        |  the last chunk is sent, then all marks, and the held changes after them
    live        changes are passed on as they come

The plan takes the log as it is in this very turn, with all that was appended, and from this turn on changes
are held. So there is no gap between the files and what comes live, and no overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from warren.cluster.inventory import Fetch, make_plan
from warren.cluster.settings import (
    CATCHUP_IN_FLIGHT_BYTES_MAX,
    HELD_BYTES_MAX,
    Rules,
)
from warren.cluster.this_node import LedLogs
from warren.storage.replication import AllMarks, LogChange, LogId, Marks, Records, RemoveLog, SegmentState


def size_of(changes: Sequence[LogChange]) -> int:
    """How many bytes of data changes carry."""
    size = 0
    for change in changes:
        if isinstance(change, (Records, Marks, AllMarks)):
            size += len(change.data)
    return size


class Progress(Enum):
    """How far a catch-up has come in a turn."""

    WAITS = "for bytes to be read, or acks"
    MORE = "in another turn"
    DONE = "all logs are live"


class Catchup:
    """One session's way from an inventory to a follower in step."""

    __slots__ = (
        "_held_bytes",
        "ask",
        "ask_marks",
        "fetches",
        "held",
        "is_reading",
        "live",
        "log",
        "logs",
        "marks",
        "marks_asked",
        "rules",
        "send",
        "theirs",
        "vanished",
        "waiting",
    )

    def __init__(
        self,
        logs: LedLogs,
        theirs: Mapping[LogId, Sequence[SegmentState]],
        rules: Rules,
        send: Callable[[Sequence[LogChange]], None],
        ask: Callable[[LogId, Fetch], None],
        ask_marks: Callable[[LogId, int, int], None],
    ) -> None:
        self.logs = logs  # the leader's
        self.theirs = theirs  # what the follower has
        self.rules = rules  # all of them hold, but in the simulator
        self.send = send  # sends changes to the follower
        self.ask = ask  # asks for bytes of a segment
        self.ask_marks = ask_marks  # asks for all marks of a segment
        self.marks_asked: set[tuple[int, int]] = set()  # bases and epochs, of the log that is being sent
        self.marks: list[AllMarks] = []  # that have come
        self.waiting = dict.fromkeys(sorted({*theirs, *logs.logs()}))  # logs that are not begun, in order
        self.live: set[LogId] = set()  # logs whose changes are passed on
        self.log: LogId | None = None  # that is being sent
        self.fetches: deque[Fetch] = deque()  # of that log, still to be read
        self.held: list[LogChange] = []  # changes of that log since its plan was made
        self._held_bytes = 0  # in these changes
        self.vanished: set[tuple[int, int]] = set()  # segments that were dropped before they were sent whole
        self.is_reading = False  # a chunk was asked for

    def go_on(self, in_flight: int, logs_a_turn: int) -> Progress:
        """Send and ask for what can be sent and asked for now, but not more than one turn should."""
        for _ in range(2 * logs_a_turn):  # a log is begun, and goes live
            if self.is_reading or in_flight >= CATCHUP_IN_FLIGHT_BYTES_MAX:
                return Progress.WAITS
            if self.log is not None:
                if self.fetches:
                    self._read()
                    return Progress.WAITS
                if self.marks_asked:
                    return Progress.WAITS
                self._go_live()
            elif self.waiting:
                self._begin(next(iter(self.waiting)))
            else:
                return Progress.DONE
        return Progress.MORE

    def pass_on(self, changes: Sequence[LogChange]) -> list[LogChange]:
        """What of these changes the follower gets now."""
        passed: list[LogChange] = []
        for change in changes:
            log = change.log
            if log in self.live:
                passed.append(change)
            elif log == self.log:
                self._hold(change)
            elif log not in self.waiting:  # it is new
                self.live.add(log)
                passed.append(change)
        return passed

    def records_read(self, records: Records | None) -> None:
        """A chunk was read; None: its segment is not there any more."""
        if not self.is_reading or self.log is None:
            return
        self.is_reading = False
        fetch = self.fetches.popleft()
        if records is None or not records.data:
            self.vanished.add((fetch.base, fetch.epoch))
            return
        offset = fetch.offset + len(records.data)
        if offset < fetch.end:
            self.fetches.appendleft(fetch._replace(offset=offset))
        self.send((records,))

    def marks_read(self, log: LogId, base: int, epoch: int, marks: AllMarks | None) -> None:
        """Marks of a segment were read; None: the segment is not there any more."""
        if log == self.log and (base, epoch) in self.marks_asked:
            self.marks_asked.discard((base, epoch))
            if marks is not None:
                self.marks.append(marks)

    def _begin(self, log: LogId) -> None:
        del self.waiting[log]
        ours, theirs = self.logs.segments(log), self.theirs.get(log, ())
        if not self.logs.has(log):
            if log in self.theirs:
                self.send((RemoveLog(log),))
            self.live.add(log)
            return
        plan = make_plan(log, theirs, ours, self.rules)
        if plan.changes:
            self.send(plan.changes)
        self.log = log
        self.fetches.extend(plan.fetches)
        # Marks are asked for now, so that they are of records that the files have now: later ones are held.
        self.marks_asked.update((segment.base, segment.epoch) for segment in ours)
        for segment in ours:
            self.ask_marks(log, segment.base, segment.epoch)

    def _read(self) -> None:
        assert self.log is not None
        fetch = self.fetches[0]
        self.is_reading = True
        self.ask(self.log, fetch)

    def _hold(self, change: LogChange) -> None:
        if not self.rules.hold_changes:
            return
        self.held.append(change)
        self._held_bytes += size_of((change,))

    @property
    def holds_too_much(self) -> bool:
        """Whether the log grows faster than it is sent: the follower has to begin anew."""
        return self._held_bytes > HELD_BYTES_MAX

    def _go_live(self) -> None:
        log = self.log
        assert log is not None
        marks = [marks for marks in self.marks if (marks.base, marks.epoch) not in self.vanished]
        changes: list[LogChange] = [*marks, *filter(self._is_wanted, self.held), *self.logs.offsets(log)]
        self.marks = []
        self.log = None
        self.held = []
        self._held_bytes = 0
        self.vanished.clear()
        self.live.add(log)
        if changes:
            self.send(changes)

    def _is_wanted(self, change: LogChange) -> bool:
        """Whether the follower has a use for a held change: it has none, if it did not get the segment."""
        if isinstance(change, (Records, Marks)):
            return (change.base, change.epoch) not in self.vanished
        return True
