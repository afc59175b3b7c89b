"""The lists of files that Spark's file sink keeps: they say which files of an archive count.

    <to>/_spark_metadata/9.compact    a whole list: all files up to batch 9
    <to>/_spark_metadata/10           the files of batch 10
    <to>/_spark_metadata/.10.crc      a checksum of that list, which Spark checks if it is there

A list has a line of JSON for each file. The files in the last whole list and in the lists after it count.
Every tenth batch Spark makes a new whole list; older lists stay for some minutes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from warren.pipeline.errors import PipelineError

LISTS = "_spark_metadata"
DELTA_LOG = "_delta_log"
COMPACT = ".compact"
FILES = "vhost=*/queue=*/date=*/part-*.parquet"
PLACE_PARTS = len(FILES.split("/"))


@dataclass(frozen=True)
class ListedFile:
    """A file as a list names it."""

    line: str  # as it is in the list
    path: str
    size: int

    @property
    def place(self) -> str:
        """The path within the archive: vhost=…/queue=…/date=…/part-….parquet."""
        return "/".join(self.path.split("/")[-PLACE_PARTS:])


def local_path(place: str) -> Path | None:
    """The path on this machine, or None for a URL of another file system."""
    if place.startswith("file:"):
        return Path(unquote(urlsplit(place).path))
    return None if "://" in place else Path(place)


def lists_of(root: Path) -> list[Path]:
    found = (file for file in (root / LISTS).glob("*") if file.name.removesuffix(COMPACT).isdecimal())
    return sorted(found, key=number_of)


def number_of(file: Path) -> int:
    return int(file.name.removesuffix(COMPACT))


def is_whole(file: Path) -> bool:
    """Whether the list has all files of earlier batches, too."""
    return file.suffix == COMPACT


def current_lists(root: Path) -> list[Path]:
    """The lists that count, by Spark's own rule: the last whole list and those after it."""
    found = lists_of(root)
    return found[max((number for number, file in enumerate(found) if is_whole(file)), default=0) :]


def entries_of(file: Path) -> list[ListedFile]:
    return [_entry(file, line) for line in file.read_text().splitlines()[1:] if line.strip()]


def places_in(files: Iterable[Path]) -> set[str]:
    return {entry.place for file in files for entry in entries_of(file)}


def _entry(file: Path, line: str) -> ListedFile:
    try:
        found = json.loads(line)
        path, size = unquote(urlsplit(str(found["path"])).path), int(found["size"])
    except (ValueError, KeyError, TypeError):
        raise PipelineError(f"{file} is not a list of files that Spark has written: {line[:80]!r}") from None
    return ListedFile(line, path, size)


def entry_beside(entry: ListedFile, file: Path) -> ListedFile:
    """An entry for `file`, which is in the same directory as the file of `entry`."""
    found = json.loads(entry.line)
    state = file.stat()
    found["path"] = f"{found['path'].rpartition('/')[0]}/{file.name}"
    found["size"], found["modificationTime"] = state.st_size, state.st_mtime_ns // 1_000_000
    path = f"{entry.path.rpartition('/')[0]}/{file.name}"
    return ListedFile(json.dumps(found, separators=(",", ":")), path, state.st_size)


def replace_list(file: Path, entries: Sequence[ListedFile]) -> None:
    """Replace a list atomically: a reader gets the old list or the new one. The checksum is removed first:
    Spark opens the list before the checksum, so it never compares the new list with the old checksum.
    """
    version = file.read_text().splitlines()[0]
    text = "\n".join([version, *(entry.line for entry in entries)])
    write_safely(file, text, checksum=file.with_name(f".{file.name}.crc"))


def write_safely(file: Path, text: str, *, checksum: Path | None = None) -> None:
    """Write a file so that it is there whole or not at all, even after a power cut."""
    new = file.with_name(unfinished(file.name))
    with new.open("w", encoding="utf-8") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    if checksum is not None:
        checksum.unlink(missing_ok=True)
    new.replace(file)
    sync_directory(file.parent)


def unfinished(name: str) -> str:
    """A file's name while it is written; readers ignore such names."""
    return f".{name}.new"


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
