"""Where the logs of a queue lie: one in the queue's own directory, others, its parts, in directories there.

queues/17/                what is in no part, and queue.json, which says of which queue all this is
queues/17/priority-3/     messages of priority 3
queues/17/seen/           what is to be remembered of other messages
queues/17/offsets         of a stream, those that have a name
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from warren.storage.files import OpenFiles, names_in

if TYPE_CHECKING:
    from warren.storage.queue_log import QueueLog

MANIFEST = "queue.json"
OFFSETS = "offsets"
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


class LogDirectory:
    """`made`: it is there; `named`: a sync covers its name. That of a part lies in its queue's, its `parent`,
    which knows the logs of its `parts`.
    """

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
        self.parent = parent
        self.describe = describe
        self.parts: list[QueueLog] = []
        self.made = self.named = self.deleted = False

    def make(self) -> None:
        """See to it that it is there. It says itself which queue it is of, if that is not deleted by now."""
        if self.made:
            return
        if self.parent is not None:
            self.parent.make()
        self.files.make_directory(self.path)
        if self.describe is not None and not self.deleted:
            self.files.write_whole(f"{self.path}/{MANIFEST}", self.describe())
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
