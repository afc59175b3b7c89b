"""The data directory: whose it is, which version it has, and how the last run ended.

lock               held by the process that uses the directory; its number is in it
VERSION            the version of the layout
identity           chance bytes, made once: with a stream's number they tell it from all others
running            there while a broker runs; in it, the boot of the machine that it runs on
definitions.log    vhosts, users, permissions, exchanges, queues, bindings
queues/17/         the log of one durable queue, and queue.json, which says of which; in directories there,
                   such as priority-3, further logs of the queue: its parts
journal/           rounds of the group commit that are not synced where they belong; see journal.py
moves/             which messages were on their way from one queue to another; see move_notes.py
shards/12/129/     in a cluster: the log of a queue with copies on other nodes, by shard and number
shards.log         in a cluster: the store's id, and the epochs of its shards; see shards_file.py
diverged/          what the leader of a shard did not have; see diverged.py
transient/         what memory had no room for; emptied at start

All of it is for its owner alone, since it holds messages and password hashes. What an earlier version, or
somebody who copied files here, has left open is closed at start. To look at all of a large directory takes
time, so that is done once: from then on `lock` itself is private, which says so.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from warren.storage.files import FILE_MODE, OpenFiles, make_directory
from warren.storage.privacy import all_below, directly_below, is_open, make_private

VERSION = 1
IDENTITY = "identity"
IDENTITY_BYTES = 8
VERSION_SHOWN_MAX = 20
OURS = {
    "lock",
    "VERSION",
    IDENTITY,
    "running",
    "definitions",
    "queues",
    "transient",
    "journal",
    "moves",
    "shards",
    "diverged",
    "cluster",
    "etcd",
}  # and with a suffix
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DirectoryError(OSError):
    """The directory cannot be used; in one line for the operator."""


class DataDirectory:
    """A data directory, which one broker has for itself."""

    def __init__(
        self, path: Path, files: OpenFiles, warn: Callable[..., Any], *, sync: bool, boot_id: Path = BOOT_ID
    ) -> None:
        self.path = path
        self.files = files
        self.warn = warn
        self.sync = sync
        self.boot_id = boot_id  # a file that says something else each time the machine starts
        self.queues = path / "queues"
        self.transient = path / "transient"
        self.journal = path / "journal"
        self.moves = path / "moves"
        self.shards = path / "shards"
        self.definitions = path / "definitions.log"
        self.marks_may_be_lost = False  # the last run did not end well, and the machine was restarted
        self.identity = ""  # of this directory, made once; empty if it could not be written
        self.lock = -1  # the open file that is locked

    def open(self) -> None:
        """Lock the directory, and make what is missing in it. `note_run` notes that it is in use, later."""
        make_directory(str(self.path))
        self._lock()
        try:
            self._check_version()
            self._make_private()
            make_directory(str(self.queues))
            make_directory(str(self.transient))
            self._empty_transient()
            self._identify()
            self._see_how_it_ended()
        except BaseException:
            self._unlock()
            raise

    def close(self, *, well: bool) -> None:
        """The run ends: well, if all is written. Marks were not synced until now."""
        if self.lock < 0:
            return  # it was never opened
        try:
            if well and self.sync:
                self.files.sync_all(str(self.path))
            if well:
                self._running.unlink(missing_ok=True)
            if well and self.sync:
                self.files.sync(str(self.path))
        except OSError as error:
            self.warn("cannot note that the broker ended well", error=str(error))
        self._unlock()

    @property
    def _running(self) -> Path:
        return self.path / "running"

    def _lock(self) -> None:
        self.lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self.lock, 20, 0).decode("utf-8", "replace").strip() or "unknown"
            self._unlock()
            raise DirectoryError(f"{self.path} is in use by another broker, process {holder}") from None
        os.pwrite(self.lock, f"{os.getpid():<20}\n".encode(), 0)

    def _unlock(self) -> None:
        os.close(self.lock)
        self.lock = -1

    def _make_private(self) -> None:
        """The lock and the directory itself come last: should this be interrupted, it is all done again."""
        lock, top = str(self.path / "lock"), self.path.stat()
        is_ours = top.st_uid == os.geteuid()
        entries = [path for path in directly_below(self.path) if path != lock and _is_ours(path)]
        below: Iterable[str] = entries
        if is_open(os.fstat(self.lock).st_mode) or (is_ours and is_open(top.st_mode)):
            below = chain(entries, *(all_below(path) for path in self._directories()))
        changed = make_private(chain(below, [lock]), self.warn)
        if changed:
            self.warn("others could get at files of the broker; not any more", files=changed)
        make_private([str(self.path.resolve())], self.warn)

    def _directories(self) -> tuple[Path, ...]:
        return (self.queues, self.transient, self.journal, self.moves, self.shards, self.path / "diverged")

    def _check_version(self) -> None:
        file = self.path / "VERSION"
        found = file.read_bytes().strip(b"\0\n ") if file.exists() else b""
        if not found:  # new, or the power was cut before it was synced
            self._write(file, f"{VERSION}\n")
        elif found != b"%d" % VERSION:
            shown = repr(found[:VERSION_SHOWN_MAX])[2:-1]
            raise DirectoryError(f"{self.path} has version {shown} of the layout, expected {VERSION}")

    def _identify(self) -> None:
        """By what it says of itself; one that says nothing yet, as of an earlier version, is named now."""
        self.identity = read_identity(self.path)
        if self.identity:
            return
        identity = secrets.token_hex(IDENTITY_BYTES)
        try:
            self._write(self.path / IDENTITY, f"{identity}\n")
        except OSError as error:  # a full disk; the next start tries again
            self.warn("cannot write the directory's identity", error=str(error))
        else:
            self.identity = identity

    def _empty_transient(self) -> None:
        for left in self.transient.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink()

    def _write(self, file: Path, text: str) -> None:
        """A file that is there after a power cut."""
        self.files.replace(str(file), text.encode(), sync=self.sync)

    def _see_how_it_ended(self) -> None:
        if self._running.exists():
            self.marks_may_be_lost = self._running.read_bytes() != self._boot.encode()

    @property
    def _boot(self) -> str:
        return self.boot_id.read_text() if self.boot_id.exists() else ""

    def note_run(self) -> None:
        """From now on, the next start finds that this run has not ended well."""
        try:
            self._write(self._running, self._boot)
        except OSError as error:  # a full disk; a broker that can deliver is better than none
            self.warn("cannot note that the broker runs", file=str(self._running), error=str(error))


def read_identity(directory: Path) -> str:
    """Empty if there is none."""
    try:
        found = (directory / IDENTITY).read_text("ascii", "replace").strip()
    except FileNotFoundError:
        return ""
    return found if re.fullmatch(f"[0-9a-f]{{{2 * IDENTITY_BYTES}}}", found) else ""


def stream_identity(directory: str, number: int) -> str:
    """What tells a stream from all others, also from one of the same name that is made when it is deleted:
    numbers of queues are never used again in a directory. Empty if the directory has no identity.
    """
    return f"{directory}-{number}" if directory else ""


def _is_ours(path: str) -> bool:
    """Whether something in the data directory is the broker's, and not put there by somebody else."""
    return Path(path).name.partition(".")[0] in OURS
