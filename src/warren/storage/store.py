"""A node's disk, put together: the directory, the definitions, the logs of queues, and their group commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from weakref import WeakValueDictionary

from warren.amqp.budget import Budget
from warren.broker.commands import Command, DeclareQueue
from warren.broker.rules import STREAM, queue_type
from warren.broker.safety import Safety
from warren.broker.store import MessageLog, MoveNotes, Store, StreamLog
from warren.broker.timers import Timers
from warren.storage.command_text import command_to_json
from warren.storage.commit import GroupCommit
from warren.storage.commit import OperationRunner as DiskLike
from warren.storage.definition_keys import QueueKey
from warren.storage.definitions import command_in
from warren.storage.definitions_file import DefinitionsFile
from warren.storage.directory import BOOT_ID, DataDirectory, stream_identity
from warren.storage.files import OpenFiles, make_directory
from warren.storage.housekeeping import Housekeeping
from warren.storage.journal import Journal
from warren.storage.log_directory import LogDirectory, is_part
from warren.storage.log_listing import LogListing
from warren.storage.move_notes import MoveFile
from warren.storage.move_recovery import settle_moves
from warren.storage.named_offsets import NamedOffsets
from warren.storage.problems import Logger, Problems
from warren.storage.queue_log import QueueLog
from warren.storage.queues_recovery import QueuesRecovery
from warren.storage.recovery import RecoveredLog
from warren.storage.shards import Shards, ShardSettings, Spread
from warren.storage.shards_file import read_shard_notes
from warren.storage.stream_log import SegmentedStream
from warren.storage.stream_recovery import RecoveredStream
from warren.storage.unknown_queues import UnknownQueues


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """What the operator can choose, and tests besides."""

    path: Path  # the data directory
    sync: bool = True  # whether what is called safe survives a power cut, or only the end of the process
    segment_bytes: int = 8 * 1024 * 1024  # at which a segment is full
    stream_segment_bytes: int = 32 * 1024 * 1024  # the same, of a stream
    journal_file_bytes: int = 32 * 1024 * 1024  # the size of each of the journal's two files
    open_files_max: int = 1_000
    boot_id: Path = BOOT_ID  # a file that says something else each time the machine starts


class DiskStore(Store):
    """A node's data directory."""

    def __init__(
        self,
        settings: StorageSettings,
        timers: Timers,
        disk: DiskLike,
        log: Logger,
        *,
        on_trouble: Callable[[], None],
        on_round: Callable[[], None],
        on_error: Callable[[Exception], None],
        files: OpenFiles | None = None,
        housekeeping: Housekeeping | None = None,
    ) -> None:
        self.settings = settings
        self.log = log
        self.on_trouble = on_trouble  # called when the disk fails
        # This store is the `Watcher` of the group commit: a round is over, and its waiters have been called.
        self.round_is_over = on_round
        self.report = on_error  # called with an exception that nobody else handles
        self.problems = Problems(log.warning)  # is told what is wrong with files
        self.files = files or OpenFiles(settings.open_files_max)
        self.directory = DataDirectory(
            settings.path, self.files, log.warning, sync=settings.sync, boot_id=settings.boot_id
        )
        self.queues = str(self.directory.queues)  # the directory of all queues
        self.file = DefinitionsFile(self.directory.definitions, self.files, sync=settings.sync)
        self.housekeeping = housekeeping or Housekeeping(log.warning, on_error)
        self.journal = Journal(
            settings.path, self.files, self.housekeeping, settings.journal_file_bytes, sync=settings.sync
        )
        self.commit = GroupCommit(
            timers, disk, self.files, self.housekeeping, self.file, self.journal, self, sync=settings.sync
        )
        # logs that were read back, until they are opened: by vhost and name, and of queues by their part
        self.recovered: dict[tuple[str, str, str], RecoveredLog] = {}
        self.recovered_streams: dict[tuple[str, str], RecoveredStream] = {}
        self.directories: WeakValueDictionary[int, LogDirectory] = (
            WeakValueDictionary()
        )  # by a queue's number
        self.overflows = count(1)  # numbers the directories of volatile logs
        self.moves = count(1)  # numbers the files that have notes of moves
        self.shared_stream_id: Callable[[str, str], str] = _no_stream  # of streams that several nodes keep
        self.listing = LogListing()  # what the HTTP API knows of segments
        self.is_recovered = False  # all was read back
        self.timers = timers
        self.shards: Shards | None = None  # what it keeps of the shards of a cluster
        self.after_marks: Callable[[], None] | None = None  # called when the marks of a turn are written

    keeps_streams = True

    # --- what the model asks ---

    @property
    def safety(self) -> Safety:
        """The group commit: definitions are synced in its rounds, behind the messages."""
        return self.commit

    def begin_round(self) -> None:
        if self.commit.dirty and self.commit.flight is None:
            self.commit.begin()

    def charge(self, budget: Budget) -> None:
        self.commit.budget = budget

    def write_marks(self) -> None:
        commit = self.commit
        if commit.marked or commit.dropped or commit.offsets or commit.rewritings.written:
            commit.write_marks()
        if self.after_marks is not None:
            self.after_marks()

    def record(self, command: Command, number: int = 0) -> None:
        if self.file.definitions.record(command, number):
            self.commit.schedule()

    def is_saving(self) -> bool:
        flight = self.commit.flight
        return self.file.has_news() or (flight is not None and bool(flight.lines))

    def open_log(self, vhost: str, queue: str, part: str = "") -> tuple[MessageLog, int] | None:
        found = self.recovered.pop((vhost, queue, part), None) or RecoveredLog([], 0)
        directory = self._log_directory(vhost, queue)
        if part:
            assert is_part(part), "another name would not be found again"
            directory = LogDirectory(f"{directory.path}/{part}", self.files, parent=directory)
        size = self.settings.segment_bytes
        log = QueueLog(directory, self.commit, self.problems, size, segments=found.segments)
        for segment in found.segments:
            self.commit.rewritings.consider(segment)
        return log, found.position

    def open_stream(self, vhost: str, name: str) -> tuple[StreamLog, int]:
        found = self.recovered_streams.pop((vhost, name), None) or RecoveredStream([], 0, {}, 0)
        directory = self._log_directory(vhost, name)
        named = NamedOffsets(
            directory,
            self.files,
            self.housekeeping,
            found.offsets,
            found.offsets_size,
            sync=self.settings.sync,
        )
        size = self.settings.stream_segment_bytes
        log = SegmentedStream(
            directory, self.commit, self.problems, size, named, found.segments, found.position
        )
        return log, found.position

    def stream_id(self, vhost: str, name: str) -> str:
        """The id of a stream, which is never used for another; empty if there is no such stream."""
        number = self.file.definitions.numbers.get(QueueKey(vhost, name))
        if number is None:
            return self.shared_stream_id(vhost, name)
        return stream_identity(self.directory.identity, number)

    def _log_directory(self, vhost: str, queue: str) -> LogDirectory:
        """The directory of a queue, which all its logs share."""
        number = self.file.definitions.queue_number(vhost, queue)
        directory = self.directories.get(number)
        if directory is None:
            line = self.file.definitions.live[QueueKey(vhost, queue)]
            directory = LogDirectory(f"{self.queues}/{number}", self.files, describe=lambda: _describe(line))
            self.directories[number] = directory
        return directory

    def begin_moves(self, vhost: str, source: str, target: str) -> MoveNotes | None:
        numbers = self.file.definitions.numbers
        old, new = (numbers.get(QueueKey(vhost, name)) for name in (source, target))
        if old is None or new is None:
            return None
        make_directory(str(self.directory.moves))
        path = str(self.directory.moves / str(next(self.moves)))
        return MoveFile(path, self.files, self.commit, old, new)

    def open_overflow(self) -> MessageLog:
        directory = LogDirectory(str(self.directory.transient / str(next(self.overflows))), self.files)
        return QueueLog(directory, self.commit, self.problems, self.settings.segment_bytes, volatile=True)

    # --- how the disk does ---

    @property
    def is_failing(self) -> bool:
        return self.commit.failure is not None

    def disk_failed(self, error: OSError) -> None:
        self.log.error("cannot write; publishers are blocked until it works again", error=str(error))
        self.on_trouble()

    def disk_works(self) -> None:
        self.log.info("writing works again")

    # --- start and end ---

    def recover(self) -> list[Command]:
        """Read all that is there, however long it takes. The commands that make the definitions again."""
        self.directory.open()
        problems = self.file.load()
        for problem in problems:
            self.log.warning("definitions", line=problem.line, offset=problem.offset, reason=problem.reason)
        definitions = self.file.definitions
        numbers = {number: (key.vhost, key.name) for key, number in definitions.numbers.items()}
        numbers |= self._unknown_queues().settle(numbers)
        self._save_definitions()
        self.journal.cuts = read_shard_notes(self.settings.path).cuts
        self._recover_journal()
        settle_moves(self.directory.moves, self.queues, self._sync, self.log)
        commands = self.file.take_commands()
        self._recover_queues(numbers, _streams_among(commands))
        self.directory.note_run()
        self.is_recovered = True
        return commands

    def _unknown_queues(self) -> UnknownQueues:
        return UnknownQueues(
            self.directory.queues,
            self.file,
            self.log,
            remove=lambda path: self.housekeeping.remove_directories([path]),
            sync=self._sync,
        )

    def _recover_journal(self) -> None:
        rounds = self.journal.recover(self.log.warning)
        if rounds:
            self.log.info("segments have what the journal has", rounds=rounds)

    def _save_definitions(self) -> None:
        try:
            self.file.save()
        except OSError as error:  # a full disk; they are written when it has room again
            self.log.warning("cannot write definitions", file=str(self.file.path), error=str(error))

    def _recover_queues(self, numbers: dict[int, tuple[str, str]], streams: set[tuple[str, str]]) -> None:
        recovery = QueuesRecovery(
            self.queues,
            self.problems,
            self._sync,
            self.log,
            marks_may_be_lost=self.directory.marks_may_be_lost,
        )
        recovery.run(numbers.keys(), {number for number, queue in numbers.items() if queue in streams})
        self.recovered = {(*numbers[number], part): log for (number, part), log in recovery.logs.items()}
        self.recovered_streams = {numbers[number]: stream for number, stream in recovery.streams.items()}

    def _sync(self, path: str) -> None:
        if self.settings.sync:
            self.files.sync(path)

    # --- in a cluster ---

    def open_shards(
        self,
        *,
        call_from_thread: Callable[[Callable[[], None]], None],
        is_stream: Callable[[int], bool | None],
        spread: Spread,
    ) -> Shards:
        """What this store keeps of a cluster's shards, once all was read back. `call_from_thread` has the
        event loop call something soon, in any thread; `is_stream` says, in any thread, whether a queue is a
        stream, by its number, or None if that is not known.
        """
        assert self.is_recovered, "the journal has been emptied"
        assert self.shards is None, "opened once"
        self.shards = Shards(
            self.settings.path,
            self.commit,
            self.files,
            self.housekeeping,
            self.problems,
            self.log,
            settings=ShardSettings(
                sync=self.settings.sync,
                machine_went_down=self.directory.marks_may_be_lost,
                segment_bytes=self.settings.segment_bytes,
                stream_segment_bytes=self.settings.stream_segment_bytes,
            ),
            timers=self.timers,
            call_from_thread=call_from_thread,
            is_stream=is_stream,
            spread=spread,
        )
        return self.shards

    def tidy(self) -> None:
        """From time to time: give space back, and try again what housekeeping could not do."""
        self.commit.tidy()
        self.housekeeping.try_again()

    def close(self) -> None:
        """Close all files. What was not written by now is not written any more. This run did not end well if
        something is unwritten, or if not all was read back: then the next start must know how the run before
        this one ended.
        """
        all_is_written = self.commit.is_idle and not self.is_failing and not self.commit.marked
        self.commit.stopped = True
        self.commit.rewritings.stop()
        self.housekeeping.stop()
        self.commit.rewritings.close()
        if self.shards is not None:
            self.shards.close()
        self.journal.close(well=all_is_written and self.is_recovered)
        self.files.close_all()
        self.file.close()
        self.directory.close(well=all_is_written and self.is_recovered)


def _describe(line: bytes) -> str:
    """What the file in a queue's directory says: the command that declared the queue. The definitions may not
    have it any more: a vhost that is deleted loses its queues one after the other.
    """
    return json.dumps(command_to_json(command_in(line))) + "\n"


def _streams_among(commands: list[Command]) -> set[tuple[str, str]]:
    return {
        (command.vhost, command.name)
        for command in commands
        if isinstance(command, DeclareQueue) and queue_type(command.arguments) == STREAM
    }


def _no_stream(_vhost: str, _name: str) -> str:
    """A node that is alone shares none."""
    return ""
