"""What is wrong with a log's files: told to the operator once, and the bytes that were no record kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from warren.storage.files import write_file
from warren.storage.segment import Segment


class Logger(Protocol):
    """The broker's log, as far as the storage writes to it."""

    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


class Problems:
    """Recovery finds most problems, and some are met again when the queue reads on: those are told once."""

    def __init__(self, warn: Callable[..., Any]) -> None:
        self.warn = warn
        self.told: set[tuple[str, int]] = set()  # paths and offsets of bytes that were set aside
        self.damaged: set[str] = set()  # paths of segments of which recovery could not read all
        self.on_damage: Callable[[str], None] | None = None  # is told paths of segments, in any thread

    def bad_record(self, segment: Segment, offset: int, data: bytes) -> None:
        self.tell_damage(segment.path)
        self.set_aside(segment.path, offset, data, "bad record")

    def unreadable(self, segment: Segment, error: OSError) -> None:
        self.tell_damage(segment.path)
        self.warn("cannot read segment", file=segment.path + ".seg", error=str(error))

    def not_recovered(self, path: str) -> None:
        """Recovery could not read all of a segment."""
        self.damaged.add(path)
        self.tell_damage(path)

    def tell_damage(self, path: str) -> None:
        """A segment lacks something that was once written. Another store may have it."""
        if self.on_damage is not None:
            self.on_damage(path)

    def set_aside(self, path: str, offset: int, data: bytes, what: str) -> bool:
        """Keep bytes of a segment that are no record. False if they could not be kept: then they must stay
        where they are.
        """
        if (path, offset) in self.told:
            return True
        self.told.add((path, offset))
        kept = Path(path + ".torn")
        self.warn(what, file=path + ".seg", offset=offset, bytes=len(data), kept_in=str(kept))
        return self.keep(kept, data)

    def keep(self, file: Path, data: bytes) -> bool:
        try:
            keep(file, data)
        except OSError as error:  # a full disk, which is also what tears files
            self.warn("cannot set aside", file=str(file), error=str(error))
            return False
        return True


def keep(file: Path, data: bytes) -> None:
    """Add bytes to what was set aside, unless they are only zeros or there since an earlier start."""
    if any(data) and not (file.exists() and data in file.read_bytes()):
        write_file(str(file), data, append=True)
