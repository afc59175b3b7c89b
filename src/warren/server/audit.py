"""The audit log: who changed what, and from where; logins that failed; connections closed by force.

It is a file of JSON lines that only its owner can read. A thread writes it, so that a slow disk holds up
nobody. If the file is renamed or deleted, as tools that rotate logs do, a new one is begun. All of it is told
as events, so that it is in the stream `warren.events` as well.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import QueueListener, WatchedFileHandler
from pathlib import Path
from queue import Full, Queue
from typing import Protocol

from warren.broker import events
from warren.broker.events import AdministrativeAction, AuthenticationFailed, ConnectionClosed, Event, Events
from warren.server.config_error import ConfigError

WAITING_MAX = 10_000  # lines that the disk has not taken; beyond that they are lost, and counted
MODE = 0o600
BY_FORCE = "CONNECTION_FORCED"


def check_audit_log(path: str) -> None:
    """Refuse a file that cannot be made for want of its directory. Nothing is written yet."""
    if path and not Path(path).absolute().parent.is_dir():
        raise ConfigError(f"audit_log = {path}: {os.strerror(errno.ENOENT)}")


class Surroundings(Protocol):
    """The part of `LoopWorld` that is needed here."""

    def time_ms(self) -> int: ...
    def report(self, error: Exception) -> None: ...


class AuditLog:
    def __init__(self, world: Surroundings) -> None:
        self.world = world  # the time of day, and a place for errors
        self.waiting: Queue[logging.LogRecord] = Queue(WAITING_MAX)  # lines to be written
        self.listener: QueueListener | None = None  # the thread that writes; None: there is no audit log
        self.lost = 0  # lines that were dropped since the last that was written
        self.unsubscribe: list[Callable[[], None]] = []  # ends the subscriptions to events

    def start(self, path: str, source: Events) -> None:
        if not path:
            return
        try:
            self.listener = AuditWriter(self.waiting, AuditFile(path, self.world.report))
        except OSError as error:
            raise ConfigError(f"audit_log = {path}: {error.strerror}") from error
        self.listener.start()
        self.unsubscribe = [
            source.subscribe(AdministrativeAction, self._note),
            source.subscribe(AuthenticationFailed, self._note),
            source.subscribe(ConnectionClosed, self._note_if_forced),
        ]

    def stop(self) -> None:
        """Write all that waits, and end the thread."""
        for unsubscribe in self.unsubscribe:
            unsubscribe()
        if self.listener is not None:
            self.listener.stop()
            for handler in self.listener.handlers:
                handler.close()
            self.listener = None

    def _note_if_forced(self, event: ConnectionClosed) -> None:
        if event.reason.startswith(BY_FORCE):
            self._note(event)

    def _note(self, event: Event) -> None:
        if self.lost:
            self._write({"event": "lines lost", "count": self.lost})
        self._write({"event": NAMES[type(event)], **asdict(event)})

    def _write(self, fields: dict[str, object]) -> None:
        time = datetime.fromtimestamp(self.world.time_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, **fields}, ensure_ascii=False)
        try:
            self.waiting.put_nowait(logging.makeLogRecord({"msg": line}))
            self.lost = 0
        except Full:
            self.lost += 1


NAMES: dict[type[Event], str] = {
    events.AdministrativeAction: "administrative action",
    events.AuthenticationFailed: "authentication failed",
    events.ConnectionClosed: "connection closed by force",
}


class AuditFile(WatchedFileHandler):
    """Appends lines to a file, and makes it anew if it is gone. Used by one thread only."""

    def __init__(self, path: str, report: Callable[[Exception], None]) -> None:
        self.report = report
        super().__init__(path, encoding="utf-8", errors="replace")

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, MODE)
        return os.fdopen(descriptor, "a", encoding=self.encoding, errors=self.errors)

    def emit(self, record: logging.LogRecord) -> None:
        """The base class lets errors of opening the file anew pass, which would end the thread."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as the base class calls it
        """The line is lost; the broker's log says so. The next line is tried again."""
        reason = sys.exc_info()[1]
        self.report(OSError(f"cannot write to the audit log {self.baseFilename}: {reason}"))


class AuditWriter(QueueListener):
    """The thread that writes the lines."""

    def enqueue_sentinel(self) -> None:
        """Have the thread end when it has written all. The base class fails if no more lines fit in."""
        self.queue.put(self._sentinel)  # type: ignore[attr-defined]  # typeshed does not know it
