"""flow: how much went through, window by window: rates, bytes, sizes and latencies by queue and routing key.

Latency is the broker's time less the publisher's, for messages that carry the latter in a header. Each window
also says from which offset to which it has messages, so a figure can be followed back to them.

Once over a slice, or on and on as messages come. In the second case a window is written again whenever it
changes, until the watermark has passed it:

    <to>/day=2026-03-01/part-….parquet             a slice: days are replaced whole
    <to>/day=2026-03-01/batch=17/part-….parquet    on and on: what batch 17 had to say about windows of that day

A batch that is repeated writes the same under the same number, and of each window the highest batch counts
(`current`), so that every message counts once.
"""

from __future__ import annotations

import argparse

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs import inputs
from warren.pipeline.jobs.columns import PERCENTILES, TIME_HEADER, percentiles, since_published_ms, utc_date
from warren.pipeline.jobs.flow_report import report_slice, report_stream
from warren.pipeline.jobs.numbers import positive, span
from warren.pipeline.jobs.queries import follow, stop_on_signals
from warren.pipeline.jobs.tables import check_checkpoint, exists, overwrite_partitions
from warren.pipeline.report.progress import Progress
from warren.pipeline.report.result import Result

ABOUT = "measure rates, bytes, sizes and latencies by queue and routing key, in windows of time"
WINDOW = "1 minute"
WATERMARK = "10 minutes"
KEYS = ("vhost", "queue", "routing_key")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs.add_arguments(parser)
    add = parser.add_argument_group("how to measure").add_argument
    add("--window", type=span, default=WINDOW, help="how long a window is (default: %(default)s)")
    add(
        "--time-header",
        default=TIME_HEADER,
        metavar="NAME",
        help="the publisher's time (default: %(default)s)",
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
        help="a batch so often (default: %(default)s)",
    )
    add("--checkpoint", metavar="DIR", help="how far it got is kept there (default: _checkpoint in --to)")


def measured(messages: DataFrame, *, time_header: str = TIME_HEADER) -> DataFrame:
    """Of each message only what is measured."""
    return messages.select(
        *KEYS,
        "offset",
        "timestamp",
        sf.coalesce(sf.octet_length("body"), sf.lit(0)).cast("long").alias("bytes"),
        since_published_ms(sf.col("timestamp"), time_header).alias("latency_ms"),
    )


def figures() -> list[Column]:
    """What is said of any group of measured messages."""
    return [
        sf.count("*").alias("messages"),
        sf.sum("bytes").alias("bytes"),
        percentiles(sf.col("bytes")).alias("size"),
        sf.max("bytes").alias("size_max"),
        sf.count("latency_ms").alias("timed"),
        percentiles(sf.col("latency_ms")).alias("latency"),
        sf.max("latency_ms").alias("latency_max_ms"),
        sf.min("offset").alias("first_offset"),
        sf.max("offset").alias("last_offset"),
    ]


def spread(groups: DataFrame) -> DataFrame:
    """The arrays of percentiles as columns of their own."""
    for index, percent in enumerate(PERCENTILES):
        name = f"p{percent * 100:.0f}"
        groups = groups.withColumn(f"size_{name}", sf.col("size")[index])
        groups = groups.withColumn(f"latency_{name}_ms", sf.col("latency")[index])
    return groups.drop("size", "latency")


def windows(sizes: DataFrame, window: str = WINDOW) -> DataFrame:
    """A row for each window, queue and routing key. Of a stream, give it a watermark first."""
    grouped = sizes.groupBy(sf.window("timestamp", window).alias("w"), *KEYS).agg(*figures())
    length_s = sf.unix_seconds(sf.col("w.end")) - sf.unix_seconds(sf.col("w.start"))
    named = grouped.select(
        sf.col("w.start").alias("start"),
        sf.col("w.end").alias("end"),
        *(sf.col(name) for name in grouped.columns if name != "w"),
        (sf.col("messages") / length_s).alias("messages_a_second"),
        utc_date(sf.col("w.start")).alias("day"),
    )
    return spread(named)


def totals(sizes: DataFrame, *by: str) -> DataFrame:
    return spread(sizes.groupBy(*by).agg(*figures())).orderBy(sf.desc("messages"), *by)


def current(written: DataFrame) -> DataFrame:
    """Of what a stream wrote, the latest of each window."""
    newest = Window.partitionBy("start", "end", *KEYS).orderBy(sf.col("batch").desc())
    ranked = written.withColumn("_rank", sf.row_number().over(newest))
    return ranked.filter(sf.col("_rank") == 1).drop("_rank", "batch")


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
    checkpoint = checkpoint or f"{to.rstrip('/')}/_checkpoint"
    check_checkpoint(sizes.sparkSession, to, checkpoint, sign="_SUCCESS")

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


def run(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> Result:
    source = inputs.source_of(options)
    if options.follow or options.once:
        return _run_stream(spark, source, options, progress)
    sizes = measured(inputs.read(spark, source), time_header=options.time_header).persist()
    try:  # read once: a queue that is read twice has changed in between
        table = windows(sizes, options.window)
        result = report_slice(sizes, totals, table, options, progress)
        if options.to:
            _refuse_stream_windows(spark, options.to)
            with progress.step("writing"):
                overwrite_partitions(table.coalesce(1), options.to, ["day"])
            result.notes.append(f"The windows are in {options.to}.")
        return result
    finally:
        sizes.unpersist()


def _refuse_stream_windows(spark: SparkSession, to: str) -> None:
    if exists(spark, f"{to.rstrip('/')}/_SUCCESS") and "batch" in spark.read.parquet(to).columns:
        raise PipelineError(f"--to {to} is kept up to date with --follow or --once: choose another directory")


def _run_stream(
    spark: SparkSession, source: inputs.Source, options: argparse.Namespace, progress: Progress
) -> Result:
    if source.archive is not None or not options.to:
        raise PipelineError("--follow and --once read streams, with --path or --url, and need --to")
    if options.to_offset or options.until:
        raise PipelineError("--follow and --once have no end: leave out --to-offset and --until")
    sizes = measured(inputs.read_stream(spark, source), time_header=options.time_header)
    with stop_on_signals() as stop:
        summary = follow(_start(sizes, options), progress, stop)
    if not exists(spark, f"{options.to.rstrip('/')}/_SUCCESS"):
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
