"""Removes leftovers: files that a killed run has written, but not listed in `_spark_metadata`. They do not
count. Spark ignores them, but other programs that read the directory would not. So they are removed before
the next run begins, if the archive is on a path of this machine.

A file is a leftover only if it is certain that no list names it: because all lists are there, or because no
batch was ever committed and the file is younger than the first batch. Otherwise lists may have been lost, and
to remove files would lose the archive: then nothing is removed, and the run is refused. Files of a merge
(`merges.py`) are no leftovers.
"""

from __future__ import annotations

from pathlib import Path

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs.lists import FILES, LISTS, is_whole, lists_of, local_path, number_of, places_in
from warren.pipeline.jobs.merges import places_in_merges


def remove_leftovers(to: str, checkpoint: str) -> int:
    """Returns how many files were removed."""
    root = local_path(to)
    if root is None:
        return 0
    lists, progress = lists_of(root), local_path(checkpoint)
    if lists:
        _check_complete(lists, to, _numbers(progress, "commits"))
        leftovers = _unlisted(root)
    else:
        leftovers = _of_first_batch(root, to, progress)
    for file in leftovers:
        file.unlink(missing_ok=True)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return len(leftovers)


def _unlisted(root: Path) -> list[Path]:
    """The files that no list and no merge names. The order of the three steps matters, since another process
    may merge files meanwhile: it notes a merge before it puts the new file into place, and removes the note
    only after a list names the file.
    """
    files = list(root.glob(FILES))
    kept = places_in_merges(root)
    kept |= places_in(lists_of(root))
    names = {place.rpartition("/")[2] for place in kept}  # no two files have the same name
    return [file for file in files if file.name not in names]


def _check_complete(lists: list[Path], to: str, committed: set[int]) -> None:
    """Raise if a list is missing between the last whole list and the last committed batch."""
    numbers = {number_of(file) for file in lists}
    whole = max((number_of(file) for file in lists if is_whole(file)), default=0)
    missing = set(range(whole, max(numbers | committed) + 1)) - numbers
    if missing:
        raise PipelineError(
            f"--to {to}: {LISTS} lacks the list of batch {min(missing)}, so that nobody knows which files "
            f"count: restore {LISTS}, or choose a new directory"
        )


def _of_first_batch(root: Path, to: str, progress: Path | None) -> list[Path]:
    """There is no list, so all files must be of a first batch that was cut off; otherwise raise."""
    began = None if progress is None else progress / "offsets" / "0"
    files = list(root.glob(FILES))
    if began is not None and began.is_file() and _numbers(progress, "offsets") == {0}:
        began_at = began.stat().st_mtime_ns
        others = [file for file in files if file.stat().st_mtime_ns < began_at]
    else:
        others = files
    if others or _numbers(progress, "commits"):
        example = f", such as {others[0]}" if others else ""
        raise PipelineError(
            f"--to {to} has files that no list in {LISTS} names{example}: restore {LISTS} if it is lost, "
            "or choose a new directory"
        )
    return files


def _numbers(progress: Path | None, kind: str) -> set[int]:
    """The batches of which the checkpoint has `offsets` or `commits`; Spark keeps the last hundred."""
    if progress is None:
        return set()
    return {int(file.name) for file in (progress / kind).glob("*") if file.name.isdecimal()}
