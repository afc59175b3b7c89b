"""Merges an archive's small files by Spark: once, or again and again while the archive job runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from warren.pipeline.errors import PipelineError
from warren.pipeline.failures import in_one_line
from warren.pipeline.jobs.lists import local_path
from warren.pipeline.jobs.merges import AnotherMerges, Round, WriteAsOne, merge_round, settle
from warren.pipeline.jobs.tables import times_in_micros

MergeRound: TypeAlias = Callable[[Callable[[], bool]], Round]
"""Runs one round of merges; it ends early once the function that it is given returns true."""

COMPRESSION = re.compile(r"\.(snappy|zstd)\.parquet$")


def by_spark(spark: SparkSession) -> WriteAsOne:
    """A function that merges files by Spark, sorted by offset, and compressed as the first file is."""

    def write(files: Sequence[Path], to: Path) -> None:
        frame = spark.read.option("mergeSchema", "true").parquet(*map(str, files))
        found = COMPRESSION.search(files[0].name)
        writer = frame.coalesce(1).sortWithinPartitions("offset").write
        with times_in_micros(spark):
            writer.option("compression", found[1] if found else "none").parquet(str(to))
        rows, written = (sum(map(_rows, each)) for each in (files, to.glob("part-*.parquet")))
        if written != rows:
            raise PipelineError(f"{len(files)} files with {rows} messages became one with {written}")

    return write


def _rows(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)


@dataclass
class Rolling:
    """Merges an archive's files at intervals, in a thread.

    If a round fails, that is told, and the archive job goes on, since the archive is complete without merges:
    the next round tries again.
    """

    merge: MergeRound | None  # None: never merge
    every_seconds: float
    tell: Callable[[str], None]  # shows a line to the user
    files_before: int = 0  # how many files were merged so far,
    files_after: int = 0  # and into how many

    @contextmanager
    def running(self) -> Iterator[None]:
        if self.merge is None:
            yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._run, args=(over,), name="rolling")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _run(self, over: threading.Event) -> None:
        while not over.wait(self.every_seconds):
            self.round(over.is_set)

    def round(self, is_over: Callable[[], bool] = lambda: False) -> None:
        if self.merge is None:
            return
        try:
            done = self.merge(is_over)
        except AnotherMerges:
            return  # another process is merging already
        except Exception as error:  # noqa: BLE001 - Spark raises anything, and the archive goes on
            self.tell(f"small files were not merged: {in_one_line(error)}")
            return
        self.files_before += done.files_before
        self.files_after += done.files_after


def roll(spark: SparkSession, root: Path, size_max: int) -> MergeRound:
    """A function that runs one round of merges over this archive."""
    write = by_spark(spark)
    return lambda is_over: merge_round(root, write, size_max=size_max, is_over=is_over)


def settle_alone(to: str) -> None:
    """Settle merges while no archive job runs. If another process merges just now, that one settles them."""
    root = local_path(to)
    if root is not None:
        with suppress(AnotherMerges):
            settle(root, alone=True)
