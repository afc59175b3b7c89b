"""Merges an archive's small files in place, while the archive is written to and read.

    <to>/_merges/<id>/        the new file, while it is written
    <to>/_merges/<id>.json    the note of a merge: which old files the new file replaces
    <to>/_merges/lock         held by the process that merges

Only Spark's lists (`lists.py`) say which files count, so that each message counts once at any moment:

1. Files that one list names, all of one queue and day, are written as one new file, in `_merges`.
2. The merge is noted, the new file is moved beside the old ones, and the list is replaced, by one rename,
   with a list that names the new file instead of the old ones. A reader that goes by the lists gets the old
   files or the new one.
3. The old files are removed when no list can name them again. An archive job that runs may be making its next
   whole list from the list that was replaced; so we wait for that next list, which has to name the new file.
   We also wait for at least a minute, for readers that have begun with the old files.

If that next list names the old files, Spark began it before the swap: then the new file is removed, and
another round merges the old ones again. After a kill, too, the lists say which files of a merge count. So old
and new files are never both lost, and both stay only until the next round, or until an archive job starts or
ends (`settle`).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeAlias

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs.lists import (
    LISTS,
    ListedFile,
    current_lists,
    entries_of,
    entry_beside,
    is_whole,
    number_of,
    places_in,
    replace_list,
    sync_directory,
    unfinished,
    write_safely,
)

MERGES, LOCK = "_merges", "lock"
KEEP_SECONDS = 60
SMALL_SHARE = 2
"""A file is small, and may be merged, if it has less than 1/SMALL_SHARE of the wanted size."""

WriteAsOne: TypeAlias = Callable[[Sequence[Path], Path], None]
"""Writes the rows of these files as one `part-….parquet`, in a directory that it creates."""


class AnotherMerges(PipelineError):
    """Another process has the lock."""


@dataclass(frozen=True)
class Merge:
    """A merge. Files are named by their paths within the archive, as `ListedFile.place`."""

    id: str
    old: tuple[str, ...]
    new: str
    list_number: int = -1  # of the list that was replaced


@dataclass(frozen=True)
class Round:
    """The result of a round: how many files became how many, and how many merges are not settled yet."""

    files_before: int = 0
    files_after: int = 0
    waiting: int = 0


def merge_round(
    root: Path,
    write_as_one: WriteAsOne,
    *,
    size_max: int,
    eager: bool = False,
    keep_seconds: float = KEEP_SECONDS,
    is_over: Callable[[], bool] = lambda: False,
) -> Round:
    """Merge small files to files of up to `size_max` bytes, where it is worth it; if `eager`, wherever it is
    possible. Once `is_over()`, the round ends after the file that it is writing.
    """
    with _locked(root):
        _remove_unfinished(root)
        waiting = _settle(root, alone=False, keep_seconds=keep_seconds)
        busy = places_in_merges(root)
        made: list[Merge] = []
        for group in _groups(root, busy, size_max, eager=eager):
            if is_over():
                break
            made.append(_write(root, group, write_as_one))
        swapped = _swap(root, made) if made else []
        _remove_unfinished(root)
        return Round(sum(len(merge.old) for merge in swapped), len(swapped), waiting + len(swapped))


def settle(root: Path, *, alone: bool) -> int:
    """Remove the old files of merges that no list can undo any more, and the new files of those that were
    undone. Returns how many merges have to wait. `alone`: it is certain that no archive job runs.
    """
    if not (root / MERGES).is_dir():
        return 0
    with _locked(root):
        return _settle(root, alone=alone, keep_seconds=KEEP_SECONDS)


def _settle(root: Path, *, alone: bool, keep_seconds: float) -> int:
    merges = _noted(root)
    if not merges:
        return 0
    lists = current_lists(root)
    counting = places_in(lists)
    waiting = 0
    for merge in merges:
        if merge.new in counting:
            if alone or (number_of(lists[0]) > merge.list_number and _age(root, merge) >= keep_seconds):
                _remove(root, merge, merge.old)
            else:
                waiting += 1
        elif counting.issuperset(merge.old):
            _remove(root, merge, [merge.new])
        else:
            raise PipelineError(
                f"no list in {root / LISTS} names {merge.new}, nor all files that it was made of: "
                f"restore {LISTS}; nothing was removed"
            )
    return waiting


def places_in_merges(root: Path) -> set[str]:
    return {place for merge in _noted(root) for place in (*merge.old, merge.new)}


# --- what to merge ---


def _groups(root: Path, busy: set[str], size_max: int, *, eager: bool) -> list[list[ListedFile]]:
    """Groups of files to merge, all from the last whole list, since one list can be replaced atomically."""
    lists = current_lists(root)
    if not lists or not is_whole(lists[0]):
        return []
    by_directory: dict[str, list[ListedFile]] = defaultdict(list)
    for entry in entries_of(lists[0]):
        if entry.size * SMALL_SHARE < size_max and entry.place not in busy:
            by_directory[entry.place.rpartition("/")[0]].append(entry)
    groups = [group for files in by_directory.values() for group in choose(files, size_max, eager=eager)]
    for group in groups:
        _check_is_here(root, group[0])
    return groups


def _check_is_here(root: Path, entry: ListedFile) -> None:
    if not Path(entry.path).exists() or not Path(entry.path).samefile(root / entry.place):
        raise PipelineError(
            f"{root / LISTS} names {entry.path}, which is not of this directory: an archive that was moved "
            "or copied cannot be merged in place"
        )


def choose(files: Sequence[ListedFile], size_max: int, *, eager: bool = False) -> list[list[ListedFile]]:
    """Groups of files of one directory, in their order, to be merged to one each. Unless `eager`, a file is
    merged only with others that are together at least as large: so a message is rewritten a few times, and
    not in every round.
    """
    found: list[list[ListedFile]] = []
    group: list[ListedFile] = []
    for entry in files:
        if sum(each.size for each in group) + entry.size > size_max:
            found.append(group)
            group = []
        group.append(entry)
    found.append(group)
    chosen = [each if eager else _without_largest(each) for each in found]
    return [each for each in chosen if len(each) > 1]


def _without_largest(group: list[ListedFile]) -> list[ListedFile]:
    left = sorted(group, key=lambda entry: entry.size)
    while left and left[-1].size > sum(entry.size for entry in left[:-1]):
        left.pop()
    kept = {entry.place for entry in left}
    return [entry for entry in group if entry.place in kept]


# --- the steps of a merge ---


def _write(root: Path, group: Sequence[ListedFile], write_as_one: WriteAsOne) -> Merge:
    first = Path(group[0].place)
    merge_id = uuid.uuid4().hex
    suffixes = "".join(first.suffixes[-2:])  # with the compression: .snappy.parquet
    new = first.with_name(f"part-{merge_id}{suffixes}")
    merge = Merge(merge_id, tuple(entry.place for entry in group), str(new))
    write_as_one([root / place for place in merge.old], _aside(root, merge))
    with _written(root, merge).open("rb") as file:
        os.fsync(file.fileno())
    return merge


def _swap(root: Path, made: Sequence[Merge]) -> list[Merge]:
    """Swap files in the present list. It may be newer than the list from which the files were chosen: merges
    whose files it does not name are dropped.
    """
    target = current_lists(root)[0]
    entries = {entry.place: entry for entry in entries_of(target)}
    swapped = [replace(m, list_number=number_of(target)) for m in made if entries.keys() >= set(m.old)]
    for merge in swapped:
        write_safely(_note(root, merge), json.dumps(asdict(merge)))
        _written(root, merge).rename(root / merge.new)
        sync_directory((root / merge.new).parent)
    replace_list(target, _replaced(root, entries, swapped))
    return swapped


def _replaced(root: Path, entries: Mapping[str, ListedFile], merges: Sequence[Merge]) -> list[ListedFile]:
    """The list's entries, with each new file in the place of the first of its old files."""
    new_by_first = {merge.old[0]: entry_beside(entries[merge.old[0]], root / merge.new) for merge in merges}
    gone = {place for merge in merges for place in merge.old}
    changed = (new_by_first.get(place, entry) for place, entry in entries.items())
    return [entry for entry in changed if entry.place not in gone]


def _remove(root: Path, merge: Merge, places: Sequence[str]) -> None:
    for place in places:
        file = root / place
        file.unlink(missing_ok=True)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    _note(root, merge).unlink()


# --- the files of a merge ---


def _aside(root: Path, merge: Merge) -> Path:
    return root / MERGES / merge.id


def _written(root: Path, merge: Merge) -> Path:
    (found,) = _aside(root, merge).glob("part-*.parquet")
    return found


def _note(root: Path, merge: Merge) -> Path:
    return root / MERGES / f"{merge.id}.json"


def _noted(root: Path) -> list[Merge]:
    found = []
    for file in sorted((root / MERGES).glob("*.json")):
        plain = json.loads(file.read_text())
        found.append(Merge(plain["id"], tuple(plain["old"]), plain["new"], plain["list_number"]))
    return found


def _age(root: Path, merge: Merge) -> float:
    return time.time() - _note(root, merge).stat().st_mtime


def _remove_unfinished(root: Path) -> None:
    for path in (root / MERGES).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    for directory in (MERGES, LISTS):
        for file in (root / directory).glob(unfinished("*")):
            file.unlink()


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    (root / MERGES).mkdir(exist_ok=True)
    handle = os.open(root / MERGES / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AnotherMerges(f"another process merges files in {root}: wait for its end") from None
        yield
    finally:
        os.close(handle)
