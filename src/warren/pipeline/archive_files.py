"""Lists an archive's files, for programs that read the archive without Spark."""

from __future__ import annotations

from pathlib import Path

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs.lists import DELTA_LOG, FILES, LISTS, current_lists, places_in
from warren.pipeline.jobs.lock import LOCK

SNAPSHOTS = f"snapshot=*/{FILES}"


def archive_files(archive: str | Path) -> list[str]:
    """The Parquet files that together hold each message once.

    That holds while the archive job runs, and while it merges files. For example:

    duckdb.read_parquet(archive_files("archive"), hive_partitioning=True)
    """
    root = Path(archive).absolute()
    if (root / DELTA_LOG).is_dir():
        raise PipelineError(f"{archive} is a Delta table: read it as one")
    if (root / LISTS).is_dir():
        return sorted(str(root / place) for place in places_in(current_lists(root)))
    # With a lock but no list yet, an archive job is writing its first batch: its files do not count yet.
    kinds = [SNAPSHOTS] if (root / LOCK).exists() else [SNAPSHOTS, FILES]
    return sorted(str(file) for kind in kinds for file in root.glob(kind))
