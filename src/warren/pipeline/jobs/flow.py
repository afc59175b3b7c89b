"""flow: measures traffic in windows of time: rates, bytes, sizes and latencies by queue and routing key.

Latency is the broker's time minus the publisher's, for messages that carry the latter in a header, or in
whole seconds as the property timestamp. Each window also says from which offset to which it has messages, so
that a figure can be traced back to them.

The job runs once over a slice, or on and on as messages arrive. In the second case a window is written again
whenever it changes, until the watermark has passed it:

    <to>/day=2026-03-01/part-….parquet             a slice: days are replaced as a whole
    <to>/day=2026-03-01/batch=17/part-….parquet    on and on: the windows of that day that batch 17 changed

A batch that is repeated writes the same under the same number, and for each window the highest batch counts
(`current`). So every message counts once.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from warren.pipeline.errors import PipelineError, UsageError
from warren.pipeline.jobs import inputs
from warren.pipeline.jobs.columns import TIME_HEADER
from warren.pipeline.jobs.flow_report import report_slice, report_stream
from warren.pipeline.jobs.numbers import positive, span
from warren.pipeline.jobs.queries import follow, stop_on_signals
from warren.pipeline.jobs.tables import check_checkpoint, has_table, overwrite_partitions
from warren.pipeline.jobs.windows import ARRIVED, PUBLISHED, WINDOW, current, measured, windows
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import JobResult

ABOUT = "measure rates, bytes, sizes and latencies by queue and routing key, in windows of time"
WATERMARK = "10 minutes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs.add_arguments(parser)
    add = parser.add_argument_group("how to measure").add_argument
    add("--window", type=span, default=WINDOW, help="how long a window is (default: %(default)s)")
    add(
        "--time-header",
        default=TIME_HEADER,
        metavar="NAME",
        help="the header with the publisher's time (default: %(default)s)",
    )
    add(
        "--event-time",
        choices=(ARRIVED, PUBLISHED),
        default=ARRIVED,
        help="windows by when messages came, or by when their publishers say they sent them",
    )
    add("--to", metavar="DIR", help="write the windows there, as Parquet by day")
    add("--follow", action="store_true", help="go on as messages come (streams only; needs --to)")
    add("--once", action="store_true", help="go on from where the last run ended, and end (needs --to)")
    add("--watermark", type=span, default=WATERMARK, help="how late a message may be (default: %(default)s)")
    add(
        "--every",
        type=positive,
        default=10,
        metavar="SECONDS",
        help="seconds from batch to batch (default: %(default)s)",
    )
    add("--checkpoint", metavar="DIR", help="where to keep the progress (default: _checkpoint in --to)")


def start(
    sizes: DataFrame,
    to: str,
    *,
    window: str = WINDOW,
    watermark: str = WATERMARK,
    checkpoint: str | None = None,
    once: bool = True,
    every_seconds: int = 10,
) -> StreamingQuery:
    """The query that keeps a table of windows up to date; it is running when this returns."""
    spark = sizes.sparkSession
    checkpoint = checkpoint or f"{to.rstrip('/')}/_checkpoint"
    check_checkpoint(spark, to, checkpoint, written=has_table(spark, to))

    def write(changed: DataFrame, batch: int) -> None:
        overwrite_partitions(changed.withColumn("batch", sf.lit(batch)), to, ["day", "batch"])

    changing = windows(sizes.withWatermark("timestamp", watermark), window)
    writer = changing.writeStream.outputMode("update").queryName("flow").foreachBatch(write)
    writer = writer.option("checkpointLocation", checkpoint)
    writer = (
        writer.trigger(availableNow=True)
        if once
        else writer.trigger(processingTime=f"{every_seconds} seconds")
    )
    return writer.start()


def check(options: argparse.Namespace) -> None:
    inputs.check(options)
    if options.follow or options.once:
        if options.archive or not options.to:
            raise UsageError("--follow and --once read streams, with --path or --url, and need --to")
        if options.to_offset or options.until:
            raise UsageError("--follow and --once have no end: leave out --to-offset and --until")


def run(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    source = inputs.source_of(options)
    if options.follow or options.once:
        return _run_stream(spark, source, options, progress)
    sizes = _measured(inputs.read(spark, source), options).persist()
    try:  # read once: a queue that is read twice has changed in between
        table = windows(sizes, options.window)
        result = report_slice(sizes, table, options, progress)
        if options.to:
            _refuse_stream_windows(spark, options.to)
            with progress.step("writing"):
                overwrite_partitions(table.coalesce(1), options.to, ["day"])
            result.notes.append(f"The windows are in {options.to}.")
        return result
    finally:
        sizes.unpersist()


def _measured(messages: DataFrame, options: argparse.Namespace) -> DataFrame:
    return measured(messages, time_header=options.time_header, event_time=options.event_time)


def _refuse_stream_windows(spark: SparkSession, to: str) -> None:
    if has_table(spark, to) and "batch" in spark.read.parquet(to).columns:
        raise PipelineError(f"--to {to} is kept up to date with --follow or --once: choose another directory")


def _run_stream(
    spark: SparkSession, source: inputs.JobInput, options: argparse.Namespace, progress: ProgressLine
) -> JobResult:
    sizes = _measured(inputs.read_stream(spark, source), options)
    initial = inputs.initial_offsets(source)
    with stop_on_signals() as stop:
        summary = follow(_start(sizes, options), progress, stop, initial)
    if not has_table(spark, options.to):
        return report_stream(None, summary, options, progress)
    return report_stream(current(spark.read.parquet(options.to)), summary, options, progress)


def _start(sizes: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    return start(
        sizes,
        options.to,
        window=options.window,
        watermark=options.watermark,
        checkpoint=options.checkpoint,
        once=options.once,
        every_seconds=options.every,
    )
