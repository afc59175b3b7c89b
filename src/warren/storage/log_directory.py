"""Where the logs of a queue lie: one in the queue's own directory, others, its parts, in directories there.

queues/17/                what is in no part, and queue.json, which says of which queue all this is
queues/17/priority-3/     messages of priority 3
queues/17/seen/           what is to be remembered of other messages
queues/17/offsets         of a stream, those that have a name
queues/16.deleted/        of a queue that is deleted: it goes, now or at the next start
queues/15.unknown/        of a queue of which nothing is known: set aside, for whoever can make use of it
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

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
    """In a queue's directory, of which these are all names that are in it."""
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

    def make(self) -> None:
        """See to it that it is there. It says itself which queue it is of, if that is not deleted by now."""
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
