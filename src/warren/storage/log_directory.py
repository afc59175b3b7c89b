"""Where the logs of a queue are: one in the queue's own directory, and others, its parts, in directories
there.

queues/17/                the log of a queue, and queue.json, which says which queue that is
queues/17/priority-3/     a part: messages of priority 3
queues/17/seen/           a part: what deduplication remembers of messages
queues/17/offsets         the named offsets of a stream
queues/16.deleted/        the queue was deleted: this goes, now or at the next start
queues/15.unknown/        nobody knows which queue this was: set aside for the operator
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from warren.storage.files import NEW, OpenFiles, names_in

MANIFEST = "queue.json"
OFFSETS = "offsets"
DELETED = ".deleted"
UNKNOWN = ".unknown"
OF_QUEUES = frozenset({MANIFEST, OFFSETS, OFFSETS + NEW})
PART = re.compile(r"seen|priority-(?:[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])", re.ASCII)


def is_part(name: str) -> bool:
    return PART.fullmatch(name) is not None


def parts_in(directory: str, names: Iterable[str] | None = None) -> list[str]:
    """The parts in a queue's directory, in order. `names` are all names in it, if they are known already."""
    if names is None:
        names = names_in(directory)
    return sorted(
        (name for name in names if is_part(name) and Path(directory, name).is_dir()), key=_by_number
    )


def _by_number(name: str) -> tuple[str, int]:
    kind, _, number = name.partition("-")
    return kind, int(number or 0)


def belongs_to_queue(directory: str, name: str) -> bool:
    """Whether something in a queue's directory that is no file of a segment has a reason to be there."""
    return name in OF_QUEUES or (is_part(name) and not Path(directory, name).is_file())


class Part(Protocol):
    """The log of a part, as far as its queue's directory is concerned."""

    def delete(self) -> None: ...


class Tap(Protocol):
    """Is told what changes in a log of which other nodes have copies."""

    def marked(self, segment: Any, marks: bytes) -> None: ...


class LogDirectory:
    """Where the files of one log are. The directory of a part lies in that of its queue."""

    def __init__(
        self,
        path: str,
        files: OpenFiles,
        *,
        parent: LogDirectory | None = None,
        describe: Callable[[], str] | None = None,
    ) -> None:
        self.path = path
        self.files = files
        self.parent = parent  # of a part: the directory of its queue
        self.describe = describe  # says which queue it is of, for MANIFEST
        self.parts: list[Part] = []  # the logs in directories of this one
        self.made = False  # it is there
        self.named = False  # a sync covers its name
        self.deleted = False  # its queue is gone, and so will it be
        self.tap: Tap | None = None  # of a log that other nodes copy: is told what changes

    def make(self) -> None:
        """Make the directory if it is not there, with the file that says which queue it is of."""
        if self.made:
            return
        if self.parent is not None:
            self.parent.make()
        self.files.make_directory(self.path)
        if self.describe is not None and not self.deleted:
            self.files.write_whole(f"{self.path}/{MANIFEST}", self.describe().encode())
        self.made = True

    def unsynced(self) -> set[str]:
        """The directories to be synced for a new file in this one to be found after a power cut."""
        if self.named:
            return {self.path}
        if self.parent is not None:
            return {self.path, *self.parent.unsynced()}
        return {self.path, os.path.dirname(self.path)}  # noqa: PTH120 - paths are text here

    def are_synced(self) -> None:
        self.named = True
        if self.parent is not None:
            self.parent.named = True
