"""One group commit for all queues: what gathers in a turn is written and synced in one round.

    gathering    records in their segments' buffers, lines of definitions, and who waits for them
        |  when the disk is free
    in flight    written, then made safe: by a record in the journal; files that are new, and rounds that are
                 too large for that, by syncing files one by one, or if they are many, the file system
        |  when the disk is done
    safe         whoever waited is called

While a round is in flight the next one gathers, so that the slower the disk, the more each sync covers. There
is no timer. A round that fails is tried again as it is until it succeeds: nothing that was not synced is ever
called safe, and nothing is given up. Marks of what was delivered and acked are written at the end of each
turn of the event loop, before its output: so they are work of that turn, and taken off its budget as soon
as there is something to write.

The group commit is the `Safety` of all logs of a node, and of its definitions.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from warren.amqp.budget import Budget
from warren.broker.timers import Timers
from warren.storage.disk import SYNC, SYNC_ALL, SYNC_DIRECTORY, WRITE, Buffer, Operation
from warren.storage.files import OpenFiles
from warren.storage.format import HEADER_BYTES
from warren.storage.journal import Journal
from warren.storage.log_directory import OFFSETS
from warren.storage.rewriting import Rewritings
from warren.storage.segment import Segment
from warren.storage.segment_life import Life, OnDisk
from warren.storage.window import Window

NARROW_MAX = 4  # segments of a round that is cheap to begin and to end
SYNCED_ONE_BY_ONE_MAX = 4
RETRY_SECONDS = 0.5
FILES_A_TURN_MAX = 64
MADE_A_TURN_MAX = 4  # of these: each takes milliseconds on a disk that is busy
UNSAFE_BYTES_MAX = 64 * 1024 * 1024
TOLD_A_TURN_MAX = 500
DIRECTORIES_A_TURN_MAX = 1_000
BUFFERS_BYTES_MAX = 16 * 1024 * 1024
MARKS_WORK = 50  # units of work: writing to a file, which may have to be opened
FIRST_MARKS_WORK = 10_000  # the same, if it has to be made, perhaps with its directory: see MADE_A_TURN_MAX


class OperationRunner(Protocol):
    """Carries out one list of operations at a time."""

    def submit(self, operations: list[Operation]) -> None: ...
    def result(self) -> OSError | None: ...


class DefinitionLines(Protocol):
    """The definitions, as far as the disk is concerned."""

    def has_news(self) -> bool: ...
    def operations(self) -> list[Operation]: ...
    def are_safe(self) -> None: ...


class AllLines:
    """Lines of several files, written in one round."""

    def __init__(self, files: Sequence[DefinitionLines]) -> None:
        self.files = files
        self.writing: list[DefinitionLines] = []  # those with lines in the round in flight

    def has_news(self) -> bool:
        return any(file.has_news() for file in self.files)

    def operations(self) -> list[Operation]:
        self.writing = [file for file in self.files if file.has_news()]
        return [operation for file in self.writing for operation in file.operations()]

    def are_safe(self) -> None:
        for file in self.writing:
            file.are_safe()
        self.writing = []


class Offsets(Protocol):
    """Named offsets of a stream that have changed."""

    size: int  # of their file

    def write(self) -> None: ...


class DeadTail(Protocol):
    """A log in whose tail nothing was alive, when last seen."""

    def drop_dead_tail(self) -> None: ...


class Background(Protocol):
    """What is done in the background: nobody waits for it."""

    def write_index(self, segment: Segment) -> None: ...
    def remove(self, segment: Segment) -> None: ...
    def remove_now(self, segment: Segment) -> None: ...
    def remove_directories(self, paths: Sequence[str]) -> None: ...
    def rewrite(self, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None: ...
    def let_go(self, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None: ...


class Watcher(Protocol):
    """Is told how the disk does."""

    def disk_failed(self, error: OSError) -> None: ...
    def disk_works(self) -> None: ...
    def round_is_over(self) -> None: ...
    def report(self, error: Exception) -> None: ...


class Flight:
    """A round under way. It goes to the disk in several parts if it has more files than may be open."""

    def __init__(
        self,
        number: int,
        begun: float,
        waiters: list[Callable[[int], None]],
        segments: list[Segment],
    ) -> None:
        self.number = number
        self.begun = begun  # when it began, in seconds of `Timers.now`
        self.waiters = waiters  # called when the round is over
        self.segments = segments  # all that have records in it
        self.waiting = segments  # those of later parts
        self.part: list[Segment] = []  # those of the part that is with the disk, or about to be
        self.writes: list[Operation] = []  # the writes of that part, as far as they are prepared
        self.is_journaled = False  # a record in the journal makes it safe
        self.lines: list[Operation] | None = None  # how definitions are written with it; None: not asked yet
        self.names: set[str] = set()  # directories to be synced, for the names of new files
        self.directories: list[int] = []  # those of them that are open


class GroupCommit:
    """Makes the rounds, one after the other."""

    def __init__(
        self,
        timers: Timers,
        disk: OperationRunner,
        files: OpenFiles,
        housekeeping: Background,
        definitions: DefinitionLines,
        journal: Journal,
        watcher: Watcher,
        *,
        sync: bool,
    ) -> None:
        self.timers = timers
        self.disk = disk  # carries out a round
        self.files = files
        self.housekeeping = housekeeping  # writes indexes, and deletes
        self.definitions = definitions  # says what to write of them
        self.journal = journal  # makes most rounds safe
        self.watcher = watcher  # is told how the disk does
        self.window = Window(files)  # through which all logs read single records
        self.rewritings = Rewritings(files, housekeeping, sync=sync)  # of ack files
        self.sync = sync  # whether what is called safe survives a power cut
        # the round that gathers
        self.gathering = 1  # its number
        self.scheduled = False  # it begins with the next turn
        self.dirty: list[Segment] = []  # segments with records in it
        self.waiters: list[Callable[[int], None]] = []  # to be called when it is over
        # the round in flight
        self.flight: Flight | None = None
        self.failure: OSError | None = None  # why it, or the writing of marks, has not succeeded yet
        # of both rounds, and those before
        self.unsafe_bytes = 0  # in records that are not safe yet
        self.written_bytes = 0  # that were ever written
        self.to_tell: deque[tuple[Callable[[int], None], int]] = deque()  # waiters of rounds that are over
        self.buffers: list[Buffer] = []  # that are empty, for the next round
        self.buffered_bytes = 0  # the size of these
        # what the end of a turn writes
        self.budget = Budget()  # of the turn, until the node has set its own
        self.marked: list[Segment] = []  # segments with marks
        self.offsets: dict[Offsets, None] = {}  # of streams whose named offsets have changed, in order
        self.marks_wait = False  # for the disk to work again
        # what is to be deleted
        self.dropped: list[Segment] = []  # segments of which all messages are done with
        self.dead_tails: set[DeadTail] = set()  # logs whose open segment may be dropped, by `tidy`
        self.condemned: dict[str, Sequence[Segment]] = {}  # by the directories of queues that are deleted
        self.leaving: dict[int, list[str]] = {}  # these directories, by the round that makes it safe
        self.stopped = False
        self.on_round_took: Callable[[float], None] | None = None  # told how many seconds a round took

    def add_lines(self, lines: DefinitionLines) -> None:
        """From now on, these lines are written and synced with the rounds, too."""
        self.definitions = AllLines([self.definitions, lines])

    # --- gathering ---

    def gather(self, segment: Segment) -> None:
        """A segment is about to get a record in this round."""
        segment.dirty = True
        if segment.gathered is None:
            segment.gathered = self._buffer()
        self.dirty.append(segment)
        self.schedule()

    def _buffer(self) -> Buffer:
        if not self.buffers:
            return Buffer()
        buffer = self.buffers.pop()
        self.buffered_bytes -= buffer.allocated
        return buffer

    def _keep(self, buffer: Buffer) -> None:
        """Use it again for the next round: new memory costs more than the copying into it."""
        if self.buffered_bytes + buffer.allocated <= BUFFERS_BYTES_MAX:
            buffer.clear()
            self.buffers.append(buffer)
            self.buffered_bytes += buffer.allocated

    def when_safe(self, callback: Callable[[int], None], ended: Callable[[], None] | None = None) -> None:
        """Call back with its number when the round that gathers now is over, as every round is some time."""
        self.waiters.append(callback)
        self.schedule()

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call back when the round that gathers now is over."""
        self.when_safe(lambda _number: callback())

    def schedule(self) -> None:
        if not self.scheduled and self.flight is None:
            self.scheduled = True
            self.timers.call_soon(self.begin)

    @property
    def behind(self) -> bool:
        """Whether so much has gathered that publishers should wait."""
        return self.unsafe_bytes > UNSAFE_BYTES_MAX

    @property
    def is_idle(self) -> bool:
        return self.flight is None and not self.dirty and not self.waiters and not self.definitions.has_news()

    @property
    def is_narrow(self) -> bool:
        """Whether the round in flight has records of few segments."""
        return self.flight is not None and len(self.flight.segments) <= NARROW_MAX

    # --- a round ---

    def begin(self) -> None:
        """Send off what has gathered, if the disk is free."""
        self.scheduled = False
        if self.stopped or self.flight is not None or self.is_idle:
            return
        segments = [segment for segment in self.dirty if not segment.is_dropped()]
        self.dirty.clear()
        waiters, self.waiters = self.waiters, []
        self.flight = Flight(self.gathering, self.timers.now(), waiters, segments)
        self.gathering += 1
        self.unsafe_bytes = 0
        for segment in segments:
            assert segment.gathered is not None, "something was appended"
            segment.dirty = False
            segment.flying, segment.gathered = segment.gathered, None
            self.unsafe_bytes += len(segment.flying)
        self.send_part()

    def send_part(self) -> None:
        """Submit as many of the segments in flight as files may be open."""
        flight = self.flight
        assert flight is not None, "there is a round under way"
        most = max(1, self.files.limit // 2)
        flight.part, flight.waiting = flight.waiting[:most], flight.waiting[most:]
        flight.writes = []
        self._prepare(flight)

    def _prepare(self, flight: Flight) -> None:
        """Open the files of a part, or make them, some in each turn. When all are ready, submit the part."""
        begun = len(flight.writes)
        made = 0
        try:
            for segment in flight.part[begun : begun + FILES_A_TURN_MAX]:
                made += not segment.is_made()
                flight.writes.append(self._write(flight, segment))
                if made == MADE_A_TURN_MAX:
                    break
            if len(flight.writes) < len(flight.part):
                self.timers.call_soon(lambda: None if self.stopped else self._prepare(flight))
                return
            operations = [*flight.writes]
            if not flight.waiting:
                operations += self._syncs(flight, flight.writes)
                operations += self._lines(flight)
        except OSError as error:
            self._failed(error, self.send_again)
        else:
            self.disk.submit(operations)

    def send_again(self) -> None:
        """Send the round again from its beginning: a sync that failed may have lost all writes since the sync
        before.
        """
        flight = self.flight
        assert flight is not None, "there is a round under way"
        self._unpin(flight)
        flight.waiting = flight.segments
        self.send_part()

    def _write(self, flight: Flight, segment: Segment) -> Operation:
        path = segment.path + ".seg"
        if not segment.is_named():
            self._name(flight, segment)
        file = self.files.create(path)
        if not segment.is_made():
            segment.enter(OnDisk.MADE)
        self.files.pinned.add(path)
        return Operation(WRITE, file=file, data=segment.flying, offset=segment.written)

    def _name(self, flight: Flight, segment: Segment) -> None:
        """Have the directory of a segment, and note which names have to be synced with the round: they are
        new, or nobody knows if they were ever synced.
        """
        directory = segment.directory
        assert directory is not None, "what is appended to belongs to a log"
        directory.make()
        if not segment.volatile:
            flight.names |= directory.unsynced()

    def _syncs(self, flight: Flight, writes: list[Operation]) -> list[Operation]:
        """The operations that make the whole round safe, once its last part is written."""
        to_sync = [segment for segment in flight.segments if not segment.volatile]
        if not self.sync or not to_sync:
            return []
        new = [segment for segment in to_sync if not segment.can_be_journaled()]
        record = None
        if not self._are_many(flight, new):
            record = self.journal.record([segment for segment in to_sync if segment.can_be_journaled()])
        flight.is_journaled = record is not None
        if record is not None:
            to_sync = new
        if self._are_many(flight, to_sync):
            return [Operation(SYNC_ALL, file=writes[0].file)]
        self._open_directories(flight)
        return [
            *(Operation(SYNC, file=self.files.open(segment.path + ".seg")) for segment in to_sync),
            *(Operation(SYNC_DIRECTORY, file=file) for file in flight.directories),
            *([] if record is None else [record]),
        ]

    def _are_many(self, flight: Flight, segments: list[Segment]) -> bool:
        """Whether these are too many files to be synced one by one, or some of them are not open any more."""
        in_parts = len(flight.part) < len(flight.segments)
        return bool(segments) and (in_parts or len(segments) + len(flight.names) > SYNCED_ONE_BY_ONE_MAX)

    def _open_directories(self, flight: Flight) -> None:
        self._close_directories(flight)
        for path in sorted(flight.names):
            flight.directories.append(self.files.open_directory(path))

    def _close_directories(self, flight: Flight) -> None:
        while flight.directories:
            os.close(flight.directories.pop())

    def _lines(self, flight: Flight) -> list[Operation]:
        """The operations that write definitions. They come after those of the messages, so that no queue is
        on disk without what was published to it.
        """
        if flight.lines is None:
            flight.lines = self.definitions.operations() if self.definitions.has_news() else []
        return flight.lines

    def completed(self) -> None:
        """The disk has carried out what was submitted, or failed."""
        error = self.disk.result()
        flight = self.flight
        assert flight is not None, "something was submitted"
        if error is not None:
            self._failed(error, self.send_again)
        elif flight.waiting:
            self._unpin(flight)
            self.send_part()
        else:
            if not self.marks_wait:
                self._works()
            if flight.is_journaled:
                self.journal.is_written()
            self._unpin(flight)
            for segment in flight.segments:
                self._landed(segment)
            self._finish(flight)

    def _failed(self, error: OSError, again: Callable[[], None]) -> None:
        self.journal.distrust()
        if self.failure is None or self.failure.errno != error.errno:
            self.failure = error
            self.watcher.disk_failed(error)
        self.timers.call_later(RETRY_SECONDS, lambda: None if self.stopped else again())

    def _works(self) -> None:
        if self.failure is not None:
            self.failure = None
            self.watcher.disk_works()

    def _unpin(self, flight: Flight) -> None:
        for segment in flight.part:
            self.files.pinned.discard(segment.path + ".seg")

    def _landed(self, segment: Segment) -> None:
        """A segment's part of the round is written and synced."""
        buffer, directory = segment.flying, segment.directory
        assert buffer is not None, "it was in flight"
        assert directory is not None, "it was appended to"
        if not segment.is_named():
            segment.enter(OnDisk.NAMED)
        directory.are_synced()
        size = len(buffer)
        segment.written += size
        self.written_bytes += size
        segment.flying = None
        self._keep(buffer)
        if segment.is_dropped():
            self._remove(segment)
        elif segment.is_closed() and not segment.dirty:
            self.complete(segment)

    def _finish(self, flight: Flight) -> None:
        self._close_directories(flight)
        if flight.lines:
            self.definitions.are_safe()
        self.flight = None
        if self.on_round_took is not None:
            self.on_round_took(self.timers.now() - flight.begun)
        self.unsafe_bytes = 0
        for segment in self.dirty:
            if segment.gathered is not None:
                self.unsafe_bytes += len(segment.gathered)
        are_being_told = bool(self.to_tell)
        self.to_tell += [(waiter, flight.number) for waiter in flight.waiters]
        if not are_being_told:
            self._tell()
        self.begin()
        self.watcher.round_is_over()

    def _tell(self) -> None:
        """Call the waiters of rounds that are over, in order: some in this turn, the rest in the next."""
        for _ in range(min(TOLD_A_TURN_MAX, len(self.to_tell))):
            waiter, number = self.to_tell[0]
            try:
                waiter(number)
            except Exception as error:  # noqa: BLE001 - a waiter that fails must not keep the others waiting
                self.watcher.report(error)
            self.to_tell.popleft()  # only now: a waiter that comes meanwhile is told after it
        if self.to_tell:
            self.timers.call_soon(self._tell_more)

    def _tell_more(self) -> None:
        self._tell()
        self.watcher.round_is_over()

    # --- marks ---

    def mark(self, segment: Segment) -> None:
        """Something of this segment was delivered, or is done with."""
        segment.marked = True
        self.marked.append(segment)
        self._charge(segment.marks_written)

    def _charge(self, written: int) -> None:
        """Take off the turn's budget what it costs to write to a file that has so many bytes."""
        self.budget.left -= MARKS_WORK if written else FIRST_MARKS_WORK

    def write_marks(self) -> None:
        """Write marks and offsets, and delete dropped segments. What cannot be written now is tried again."""
        if self.marked and not self.marks_wait:
            segments, self.marked = self.marked, []
            for segment in segments:
                segment.marked = False
                try:
                    self._write_marks_of(segment)
                except OSError as error:
                    self._marks_failed(segment, error)
        if self.offsets and not self.marks_wait:
            self._write_offsets()
        self.rewritings.go_on()
        if self.dropped:
            dropped, self.dropped = self.dropped, []
            for segment in dropped:
                if segment.flying is None:
                    self._remove(segment)

    def note_offsets(self, offsets: Offsets) -> None:
        """Some offsets of a stream have changed."""
        if offsets not in self.offsets:
            self.offsets[offsets] = None
            self._charge(offsets.size)

    def _write_offsets(self) -> None:
        """Write the offsets that have changed. Those that cannot be written are kept for the next time."""
        changed, self.offsets = self.offsets, {}
        for offsets in changed:
            try:
                offsets.write()
            except OSError as error:
                self.offsets[offsets] = None
                self._wait_with_marks(error)

    def _marks_failed(self, segment: Segment, error: OSError) -> None:
        """Marks of this segment could not be written. If it is dropped, deleting it says the same, and makes
        room on a full disk.
        """
        if segment.is_dropped() and segment.flying is None:
            self._remove(segment, at_once=True)
            return
        if not segment.is_made():
            segment.enter(OnDisk.MADE)  # some of the ack file may be there
        self.mark(segment)
        self._wait_with_marks(error)

    def _wait_with_marks(self, error: OSError) -> None:
        if not self.marks_wait:
            self.marks_wait = True
            self._failed(error, self._write_marks_again)

    def _write_marks_again(self) -> None:
        self.marks_wait = False
        self.write_marks()
        if not self.marks_wait and self.flight is None:
            self._works()

    def _write_marks_of(self, segment: Segment) -> None:
        directory = segment.directory
        if directory is None or directory.deleted or segment.is_removed():
            return
        if segment.is_dropped() and not segment.is_made() and segment.flying is None:
            return  # its records were never written
        data = segment.marks_to_write()
        if not data:
            return  # others have taken their place
        if not directory.made:
            directory.make()
        self.files.write(segment.path + ".acks", data, segment.marks_written)
        if directory.tap is not None:
            directory.tap.marked(segment, data if segment.marks_written else data[HEADER_BYTES:])
        segment.marks_are_written()
        if segment.marks_written > segment.acks_bytes_max:
            self.rewritings.consider(segment)

    # --- segments that end ---

    def complete(self, segment: Segment) -> None:
        """All records of a closed segment are written: its index can be, too."""
        segment.enter(Life.COMPLETE)
        self.files.close(segment.path + ".seg")
        if not segment.volatile:
            self.housekeeping.write_index(segment)

    def drop(self, segment: Segment) -> None:
        """All messages of a segment are done with. Once that is written, its files are deleted."""
        segment.enter(Life.DROPPED)
        segment.gathered = None
        self.dropped.append(segment)

    def _remove(self, segment: Segment, *, at_once: bool = False) -> None:
        """Delete the files of a dropped segment, which may have been done already: when a round was over."""
        if segment.is_removed():
            return
        segment.enter(Life.REMOVED)
        for suffix in (".seg", ".acks"):
            self.files.close(segment.path + suffix)
        if at_once:
            self.housekeeping.remove_now(segment)
        elif segment.is_made() or segment.marks_written:
            self.housekeeping.remove(segment)

    def forget(self, segments: Sequence[Segment], directory: str) -> None:
        """A queue is deleted. Once that is safe, its directory goes, too."""
        for segment in segments:
            segment.enter(Life.DROPPED)
            segment.gathered = None
        self.condemned[directory] = segments
        leaving = self.leaving.get(self.gathering)
        if leaving is None:
            self.leaving[self.gathering] = [directory]
            self.when_safe(self._remove_directories)
        else:
            leaving.append(directory)

    def _remove_directories(self, number: int) -> None:
        """Delete the directories of queues whose deletion is safe with this round: some in each turn."""
        leaving = self.leaving[number]
        some = leaving[-DIRECTORIES_A_TURN_MAX:]
        del leaving[-DIRECTORIES_A_TURN_MAX:]
        self._remove_all(some)
        if leaving:
            self.timers.call_soon(lambda: self._remove_directories(number))
        else:
            del self.leaving[number]

    def _remove_all(self, directories: list[str]) -> None:
        for directory in directories:
            for segment in self.condemned.pop(directory, ()):
                for suffix in (".seg", ".acks"):
                    self.files.close(segment.path + suffix)
            self.files.close(f"{directory}/{OFFSETS}")
        self.housekeeping.remove_directories(directories)

    def tidy(self) -> None:
        """Give back the space of open segments in which nothing is alive. If the disk fails, it is most
        likely full: then directories of deleted queues go at once, since no round would be over before there
        is room.
        """
        if self.failure is not None:
            self._remove_all(list(self.condemned))
        logs, self.dead_tails = self.dead_tails, set()
        for log in logs:
            log.drop_dead_tail()
        self.write_marks()
