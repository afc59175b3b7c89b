"""Which files of an archive count: the lists that Spark's file sink keeps.

    <to>/_spark_metadata/9.compact    all files up to batch 9
    <to>/_spark_metadata/10           those of batch 10
    <to>/_spark_metadata/.10.crc      a checksum of that list, which Spark looks at if it is there

A list has a line of JSON for each file. What counts is in the last list that has all earlier ones and in
those behind it. Every tenth batch Spark makes a new one of them; older lists stay for some minutes.
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
    """A file as a list names it. `place` is where it lies in the archive, by whatever way one gets there."""

    line: str
    path: str
    size: int

    @property
    def place(self) -> str:
        return "/".join(self.path.split("/")[-PLACE_PARTS:])


def local_path(place: str) -> Path | None:
    """Where it is on this machine, or None for a URL of another file system."""
    if place.startswith("file:"):
        return Path(unquote(urlsplit(place).path))
    return None if "://" in place else Path(place)


def lists_of(root: Path) -> list[Path]:
    found = (file for file in (root / LISTS).glob("*") if file.name.removesuffix(COMPACT).isdecimal())
    return sorted(found, key=number_of)


def number_of(file: Path) -> int:
    return int(file.name.removesuffix(COMPACT))


def is_whole(file: Path) -> bool:
    """Whether it has all that earlier ones had."""
    return file.suffix == COMPACT


def current_lists(root: Path) -> list[Path]:
    """Those that count, as Spark goes by them."""
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
    """The entry of a file in the same directory."""
    found = json.loads(entry.line)
    state = file.stat()
    found["path"] = f"{found['path'].rpartition('/')[0]}/{file.name}"
    found["size"], found["modificationTime"] = state.st_size, state.st_mtime_ns // 1_000_000
    path = f"{entry.path.rpartition('/')[0]}/{file.name}"
    return ListedFile(json.dumps(found, separators=(",", ":")), path, state.st_size)


def replace_list(file: Path, entries: Sequence[ListedFile]) -> None:
    """At once: who reads it gets the old list or the new one. The checksum goes first: Spark opens the list
    before the checksum, so it never holds a list against that of another.
    """
    version = file.read_text().splitlines()[0]
    text = "\n".join([version, *(entry.line for entry in entries)])
    write_safely(file, text, checksum=file.with_name(f".{file.name}.crc"))


def write_safely(file: Path, text: str, *, checksum: Path | None = None) -> None:
    """It is there whole or not at all, after a power cut as well."""
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
    """What a file is called while it is written; no reader takes it for one."""
    return f".{name}.new"


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
