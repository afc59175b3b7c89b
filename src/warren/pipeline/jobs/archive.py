"""archive: streams to Parquet files by vhost, queue and day, as they come or once.

    <to>/vhost=%2F/queue=orders/date=2026-03-01/part-….parquet
    <to>/_spark_metadata/     which files count: a batch is in the archive when it stands there
    <to>/_checkpoint/         how far the streams were read (or wherever --checkpoint says)
    <to>/_lock                held by the process that archives

Both together make it exactly once: a batch that was cut off is repeated with the same offsets, and one that
is listed already is not written again. The two must stay together: with a new checkpoint Spark would count
batches from 0 and take those for listed, so that is refused.

Queues that are not streams change under the reader, so they are archived as snapshots, each under its name:

    <to>/snapshot=<name>/vhost=%2F/queue=orders/date=2026-03-01/part-….parquet
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from warren.pipeline.errors import UsageError
from warren.pipeline.jobs import inputs
from warren.pipeline.jobs.columns import utc_date
from warren.pipeline.jobs.extent import extents, tell_extents
from warren.pipeline.jobs.leftovers import remove_leftovers
from warren.pipeline.jobs.lock import only_one
from warren.pipeline.jobs.numbers import positive
from warren.pipeline.jobs.old_headers import with_present_headers
from warren.pipeline.jobs.queries import follow, stop_on_signals
from warren.pipeline.jobs.rows import collect
from warren.pipeline.jobs.tables import (
    ARCHIVE_PARTITIONS,
    ARCHIVE_SCHEMA,
    check_checkpoint,
    has_sink_log,
    overwrite_partitions,
)
from warren.pipeline.report.progress import Progress
from warren.pipeline.report.result import Result

ABOUT = "keep streams as Parquet files by vhost, queue and day, each message once"
SNAPSHOT_PARTITIONS = ("snapshot", *ARCHIVE_PARTITIONS)
COMPRESSIONS = ("snappy", "zstd", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs.add_arguments(parser, archive=False, ending=False)
    add = parser.add_argument_group("how to archive").add_argument
    add(
        "--to", required=True, metavar="DIR", help="the archive, on a path or URL that all of Spark can write"
    )
    add("--checkpoint", metavar="DIR", help="how far it got is kept there (default: _checkpoint in --to)")
    add("--once", action="store_true", help="archive what there is now and end, rather than go on")
    add(
        "--every",
        type=positive,
        default=10,
        metavar="SECONDS",
        help="a batch so often (default: %(default)s)",
    )
    add("--batch", type=positive, metavar="N", help="messages a batch at most (default: all there are)")
    add("--reference", metavar="NAME", help="show the broker how far it got, under this name (needs --url)")
    add(
        "--snapshot",
        nargs="?",
        const="",
        metavar="NAME",
        help="what is in the queues now, consuming nothing; for queues that are not streams",
    )
    add("--compression", choices=COMPRESSIONS, default="snappy", help="of the files (default: %(default)s)")


def dated(messages: DataFrame) -> DataFrame:
    """With the day of each message in UTC, by which the archive is partitioned."""
    return messages.withColumn("date", utc_date(sf.col("timestamp")))


def start(
    messages: DataFrame,
    to: str,
    *,
    checkpoint: str | None = None,
    once: bool = True,
    every_seconds: int = 10,
    compression: str = "snappy",
) -> StreamingQuery:
    """The query that archives a stream of messages; it is running when this returns."""
    checkpoint = checkpoint or _checkpoint_in(to)
    _guard(messages.sparkSession, to, checkpoint)
    writer = (
        dated(messages).writeStream.format("parquet").queryName("archive").partitionBy(*ARCHIVE_PARTITIONS)
    )
    writer = writer.option("checkpointLocation", checkpoint).option("compression", compression)
    writer = (
        writer.trigger(availableNow=True)
        if once
        else writer.trigger(processingTime=f"{every_seconds} seconds")
    )
    return writer.start(to)


def _checkpoint_in(to: str) -> str:
    return f"{to.rstrip('/')}/_checkpoint"


def _guard(spark: SparkSession, to: str, checkpoint: str) -> None:
    check_checkpoint(spark, to, checkpoint, written=has_sink_log(spark, to))


def write_snapshot(messages: DataFrame, to: str, name: str) -> None:
    """A snapshot of this name is replaced, queue by queue and day by day."""
    named = dated(messages).withColumn("snapshot", sf.lit(name))
    overwrite_partitions(named, to, SNAPSHOT_PARTITIONS)


def read_snapshot(spark: SparkSession, to: str, name: str) -> DataFrame:
    """Nothing, if the queues were empty. Spark is told the types: a snapshot named `7` is no number."""
    found = with_present_headers(spark.read.schema(f"{ARCHIVE_SCHEMA}, snapshot string").parquet(to))
    return found.filter(sf.col("snapshot") == name)


def check(options: argparse.Namespace) -> None:
    inputs.check(options)
    if options.reference and not options.url:
        raise UsageError("--reference is told to a broker: it needs --url, not --path")


def run(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> Result:
    source = inputs.source_of(options)
    with only_one(options.to, elsewhere=getattr(options, "remote", None) is not None) as unlocked:
        if unlocked:
            progress.say(unlocked)
        if options.snapshot is not None:
            return _snapshot(spark, source, options, progress)
        return _streams(spark, source, options, progress)


def _streams(
    spark: SparkSession, source: inputs.Source, options: argparse.Namespace, progress: Progress
) -> Result:
    messages = inputs.read_stream(spark, source, batch_offsets_max=options.batch, reference=options.reference)
    initial = inputs.initial_offsets(source)
    checkpoint = options.checkpoint or _checkpoint_in(options.to)
    _guard(spark, options.to, checkpoint)  # before anything is removed
    removed = remove_leftovers(options.to, checkpoint)
    with stop_on_signals() as stop:
        summary = follow(_start(messages, options), progress, stop, initial)
    if options.reference:
        inputs.report_offsets(source, options.reference, summary.next)
    result = Result(title=f"Archive in {options.to}")
    result.numbers |= {
        "messages read": summary.rows,
        "messages written": summary.rows,
        "offsets without a message": summary.missing,
        "batches": summary.batches,
    }
    if removed:
        result.numbers["files removed that a killed run had left"] = removed
    result.tables.append(summary.table())
    result.plots.append(summary.plot())
    if not summary.rows:
        result.notes.append("There was nothing new: all that is in the streams is in the archive already.")
    return result


def _start(messages: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    return start(
        messages,
        options.to,
        checkpoint=options.checkpoint,
        once=options.once,
        every_seconds=options.every,
        compression=options.compression,
    )


def _snapshot(
    spark: SparkSession, source: inputs.Source, options: argparse.Namespace, progress: Progress
) -> Result:
    name = options.snapshot or datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    with progress.step("snapshot"):
        write_snapshot(inputs.read(spark, source), options.to, name)
    with progress.step("counting"):
        rows = collect(extents(read_snapshot(spark, options.to, name)))
    result = Result(title=f"Snapshot {name} in {options.to}")
    result.numbers["messages written"] = tell_extents(result, rows)
    return result
