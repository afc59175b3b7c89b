"""A node's disk, put together: the directory, the definitions, the logs of queues, and their group commit."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

from warren.broker.commands import Command, DeclareQueue
from warren.broker.flow import Timers
from warren.broker.rules import STREAM, queue_type
from warren.broker.store import MessageLog, Store, StreamLog
from warren.storage.command_text import command_to_json
from warren.storage.commit import Disk as DiskLike
from warren.storage.commit import GroupCommit
from warren.storage.definitions_file import DefinitionsFile
from warren.storage.directory import BOOT_ID, DataDirectory
from warren.storage.files import OpenFiles
from warren.storage.housekeeping import Housekeeping
from warren.storage.log_directory import LogDirectory, is_part, parts_in
from warren.storage.log_listing import LogListing
from warren.storage.named_offsets import NamedOffsets
from warren.storage.queue_log import QueueLog
from warren.storage.recovery import Problems, Recovered, recover
from warren.storage.stream_log import SegmentedStream
from warren.storage.stream_recovery import RecoveredStream, recover_stream
from warren.storage.unknown_queues import UnknownQueues

RECOVERY_THREADS = 4
PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """`sync`: whether what is called safe survives a power cut, or only the end of the process. `boot_id` is
    a file that says something else each time the machine starts.
    """

    path: Path
    sync: bool = True
    segment_bytes: int = 8 * 1024 * 1024
    stream_segment_bytes: int = 32 * 1024 * 1024
    open_files_max: int = 1_000
    boot_id: Path = BOOT_ID


class Log(Protocol):
    """Where problems are told."""

    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


class DiskStore(Store):
    """`on_trouble` is called when the disk fails, and `on_round` when a round is over and all who waited
    for it have been told.
    """

    def __init__(
        self,
        settings: StorageSettings,
        timers: Timers,
        disk: DiskLike,
        log: Log,
        *,
        on_trouble: Callable[[], None],
        on_round: Callable[[], None],
        on_error: Callable[[Exception], None],
        files: OpenFiles | None = None,
        housekeeping: Housekeeping | None = None,
    ) -> None:
        self.settings = settings
        self.log = log
        self.on_trouble = on_trouble
        self.round_is_over = on_round
        self.report = on_error
        self.problems = Problems(log.warning)
        self.files = files or OpenFiles(settings.open_files_max)
        self.directory = DataDirectory(
            settings.path, self.files, log.warning, sync=settings.sync, boot_id=settings.boot_id
        )
        self.file = DefinitionsFile(self.directory.definitions, sync=settings.sync)
        self.housekeeping = housekeeping or Housekeeping(log.warning, on_error)
        self.commit = GroupCommit(
            timers, disk, self.files, self.housekeeping, self.file, self, sync=settings.sync
        )
        self.recovered: dict[tuple[str, str, str], Recovered] = {}
        self.recovered_streams: dict[tuple[str, str], RecoveredStream] = {}
        self.directories: WeakValueDictionary[int, LogDirectory] = WeakValueDictionary()  # of queues
        self.overflows = count(1)
        self.listing = LogListing()
        self.is_recovered = False

    keeps_streams = True

    # --- what the model asks ---

    @property
    def gathering(self) -> int:  # type: ignore[override]
        return self.commit.gathering

    @property
    def behind(self) -> bool:  # type: ignore[override]
        return self.commit.behind

    def when_safe(self, callback: Callable[[int], None]) -> None:
        self.commit.when_safe(callback)

    def begin_round(self) -> None:
        if self.commit.dirty and self.commit.flight is None:
            self.commit.begin()

    def write_marks(self) -> None:
        if self.commit.marked or self.commit.dropped or self.commit.offsets:
            self.commit.write_marks()

    def record(self, command: Command) -> None:
        if self.file.definitions.record(command):
            self.commit.schedule()

    def is_saving(self) -> bool:
        flight = self.commit.flight
        return self.file.has_news() or (flight is not None and bool(flight.lines))

    def open_log(self, vhost: str, queue: str, part: str = "") -> tuple[MessageLog, int] | None:
        found = self.recovered.pop((vhost, queue, part), None) or Recovered([], 0)
        directory = self._log_directory(vhost, queue)
        if part:
            assert is_part(part), "another name would not be found again"
            directory = LogDirectory(f"{directory.path}/{part}", self.files, parent=directory)
        size = self.settings.segment_bytes
        log = QueueLog(directory, self.commit, self.problems, size, segments=found.segments)
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

    def _log_directory(self, vhost: str, queue: str) -> LogDirectory:
        """All logs of a queue share one."""
        number = self.file.definitions.queue_number(vhost, queue)
        directory = self.directories.get(number)
        if directory is None:
            path = str(self._directory_of(number))
            directory = LogDirectory(path, self.files, describe=lambda: self._describe(vhost, queue))
            self.directories[number] = directory
        return directory

    def _describe(self, vhost: str, queue: str) -> str:
        """What a queue's directory says of it."""
        return json.dumps(command_to_json(self.file.definitions.queue(vhost, queue)), indent=2) + "\n"

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
        """Read all that is there; the commands that make the definitions again. Takes as long as it takes."""
        self.directory.open()
        problems = self.file.load()
        for problem in problems:
            self.log.warning("definitions", line=problem.line, offset=problem.offset, reason=problem.reason)
        definitions = self.file.definitions
        numbers = {}
        for command in definitions.commands():
            if isinstance(command, DeclareQueue):
                numbers[definitions.queue_number(command.vhost, command.name)] = (command.vhost, command.name)
        numbers |= self._unknown_queues().settle(numbers)
        self._save_definitions()
        self._recover_queues(numbers)
        self.directory.note_run()
        self.is_recovered = True
        return definitions.commands()

    def _unknown_queues(self) -> UnknownQueues:
        return UnknownQueues(
            self.directory.queues,
            self.file,
            self.log,
            remove=self.housekeeping.remove_directory,
            sync=self._sync,
        )

    def _save_definitions(self) -> None:
        try:
            self.file.save(self.files)
        except OSError as error:  # a full disk; they are written when it has room again
            self.log.warning("cannot write definitions", file=str(self.file.path), error=str(error))

    def _recover_queues(self, numbers: dict[int, tuple[str, str]]) -> None:
        present = {number: name for number, name in numbers.items() if self._directory_of(number).is_dir()}
        progress = Progress(len(present), self.log)

        def recover_one(number: int) -> None:
            vhost, queue = present[number]
            command = self.file.definitions.queue(vhost, queue)
            if isinstance(command, DeclareQueue) and queue_type(command.arguments) == STREAM:
                self.recovered_streams[vhost, queue] = recover_stream(
                    self._directory_of(number), self.problems, self._sync
                )
            else:
                logs = self._recover_logs(number)
                self.recovered.update({(vhost, queue, part): found for part, found in logs.items()})
            progress.step()

        with ThreadPoolExecutor(RECOVERY_THREADS, thread_name_prefix="warren-recovery") as threads:
            list(threads.map(recover_one, present))
        progress.end()

    def _sync(self, path: str) -> None:
        if self.settings.sync:
            self.files.sync(path)

    def _recover_logs(self, number: int) -> dict[str, Recovered]:
        """Of one queue, by part."""
        path, lost = self._directory_of(number), self.directory.marks_may_be_lost
        found = {"": recover(path, self.problems, marks_may_be_lost=lost)}
        for part in parts_in(path):
            found[part] = recover(path / part, self.problems, marks_may_be_lost=lost, is_of_part=True)
        return found

    def _directory_of(self, number: int) -> Path:
        return self.directory.queues / str(number)

    def tidy(self) -> None:
        """From time to time: give space back."""
        self.commit.tidy()
        self.housekeeping.try_again()

    def close(self) -> None:
        """All that is to be written is written, or cannot be. If not all was read, it did not end well: the
        next start has to know how the run before this one ended.
        """
        all_is_written = self.commit.is_idle and not self.is_failing and not self.commit.marked
        self.commit.stopped = True
        self.housekeeping.stop()
        self.files.close_all()
        self.file.close()
        self.directory.close(well=all_is_written and self.is_recovered)


class Progress:
    """Says how far it is, every now and then, when it takes long."""

    def __init__(self, total: int, log: Log) -> None:
        self.total = total
        self.log = log
        self.done = 0
        self.lock = threading.Lock()
        self.told = False
        self.timer = self._start()

    def _start(self) -> threading.Timer:
        timer = threading.Timer(PROGRESS_SECONDS, self._tell)
        timer.daemon = True
        timer.start()
        return timer

    def step(self) -> None:
        with self.lock:
            self.done += 1

    def _tell(self) -> None:
        with self.lock:
            self.told = True
            self.log.info("recovering queues", done=self.done, of=self.total)
            self.timer = self._start()

    def end(self) -> None:
        with self.lock:
            self.timer.cancel()
        if self.told:
            self.log.info("queues recovered", queues=self.total)
