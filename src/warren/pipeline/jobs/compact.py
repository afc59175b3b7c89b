"""compact: turns an archive's many small files into few, in place or as another table, or keeps only the
latest message of each key.

In place (`merges.py`), the archive may be written to and read meanwhile. With --to, the archive stays as it
is, and another table is written, in which each file covers a range of offsets, in order:

    <to>/vhost=%2F/queue=orders/date=2026-03-01/part-….parquet       all messages
    <to>/vhost=%2F/queue=orders/part-….parquet                       with --latest-per

Partitions are replaced as a whole, so it is safe to run it again, after a crash or when more has been
archived. With --latest-per there are no days: a key's latest message moves on to a new day, and an old day
that has no message any more would never be replaced.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from warren.pipeline.errors import PipelineError, UsageError
from warren.pipeline.jobs import inputs
from warren.pipeline.jobs.delta import is_delta, merge_table, vacuum
from warren.pipeline.jobs.extent import extents, tell_extents
from warren.pipeline.jobs.lists import LISTS, current_lists, local_path
from warren.pipeline.jobs.lock import if_nobody_archives
from warren.pipeline.jobs.merges import merge_round, settle
from warren.pipeline.jobs.numbers import byte_count, positive
from warren.pipeline.jobs.rolling import by_spark
from warren.pipeline.jobs.rows import collect, top, whole
from warren.pipeline.jobs.tables import ARCHIVE_PARTITIONS, overwrite_partitions, read_archive
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import Bars, JobResult, Value
from warren.pipeline.report.words import byte_size

ABOUT = "make an archive's small files into few, in place or elsewhere, or keep the latest of each key"
ROWS_A_FILE = 1_000_000
FILE_SIZE = "128 MB"
KEYS = ("message_id", "correlation_id", "routing_key", "type", "app_id", "user_id")
HEADER = "header:"
DAY_MS = 86_400_000
LATEST_PARTITIONS = ("vhost", "queue")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to read")
    group.add_argument("--archive", required=True, metavar="DIR", help="what `archive` wrote")
    inputs.add_slice_arguments(group)
    how = parser.add_argument_group("how to compact")
    where = how.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to", metavar="DIR", help="the compacted table; days that it has already are replaced"
    )
    where.add_argument(
        "--in-place",
        action="store_true",
        help="merge the archive's own small files, also while it is written to and read",
    )
    add = how.add_argument
    add(
        "--file-size",
        type=byte_count,
        default=FILE_SIZE,
        metavar="SIZE",
        help="with --in-place: merge files to files of up to this size (default: %(default)s)",
    )
    add(
        "--latest-per",
        type=_key,
        metavar="KEY",
        help=f"{', '.join(KEYS)}, or {HEADER}NAME (default: keep all)",
    )
    add(
        "--rows-a-file",
        type=positive,
        default=ROWS_A_FILE,
        metavar="N",
        help="at most (default: %(default)s)",
    )


def _key(text: str) -> str:
    if text not in KEYS and not (text.startswith(HEADER) and len(text) > len(HEADER)):
        raise argparse.ArgumentTypeError(f"one of {', '.join(KEYS)}, or {HEADER}NAME, not {text!r}")
    return text


def key_column(key: str) -> Column:
    return sf.col("headers")[key.removeprefix(HEADER)] if key.startswith(HEADER) else sf.col(key)


def latest_per(messages: DataFrame, key: str) -> DataFrame:
    """The last message of each key, queue by queue. Messages without the key are all kept."""
    alone = sf.when(sf.col("_key").isNull(), sf.col("offset"))
    of_key = Window.partitionBy("vhost", "queue", "_key", alone).orderBy(sf.col("offset").desc())
    ranked = messages.withColumn("_key", key_column(key)).withColumn("_rank", sf.row_number().over(of_key))
    return ranked.filter(sf.col("_rank") == 1).drop("_key", "_rank")


def in_order(messages: DataFrame, rows_a_file: int = ROWS_A_FILE) -> DataFrame:
    """Arrange messages so that each file gets one range of offsets of one queue and day, sorted."""
    by = [sf.col(name) for name in ARCHIVE_PARTITIONS]
    placed = messages.withColumn("_range", sf.floor(sf.col("offset") / sf.lit(rows_a_file)))
    return placed.repartition(*by, "_range").sortWithinPartitions(*by, "offset").drop("_range")


def compact(
    messages: DataFrame, to: str, *, latest: str | None = None, rows_a_file: int = ROWS_A_FILE
) -> None:
    kept = latest_per(messages, latest) if latest else messages
    if latest:
        kept = kept.drop("date")
        placed = kept.repartition("vhost", "queue").sortWithinPartitions("vhost", "queue", "offset")
        overwrite_partitions(placed, to, LATEST_PARTITIONS, rows_a_file=rows_a_file)
    else:
        overwrite_partitions(in_order(kept, rows_a_file), to, ARCHIVE_PARTITIONS, rows_a_file=rows_a_file)


def files_of(messages: DataFrame) -> DataFrame:
    """A row for each queue: how many files it has, their bytes, and how many of `messages` are in them."""
    named = messages.select(
        "vhost",
        "queue",
        sf.col("_metadata.file_path").alias("file"),
        sf.col("_metadata.file_size").alias("bytes"),
    )
    files = named.groupBy("vhost", "queue", "file").agg(
        sf.first("bytes").alias("bytes"), sf.count("*").alias("rows")
    )
    return (
        files.groupBy("vhost", "queue")
        .agg(sf.count("*").alias("files"), sf.sum("bytes").alias("bytes"), sf.sum("rows").alias("rows"))
        .orderBy("vhost", "queue")
    )


def check(options: argparse.Namespace) -> None:
    if options.in_place:
        _check_in_place(options)
        return
    if options.to.rstrip("/") == options.archive.rstrip("/"):
        raise UsageError(
            "--to must be another directory than --archive; --in-place compacts the archive itself"
        )
    if options.latest_per and (options.since or options.until or options.from_offset or options.to_offset):
        raise UsageError("--latest-per looks at whole queues: leave out --since, --until and the offsets")
    _check_whole_days(options)


def _check_in_place(options: argparse.Namespace) -> None:
    chosen = ("queue", "pattern", "from_offset", "to_offset", "since", "until", "latest_per")
    given = [name for name in chosen if getattr(options, name)]
    if given:
        raise UsageError(f"--in-place is for the whole archive: leave out --{given[0].replace('_', '-')}")
    if local_path(options.archive) is None:
        raise UsageError("--in-place needs --archive on a path of this machine")


def _check_whole_days(options: argparse.Namespace) -> None:
    """Refuse parts of days: a day is replaced as a whole, so the table would lose its other messages."""
    if options.from_offset or options.to_offset:
        raise UsageError("compact replaces whole days: choose them by --since and --until, not by offsets")
    for name, time_ms in (("--since", options.since), ("--until", options.until)):
        if time_ms is not None and time_ms % DAY_MS:
            raise UsageError(f"compact replaces whole days: give a day, such as 2026-03-01, for {name}")


def run(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    if options.in_place:
        return _in_place(spark, options, progress)
    messages = inputs.select(read_archive(spark, options.archive), inputs.slice_of(options))
    with progress.step("looking at the archive"):
        read, before = collect(extents(messages)), collect(files_of(messages))
    with progress.step("compacting"):
        compact(messages, options.to, latest=options.latest_per, rows_a_file=options.rows_a_file)
    with progress.step("looking at the result"):
        after = collect(files_of(_written(spark, options)))
    result = JobResult(title=f"Compacted {options.archive} into {options.to}")
    _tell(result, tell_extents(result, read), before, after)
    return result


def _in_place(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    root = (local_path(options.archive) or Path()).absolute()
    if is_delta(options.archive):
        return _delta_in_place(root, options, progress)
    if not current_lists(root):
        raise PipelineError(f"{options.archive} is no archive that a stream is written to: it has no {LISTS}")
    with progress.step("merging"):
        done = merge_round(root, by_spark(spark), size_max=options.file_size, eager=True)
        with if_nobody_archives(root) as alone:
            waiting = settle(root, alone=alone)
    result = JobResult(title=f"Compacted {options.archive} in place")
    result.numbers |= {"files merged": done.files_before, "into": done.files_after}
    if waiting:
        result.notes.append(
            "The archive runs: after some more batches it lists the new files, and then it, or the next "
            "compact, removes the old ones. Readers that go by the lists see each message once at any time."
        )
    if not done.files_before:
        result.notes.append(
            "There was nothing to merge: files of the last batches, up to nine, wait for the next whole list."
        )
    return result


def _delta_in_place(root: Path, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    with progress.step("merging"):
        done, removed = merge_table(root, options.file_size), vacuum(root)
    result = JobResult(title=f"Compacted {options.archive} in place")
    result.numbers |= {
        "files merged": done.files_before,
        "into": done.files_after,
        "old files removed": removed,
    }
    return result


def _written(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The messages of the chosen slice that are in the table now."""
    return inputs.select(read_archive(spark, options.to), inputs.slice_of(options))


def _tell(result: JobResult, read: int, before: list[list[Value]], after: list[list[Value]]) -> None:
    written = sum(whole(row[4]) for row in after)
    files = [sum(whole(row[2]) for row in rows) for rows in (before, after)]
    sizes = [sum(whole(row[3]) for row in rows) for rows in (before, after)]
    result.numbers |= {
        "messages written": written,
        "messages dropped": read - written,
        "files before": files[0],
        "files after": files[1],
        "size before": byte_size(sizes[0]),
        "size after": byte_size(sizes[1]),
    }
    became = {(row[0], row[1]): row[2:] for row in after}
    rows = [[*row, *became.get((row[0], row[1]), [0, 0, 0])] for row in before]
    columns = ("vhost", "queue", "files", "bytes", "messages", "files now", "bytes now", "messages now")
    result.tables.append(top("Files", columns, rows))
    labels, values = ["files before", "files after"], [float(count) for count in files]
    result.plots.append(Bars("Files", labels, values))
