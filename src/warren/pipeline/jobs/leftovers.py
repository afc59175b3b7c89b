"""Files that a killed run left in an archive: written, but not listed in `_spark_metadata`, so that they do
not count. Spark passes them by; whoever reads the directory with something else would not. So they go
before the next run begins, if the archive is on a path of this machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

from warren.pipeline.errors import PipelineError

LISTS, CHECKPOINT = "_spark_metadata", "_checkpoint"
FILES = "vhost=*/queue=*/date=*/part-*.parquet"
COMPACT = ".compact"  # a list with all that earlier ones had


def remove_leftovers(to: str) -> int:
    """How many files went. What is no archive of ours is left alone."""
    root = Path(unquote(urlparse(to).path) if to.startswith("file:") else to)
    if not (root / LISTS).is_dir() and not (root / CHECKPOINT).is_dir():
        return 0
    listed = listed_names(root)
    leftovers = [file for file in root.glob(FILES) if file.name not in listed]
    for file in leftovers:
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return len(leftovers)


def listed_names(root: Path) -> set[str]:
    """Those of the files that count; no two files have the same name."""
    names: set[str] = set()
    for lines in sorted((root / LISTS).glob("*")):
        if lines.name.removesuffix(COMPACT).isdecimal():
            names |= {_name(lines, line) for line in lines.read_text().splitlines()[1:] if line.strip()}
    return names


def _name(lines: Path, line: str) -> str:
    try:
        return unquote(str(json.loads(line)["path"])).rpartition("/")[2]
    except (ValueError, KeyError, TypeError):
        raise PipelineError(f"{lines} is not a list of files that Spark has written: {line[:80]!r}") from None
