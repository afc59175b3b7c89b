"""An archive as a Delta table, written by delta-rs from PyPI (the extra `delta`), which needs no jars.

    <to>/_delta_log/    which files count, version by version
    <to>/vhost=%2F/queue=orders/date=2026-03-01/part-….parquet

A version names its batch as a transaction of the application `warren archive`, in the same commit as its
files. So if a killed run has written a batch and Spark runs it again, it is skipped. A reader sees one
version, whatever is written or merged meanwhile. A batch goes through the driver's memory, so its bytes are
bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs.lists import DELTA_LOG, local_path
from warren.pipeline.jobs.merges import Round

if TYPE_CHECKING:
    from deltalake import DeltaTable

APPLICATION = "warren archive"
HOW_TO_GET_IT = "Delta tables need delta-rs: pip install 'warrenmq[delta]'"
COMPRESSIONS: dict[str, Literal["SNAPPY", "ZSTD", "UNCOMPRESSED"]] = {
    "snappy": "SNAPPY",
    "zstd": "ZSTD",
    "none": "UNCOMPRESSED",
}


def is_delta(place: str) -> bool:
    root = local_path(place)
    return root is not None and (root / DELTA_LOG).is_dir()


def can_write() -> bool:
    return find_spec("deltalake") is not None


def files_of_table(root: Path) -> list[str]:
    """The files of the latest version."""
    return sorted(_open(root).file_uris())


def write_batch(
    batch: DataFrame, number: int, *, to: str, by: Sequence[str], file_bytes: int, compression: str
) -> None:
    """Write a batch as one version, unless there is a version with this batch already."""
    from deltalake import CommitProperties, Transaction, WriterProperties, write_deltalake  # noqa: PLC0415 - an extra

    written = _open(Path(to)).transaction_version(APPLICATION) if is_delta(to) else None
    if written is not None and number <= written:
        return
    messages = batch.toArrow()
    if messages.num_rows:
        write_deltalake(
            to,
            messages,
            mode="append",
            partition_by=list(by),
            target_file_size=file_bytes,
            writer_properties=WriterProperties(compression=COMPRESSIONS[compression]),
            commit_properties=CommitProperties(app_transactions=[Transaction(APPLICATION, number)]),
        )


def merge_table(root: Path, file_bytes: int) -> Round:
    """Merge the small files of each queue and day, as a version of its own."""
    if not is_delta(str(root)):
        return Round()
    done = _open(root).optimize.compact(target_size=file_bytes)
    return Round(int(done["numFilesRemoved"]), int(done["numFilesAdded"]))


def vacuum(root: Path) -> int:
    """Remove files that no version of the last week names, Delta's usual rule; returns how many."""
    return len(_open(root).vacuum(dry_run=False))


def _open(root: Path) -> DeltaTable:
    if not can_write():
        raise PipelineError(HOW_TO_GET_IT)
    from deltalake import DeltaTable  # noqa: PLC0415 - an extra

    return DeltaTable(root)
