"""Checking a data directory: every checksum, and that the files agree with each other.

    definitions.log    every line
    journal            every record
    shards             the logs of a cluster's queues, in the same way
    a queue            its name, foreign files; in each log, positions that go up from segment to segment
    a stream           the lines of its offsets
    a segment          see verify_segment.py

What a crash leaves is told apart from damage: the tail of a write that did not finish, marks that were not
synced, files that were being deleted. None of it was ever promised to anybody, and a broker can live with it.
"""

from __future__ import annotations

import json
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from warren.broker.commands import DeclareQueue
from warren.storage.command_text import command_from_json
from warren.storage.data_files import DataFiles, FileKind, FileProblem, QueueFiles, Tell
from warren.storage.directory import IDENTITY
from warren.storage.diverged import DIVERGED
from warren.storage.inspect_stream import read_offset_lines
from warren.storage.journal import bad_records_in
from warren.storage.log_directory import DELETED, MANIFEST, OFFSETS, UNKNOWN
from warren.storage.verify_segment import SegmentCheck

THREADS = 4
KNOWN_NAMES = frozenset(
    {
        "lock",
        "VERSION",
        IDENTITY,
        "running",
        "definitions.log",
        "definitions.new",
        "queues",
        "transient",
        "journal",
        "moves",
        "shards",
        "shards.log",
        "lost+found",
    }
)
INTERRUPTED = frozenset({"VERSION.new", f"{IDENTITY}.new", "running.new", "shards.log.new", "shards.new"})


@dataclass
class Checked:
    """How much was looked at."""

    queues: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0


def verify(files: DataFiles, tell: Tell) -> Checked:
    checked = Checked(bytes=len(files.definitions_data))
    _check_definitions(files, tell)
    _check_names(files, tell)
    _check_journal(files.path / "journal", tell)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="warren-verify") as threads:
        for log in files.logs():
            if not log.part:
                checked.queues += 1
                _check_queue(log, files, tell)
            _check_segments(log, threads, checked, tell)
        for log in files.copied_logs():
            if not log.part:
                checked.queues += 1
                _check_offsets(log, tell)
            _check_segments(log, threads, checked, tell)
    return checked


def _check_definitions(files: DataFiles, tell: Tell) -> None:
    path = str(files.definitions_path)
    if not files.definitions_data and any(not queue.defined for queue in files.queues()):
        tell(FileProblem(FileKind.DAMAGE, path, "missing or empty, but there are queues"))
    for problem in files.definition_problems:
        kind = FileKind.HARMLESS if problem.torn_tail else FileKind.DAMAGE
        tell(FileProblem(kind, path, f"line {problem.line}: {problem.reason}", problem.offset))


def _check_names(files: DataFiles, tell: Tell) -> None:
    for path in sorted(files.path.iterdir()):
        if path.name in {"definitions.damaged", "definitions.torn"}:
            tell(FileProblem(FileKind.HARMLESS, str(path), "set aside by an earlier start"))
        elif path.name == DIVERGED:
            tell(FileProblem(FileKind.HARMLESS, str(path), "records that were never confirmed, set aside"))
        elif path.name in INTERRUPTED:
            tell(FileProblem(FileKind.HARMLESS, str(path), "left by a start that was interrupted"))
        elif path.name not in KNOWN_NAMES:
            tell(FileProblem(FileKind.DAMAGE, str(path), "foreign file"))
    for path in sorted(files.queues_path.iterdir()) if files.queues_path.exists() else ():
        if not path.name.isdecimal() or not path.is_dir():
            _check_other_directory(path, tell)


def _check_journal(directory: Path, tell: Tell) -> None:
    for path in sorted(directory.iterdir()) if directory.exists() else ():
        for at in bad_records_in(path.read_bytes()):
            tell(FileProblem(FileKind.DAMAGE, str(path), "bad record", at))


def _check_other_directory(path: Path, tell: Tell) -> None:
    number, _, suffix = path.name.partition(".")
    if number.isdecimal() and "." + suffix == DELETED:
        tell(FileProblem(FileKind.HARMLESS, str(path), "left by a queue that was deleted"))
    elif number.isdecimal() and path.name.startswith(number + UNKNOWN):
        tell(FileProblem(FileKind.HARMLESS, str(path), "of an unknown queue: set aside by an earlier start"))
    else:
        tell(FileProblem(FileKind.DAMAGE, str(path), "foreign file"))


def _check_queue(queue: QueueFiles, files: DataFiles, tell: Tell) -> None:
    if not queue.defined:
        _check_undefined(queue, files, tell)
    elif queue.path.exists():
        _check_manifest(queue, tell)
    if queue.is_stream:
        _check_offsets(queue, tell)


def _check_offsets(stream: QueueFiles, tell: Tell) -> None:
    """Those of a stream that have a name."""
    lines = read_offset_lines(stream, tell)
    for line in lines:
        if not line.intact:
            is_torn = line is lines[-1]
            what = (
                "torn tail; somebody goes on at an older offset" if is_torn else f"line {line.number} is bad"
            )
            kind = FileKind.HARMLESS if is_torn else FileKind.DAMAGE
            tell(FileProblem(kind, str(stream.path / OFFSETS), what, line.offset))


def _check_segments(log: QueueFiles, threads: Executor, checked: Checked, tell: Tell) -> None:
    """Some at once, so that neither the disk nor the processor waits for the other; told in order."""
    last = 0
    for check in threads.map(lambda files: SegmentCheck(files).run(), log.segments(tell)):
        if check.exists and check.files.base <= last:
            text = f"begins before position {last} of the one before"
            tell(FileProblem(FileKind.DAMAGE, check.files.name("seg"), text))
        for problem in check.problems:
            tell(problem)
        last = max(last, check.last or 0)
        checked.segments += check.exists
        checked.records += check.records
        checked.bytes += check.bytes if check.exists else 0


def _check_undefined(queue: QueueFiles, files: DataFiles, tell: Tell) -> None:
    name = "unknown" if queue.queue is None else f"'{queue.queue}' in vhost '{queue.vhost}'"
    if files.definition_problems or not files.definitions_data:
        tell(FileProblem(FileKind.DAMAGE, str(queue.path), f"the definition of its queue is lost: {name}"))
    elif queue.number >= files.definitions.next_queue_number:
        tell(
            FileProblem(
                FileKind.HARMLESS, str(queue.path), f"the next start declares its queue again: {name}"
            )
        )
    else:
        tell(FileProblem(FileKind.HARMLESS, str(queue.path), f"left by a queue that was deleted: {name}"))


def _check_manifest(queue: QueueFiles, tell: Tell) -> None:
    file = queue.path / MANIFEST
    try:
        command = command_from_json(json.loads(file.read_text()))
    except OSError as error:
        if queue.path.exists():
            tell(FileProblem(FileKind.HARMLESS, str(file), error.strerror or str(error)))
        return
    except ValueError as error:
        tell(FileProblem(FileKind.HARMLESS, str(file), f"does not say which queue it is of: {error}"))
        return
    if not isinstance(command, DeclareQueue) or (command.vhost, command.name) != (queue.vhost, queue.queue):
        tell(FileProblem(FileKind.DAMAGE, str(file), f"is of another queue than '{queue.queue}'"))
