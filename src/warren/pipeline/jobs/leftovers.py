"""Files that a killed run left in an archive: written, but not listed in `_spark_metadata`, so that they do
not count. Spark passes them by; whoever reads the directory with something else would not. So they go
before the next run begins, if the archive is on a path of this machine.

A file is a leftover only if it is known that nothing lists it: by lists that are all there, or because no
batch was ever committed and it is younger than the first. Otherwise the lists may have been lost, and with
them the archive: then nothing is removed, and nothing written.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

from warren.pipeline.errors import PipelineError

LISTS = "_spark_metadata"
FILES = "vhost=*/queue=*/date=*/part-*.parquet"
COMPACT = ".compact"  # a list with all that earlier ones had


def local_path(place: str) -> Path | None:
    """Where it is on this machine, or None for a URL of another file system."""
    if place.startswith("file:"):
        return Path(unquote(urlparse(place).path))
    return None if "://" in place else Path(place)


def remove_leftovers(to: str, checkpoint: str) -> int:
    """How many files went."""
    root = local_path(to)
    if root is None:
        return 0
    lists, progress = _lists(root), local_path(checkpoint)
    if lists:
        _check_complete(lists, to, _numbers(progress, "commits"))
        listed = listed_names(root)
        leftovers = [file for file in root.glob(FILES) if file.name not in listed]
    else:
        leftovers = _of_first_batch(root, to, progress)
    for file in leftovers:
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return len(leftovers)


def listed_names(root: Path) -> set[str]:
    """Those of the files that count; no two files have the same name."""
    return {
        _name(lines, line)
        for lines in _lists(root)
        for line in lines.read_text().splitlines()[1:]
        if line.strip()
    }


def _lists(root: Path) -> list[Path]:
    found = (root / LISTS).glob("*")
    return sorted(file for file in found if file.name.removesuffix(COMPACT).isdecimal())


def _check_complete(lists: list[Path], to: str, committed: set[int]) -> None:
    """From the last that has all earlier ones, to the last batch that was committed, none may be missing."""
    numbers = {int(file.name.removesuffix(COMPACT)) for file in lists}
    compact = max((int(file.stem) for file in lists if file.suffix == COMPACT), default=0)
    missing = set(range(compact, max(numbers | committed) + 1)) - numbers
    if missing:
        raise PipelineError(
            f"--to {to}: {LISTS} lacks the list of batch {min(missing)}, so that nobody knows which files "
            f"count: restore {LISTS}, or choose a new directory"
        )


def _of_first_batch(root: Path, to: str, progress: Path | None) -> list[Path]:
    """There is no list: all files there are must be of a first batch that was cut off."""
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
    """Of which batches the checkpoint has `offsets` or `commits`; Spark keeps those of the last hundred."""
    if progress is None:
        return set()
    return {int(file.name) for file in (progress / kind).glob("*") if file.name.isdecimal()}


def _name(lines: Path, line: str) -> str:
    try:
        return unquote(str(json.loads(line)["path"])).rpartition("/")[2]
    except (ValueError, KeyError, TypeError):
        raise PipelineError(f"{lines} is not a list of files that Spark has written: {line[:80]!r}") from None
