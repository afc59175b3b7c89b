"""archive: writes streams to Parquet files by vhost, queue and day, once or on and on.

    <to>/vhost=%2F/queue=orders/date=2026-03-01/part-….parquet
    <to>/_spark_metadata/     which files count: a batch is in the archive when its list is here
    <to>/_checkpoint/         how far the streams were read (or wherever --checkpoint says)
    <to>/_lock                held by the process that archives
    <to>/_merges/             merges of small files that are under way

`_spark_metadata` and the checkpoint together make it exactly once: a batch that was cut off is repeated with
the same offsets, and a batch that is listed already is not written again. The two must stay together: with a
new checkpoint Spark would count batches from 0 again, and skip those whose numbers are listed. So that is
refused.

Files roll by time and by size. A batch runs every few seconds, so that messages are soon in the archive. Each
of its tasks writes a file, of at most 32 MiB of messages, or of one segment if that cannot be split.
Meanwhile small files are merged in place, up to --roll-size (`merges.py`).

Queues that are not streams change while they are read, so they are archived as snapshots, each under a name:

    <to>/snapshot=<name>/vhost=%2F/queue=orders/date=2026-03-01/part-….parquet
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from warren.pipeline.errors import PipelineError, UsageError
from warren.pipeline.jobs import inputs
from warren.pipeline.jobs.columns import utc_date
from warren.pipeline.jobs.delta import HOW_TO_GET_IT, can_write, is_delta, merge_table, write_batch
from warren.pipeline.jobs.extent import extents, tell_extents
from warren.pipeline.jobs.leftovers import remove_leftovers
from warren.pipeline.jobs.lists import local_path
from warren.pipeline.jobs.lock import only_one
from warren.pipeline.jobs.numbers import byte_count, positive, whole_seconds
from warren.pipeline.jobs.old_headers import with_present_headers
from warren.pipeline.jobs.queries import Summary, follow, stop_on_signals
from warren.pipeline.jobs.rolling import Rolling, roll, settle_alone
from warren.pipeline.jobs.rows import collect
from warren.pipeline.jobs.tables import (
    ARCHIVE_PARTITIONS,
    ARCHIVE_SCHEMA,
    check_checkpoint,
    has_batches,
    has_sink_log,
    overwrite_partitions,
    times_in_micros,
)
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import JobResult

ABOUT = "keep streams as Parquet files by vhost, queue and day, each message once"
SNAPSHOT_PARTITIONS = ("snapshot", *ARCHIVE_PARTITIONS)
DELTA = "delta"
ROLL_SIZE, ROLL_SECONDS = "128 MB", 600
ROLL_BYTES = byte_count(ROLL_SIZE)
BATCH_BYTES_MAX, DELTA_BATCH_BYTES_MAX = 1 << 30, 256 << 20
"""How much a batch has at most, about. A killed run repeats up to a batch, and a batch for Delta is held in
memory. With a batch every ten seconds this allows 100 MB/s, and 25 MB/s to Delta; more needs a smaller
--every.
"""

COMPRESSIONS = ("snappy", "zstd", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs.add_arguments(parser, archive=False, ending=False)
    add = parser.add_argument_group("how to archive").add_argument
    add(
        "--to", required=True, metavar="DIR", help="the archive, on a path or URL that all of Spark can write"
    )
    add("--checkpoint", metavar="DIR", help="where to keep the progress (default: _checkpoint in --to)")
    add("--once", action="store_true", help="archive what there is now and end, rather than go on")
    add(
        "--every",
        type=positive,
        default=10,
        metavar="SECONDS",
        help="seconds from batch to batch, each of which makes new files (default: %(default)s)",
    )
    add(
        "--roll-size",
        type=byte_count,
        default=ROLL_SIZE,
        metavar="SIZE",
        help="small files are merged to files of up to this size (default: %(default)s)",
    )
    add(
        "--roll-every",
        type=whole_seconds,
        metavar="SECONDS",
        help="seconds from merge to merge of small files, in place; with --once at its end; 0: never "
        f"(default: {ROLL_SECONDS})",
    )
    add("--batch", type=positive, metavar="N", help="messages a batch at most (default: all there are)")
    add("--reference", metavar="NAME", help="have the broker show the progress by this name (needs --url)")
    add(
        "--snapshot",
        nargs="?",
        const="",
        metavar="NAME",
        help="archive what is in the queues now, without consuming it; for queues that are not streams",
    )
    add(
        "--format",
        choices=("parquet", DELTA),
        default="parquet",
        help="files of Parquet, or a Delta table, which needs the extra `delta` (default: %(default)s)",
    )
    add("--compression", choices=COMPRESSIONS, default="snappy", help="of the files (default: %(default)s)")


def dated(messages: DataFrame) -> DataFrame:
    """Add the column `date`, each message's day in UTC, by which the archive is partitioned."""
    return messages.withColumn("date", utc_date(sf.col("timestamp")))


def start(
    messages: DataFrame,
    to: str,
    *,
    checkpoint: str | None = None,
    once: bool = True,
    every_seconds: int = 10,
    compression: str = "snappy",
    table_format: str = "parquet",
    file_bytes: int = ROLL_BYTES,
) -> StreamingQuery:
    """The query that archives a stream of messages; it is running when this returns. `file_bytes` is the
    size of Delta's files; the sizes of Parquet files follow from the batches.
    """
    checkpoint = checkpoint or _checkpoint_in(to)
    _guard(messages.sparkSession, to, checkpoint, table_format)
    writer = dated(messages).writeStream.queryName("archive").option("checkpointLocation", checkpoint)
    if table_format == DELTA:
        place = str((local_path(to) or Path(to)).absolute())
        write = partial(
            write_batch, to=place, by=ARCHIVE_PARTITIONS, file_bytes=file_bytes, compression=compression
        )
        writer = writer.foreachBatch(write)
    else:
        writer = writer.format("parquet").partitionBy(*ARCHIVE_PARTITIONS).option("compression", compression)
    writer = (
        writer.trigger(availableNow=True)
        if once
        else writer.trigger(processingTime=f"{every_seconds} seconds")
    )
    with times_in_micros(messages.sparkSession):
        return writer.start() if table_format == DELTA else writer.start(to)


def _checkpoint_in(to: str) -> str:
    return f"{to.rstrip('/')}/_checkpoint"


def _guard(spark: SparkSession, to: str, checkpoint: str, table_format: str) -> None:
    has_files, has_delta = has_sink_log(spark, to), is_delta(to)
    if (has_delta and table_format != DELTA) or (has_files and table_format == DELTA):
        found = DELTA if has_delta else "parquet"
        raise PipelineError(
            f"--to {to} was begun with --format {found}: give that, or choose a new directory"
        )
    check_checkpoint(spark, to, checkpoint, written=has_delta or has_batches(spark, to))


def write_snapshot(messages: DataFrame, to: str, name: str) -> None:
    """Write a snapshot. One of the same name is replaced, queue by queue and day by day."""
    named = dated(messages).withColumn("snapshot", sf.lit(name))
    overwrite_partitions(named, to, SNAPSHOT_PARTITIONS)


def read_snapshot(spark: SparkSession, to: str, name: str) -> DataFrame:
    """The snapshot's messages. The schema is given: Spark would take a snapshot named `7` for a number."""
    found = with_present_headers(spark.read.schema(f"{ARCHIVE_SCHEMA}, snapshot string").parquet(to))
    return found.filter(sf.col("snapshot") == name)


def check(options: argparse.Namespace) -> None:
    inputs.check(options)
    if options.reference and not options.url:
        raise UsageError("--reference is a name at the broker: it needs --url, not --path")
    if options.format == DELTA:
        _check_delta(options)
    if options.roll_every and local_path(options.to) is None:
        raise UsageError("--roll-every merges files in place: that needs --to on a path of this machine")


def _check_delta(options: argparse.Namespace) -> None:
    if not can_write():
        raise UsageError(HOW_TO_GET_IT)
    if options.snapshot is not None:
        raise UsageError("--snapshot writes Parquet: leave out --format delta")
    if local_path(options.to) is None:
        raise UsageError("--format delta needs --to on a path of this machine")


def run(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    source = inputs.source_of(options)
    with only_one(options.to, elsewhere=getattr(options, "remote", None) is not None) as unlocked:
        if unlocked:
            progress.say(unlocked)
        if options.snapshot is not None:
            return _snapshot(spark, source, options, progress)
        return _streams(spark, source, options, progress, alone=not unlocked)


def _streams(
    spark: SparkSession,
    source: inputs.JobInput,
    options: argparse.Namespace,
    progress: ProgressLine,
    *,
    alone: bool,
) -> JobResult:
    messages = inputs.read_stream(
        spark,
        source,
        batch_offsets_max=options.batch,
        batch_bytes_max=DELTA_BATCH_BYTES_MAX if options.format == DELTA else BATCH_BYTES_MAX,
        reference=options.reference,
    )
    initial = inputs.initial_offsets(source)
    checkpoint = options.checkpoint or _checkpoint_in(options.to)
    _guard(spark, options.to, checkpoint, options.format)  # before anything is removed
    if alone:
        settle_alone(options.to)
    removed = 0 if options.format == DELTA else remove_leftovers(options.to, checkpoint)
    rolling = _rolling(spark, options, progress)
    with stop_on_signals() as stop, rolling.running():
        summary = follow(_start(messages, options), progress, stop, initial)
    if options.once:
        rolling.round()
    if alone:
        settle_alone(options.to)
    if options.reference:
        inputs.report_offsets(source, options.reference, summary.next)
    result = _told(options.to, summary)
    if removed:
        result.numbers["files removed that a killed run had left"] = removed
    if rolling.files_before:
        result.numbers |= {"files merged": rolling.files_before, "into": rolling.files_after}
    return result


def _told(to: str, summary: Summary) -> JobResult:
    result = JobResult(title=f"Archive in {to}")
    result.numbers |= {
        "messages read": summary.rows,
        "messages written": summary.rows,
        "offsets without a message": summary.missing,
        "batches": summary.batches,
    }
    result.tables.append(summary.table())
    result.plots.append(summary.plot())
    if not summary.rows:
        result.notes.append("There was nothing new: all that is in the streams is in the archive already.")
    return result


def _rolling(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> Rolling:
    root = local_path(options.to)
    seconds = ROLL_SECONDS if options.roll_every is None else options.roll_every
    if root is None or not root.is_dir() or not seconds:  # the archive may be where Spark runs, not here
        return Rolling(None, ROLL_SECONDS, progress.say)
    if options.format == DELTA:
        return Rolling(lambda _is_over: merge_table(root, options.roll_size), seconds, progress.say)
    return Rolling(roll(spark, root.absolute(), options.roll_size), seconds, progress.say)


def _start(messages: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    return start(
        messages,
        options.to,
        checkpoint=options.checkpoint,
        once=options.once,
        every_seconds=options.every,
        compression=options.compression,
        table_format=options.format,
        file_bytes=options.roll_size,
    )


def _snapshot(
    spark: SparkSession, source: inputs.JobInput, options: argparse.Namespace, progress: ProgressLine
) -> JobResult:
    name = options.snapshot or datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    with progress.step("snapshot"):
        write_snapshot(inputs.read(spark, source), options.to, name)
    with progress.step("counting"):
        rows = collect(extents(read_snapshot(spark, options.to, name)))
    result = JobResult(title=f"Snapshot {name} in {options.to}")
    result.numbers["messages written"] = tell_extents(result, rows)
    return result
