"""audit: checks that each message is there once: finds gaps and duplicates, and compares an archive with the
live messages.

Messages are compared by their offsets, range by range, so that the job scales with the data and the result
names offsets. A gap in a stream is damage. In a queue that is not a stream, a gap is messages that were
acked: --allow-gaps allows it.

If a stream was deleted and made anew, the archive may have messages of the old one. They get a verdict of
their own, and are not compared.

Messages that only the archive has, below the stream's first offset, went by retention. Messages that only the
stream has, above the archive's last offset, are not archived yet. Any other message that one of them lacks is
missing.
"""

from __future__ import annotations

import argparse
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from warren.pipeline.jobs import inputs
from warren.pipeline.jobs.extent import extents, tell_extents
from warren.pipeline.jobs.numbers import positive
from warren.pipeline.jobs.rows import collect, top, whole
from warren.pipeline.jobs.tables import read_archive
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import Bars, JobResult, Value

ABOUT = "find gaps and duplicates, and compare an archive with what is live"
RANGE = 100_000
PLACE = ("vhost", "queue", "offset")
MESSAGE = (*PLACE, "priority")
"""The columns that identify a message: in a queue with priorities, each priority has offsets of its own."""

COMPARED = ("exchange", "routing_key", "message_id", "body")
VERDICTS = (
    "same",
    "not_archived_yet",
    "gone_by_retention",
    "missing_in_archive",
    "missing_in_live",
    "different",
    "of_another_stream",
)
HARMFUL = ("missing_in_archive", "missing_in_live", "different", "of_another_stream")

Rows: TypeAlias = list[list[Value]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs.add_arguments(parser, archive=False)
    add = parser.add_argument_group("how to audit").add_argument
    add("--archive", dest="compared_archive", metavar="DIR", help="compare with what `archive` wrote there")
    add("--contents", action="store_true", help="compare the messages too, not only that they are there")
    add("--range", type=positive, default=RANGE, metavar="N", help="offsets a line (default: %(default)s)")
    add("--allow-gaps", action="store_true", help="gaps are no error: for queues that are not streams")


def counted(messages: DataFrame, *, contents: bool = False) -> DataFrame:
    """A row for each message: `copies` is how often it is there, `digest` a hash of its contents, or 0."""
    digest = sf.xxhash64(*COMPARED) if contents else sf.lit(0).cast("long")
    priority = sf.coalesce("priority", sf.lit(0)).alias("priority")
    places = messages.select(*PLACE, priority, "stream_id", digest.alias("digest"))
    return places.groupBy(*MESSAGE, "stream_id").agg(
        sf.count("*").alias("copies"), sf.min("digest").alias("digest")
    )


def _range_of(size: int) -> Column:
    return (sf.floor(sf.col("offset") / sf.lit(size)) * sf.lit(size)).cast("long").alias("range")


def ranges(counts: DataFrame, size: int = RANGE) -> DataFrame:
    """A row for each range of offsets: how many messages, offsets and duplicates it has."""
    return counts.groupBy("vhost", "queue", _range_of(size)).agg(
        sf.sum("copies").alias("messages"),
        sf.count("*").alias("offsets"),
        sf.sum(sf.col("copies") - 1).alias("duplicates"),
        sf.min("offset").alias("first_offset"),
        sf.max("offset").alias("last_offset"),
    )


def gaps(counts: DataFrame, size: int = RANGE) -> DataFrame:
    """The runs of missing offsets between those that are there. Each range is sorted on its own, and between
    ranges only their ends are compared, so that no sort has to hold a whole queue.
    """
    inner = Window.partitionBy("vhost", "queue", "range").orderBy("offset")
    within = counts.select("vhost", "queue", "offset", _range_of(size)).select(
        "vhost", "queue", sf.lag("offset").over(inner).alias("before"), sf.col("offset").alias("after")
    )
    outer = Window.partitionBy("vhost", "queue").orderBy("range")
    between = ranges(counts, size).select(
        "vhost",
        "queue",
        sf.lag("last_offset").over(outer).alias("before"),
        sf.col("first_offset").alias("after"),
    )
    return (
        within.unionByName(between)
        .filter(sf.col("after") - sf.col("before") > 1)
        .select(
            "vhost",
            "queue",
            (sf.col("before") + 1).alias("first_missing"),
            (sf.col("after") - 1).alias("last_missing"),
            (sf.col("after") - sf.col("before") - 1).alias("missing"),
        )
        .orderBy("vhost", "queue", "first_missing")
    )


def duplicates(counts: DataFrame) -> DataFrame:
    return counts.filter(sf.col("copies") > 1).select(*PLACE, "copies").orderBy(*PLACE)


def compared(live: DataFrame, archived: DataFrame) -> DataFrame:
    """A verdict for each offset that is in either table. Both tables are from `counted`."""
    queues = ["vhost", "queue"]
    live_from = live.groupBy(*queues).agg(
        sf.min("offset").alias("live_first"), sf.max("stream_id").alias("live_stream")
    )
    archived, others = _of_the_same_stream(archived, live_from)
    archived_to = archived.groupBy(*queues).agg(sf.max("offset").alias("archive_last"))
    left = live.select(*MESSAGE, sf.col("digest").alias("live_digest"), sf.lit(True).alias("is_live"))
    right = archived.select(
        *MESSAGE, sf.col("digest").alias("archive_digest"), sf.lit(True).alias("is_archived")
    )
    both = (
        left.join(right, list(MESSAGE), "full")
        .join(live_from.drop("live_stream"), queues, "left")
        .join(archived_to, queues, "left")
    )
    yet = sf.col("archive_last").isNull() | (sf.col("offset") > sf.col("archive_last"))
    gone = sf.col("offset") < sf.col("live_first")
    verdict = (
        sf.when(
            sf.col("is_archived").isNull(), sf.when(yet, "not_archived_yet").otherwise("missing_in_archive")
        )
        .when(sf.col("is_live").isNull(), sf.when(gone, "gone_by_retention").otherwise("missing_in_live"))
        .when(sf.col("live_digest") != sf.col("archive_digest"), "different")
        .otherwise("same")
    )
    return both.select(*PLACE, "is_live", "is_archived", verdict.alias("verdict")).unionByName(others)


def _of_the_same_stream(archived: DataFrame, live_from: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The archived messages of the live streams; and those of other streams, with their verdict. Archives of
    earlier versions have no stream ids: their messages are taken for those of the live streams.
    """
    known = archived.join(live_from.select("vhost", "queue", "live_stream"), ["vhost", "queue"], "left")
    is_other = sf.coalesce(sf.col("stream_id") != sf.col("live_stream"), sf.lit(False))
    others = known.filter(is_other).select(
        *PLACE,
        sf.lit(None).cast("boolean").alias("is_live"),
        sf.lit(True).alias("is_archived"),
        sf.lit("of_another_stream").alias("verdict"),
    )
    return known.filter(~is_other).drop("live_stream"), others


def by_range(verdicts: DataFrame, size: int = RANGE) -> DataFrame:
    """How many offsets have each verdict, in each range of offsets."""
    columns = [sf.count_if(sf.col("verdict") == name).alias(name) for name in VERDICTS]
    return (
        verdicts.groupBy("vhost", "queue", _range_of(size))
        .agg(sf.count("is_live").alias("live"), sf.count("is_archived").alias("archived"), *columns)
        .orderBy("vhost", "queue", "range")
    )


def check(options: argparse.Namespace) -> None:
    inputs.check(options)


def run(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    result = JobResult(title="Audit")
    source = inputs.source_of(options)
    archived = None
    # The archive is read before the live messages, so that messages in between count as not archived yet.
    if options.compared_archive:
        with progress.step("reading the archive"):
            messages = inputs.select(read_archive(spark, options.compared_archive), source.slice)
            archived = counted(messages, contents=options.contents).persist()
            in_archive = archived.agg(sf.sum("copies")).collect()[0][0] or 0
    live_messages = inputs.read(spark, source, headers=False, body=options.contents)
    slim = live_messages.select(*MESSAGE, "stream_id", "timestamp", *COMPARED).persist()
    counts = counted(slim, contents=options.contents).persist()
    try:
        with progress.step("reading"):
            tell_extents(result, collect(extents(slim)))
        _tell_order(result, counts, options, progress)
        if archived is not None:
            result.numbers["messages in the archive"] = in_archive
            _tell_archive(result, counts, archived, options, progress)
        return result
    finally:
        for frame in (slim, counts, archived):
            if frame is not None:
                frame.unpersist()


def _tell_order(
    result: JobResult, counts: DataFrame, options: argparse.Namespace, progress: ProgressLine
) -> None:
    with progress.step("gaps and duplicates"):
        holes, twice = collect(gaps(counts, options.range)), collect(duplicates(counts))
    result.numbers |= {
        "gaps": len(holes),
        "offsets missing in gaps": sum(whole(row[4]) for row in holes),
        "offsets there more than once": len(twice),
    }
    columns = ("vhost", "queue", "first missing", "last missing", "offsets")
    result.tables.append(top("Gaps", columns, holes))
    result.tables.append(top("Duplicates", ("vhost", "queue", "offset", "copies"), twice))
    result.ok = not twice and (options.allow_gaps or not holes)


def _tell_archive(
    result: JobResult,
    counts: DataFrame,
    archived: DataFrame,
    options: argparse.Namespace,
    progress: ProgressLine,
) -> None:
    verdicts = compared(counts, archived)
    harmful = [name for name in HARMFUL if not (options.allow_data_loss and name == "of_another_stream")]
    with progress.step("comparing"):
        rows = collect(by_range(verdicts, options.range))
        harm = collect(
            verdicts.filter(sf.col("verdict").isin(harmful)).select(*PLACE, "verdict").orderBy(*PLACE)
        )
        twice = collect(duplicates(archived))
    sums = {name: sum(whole(row[5 + i]) for row in rows) for i, name in enumerate(VERDICTS)}
    result.numbers |= {name.replace("_", " "): count for name, count in sums.items()}
    result.numbers["offsets in the archive more than once"] = len(twice)
    columns = (
        "vhost",
        "queue",
        "from offset",
        "live",
        "archived",
        *(name.replace("_", " ") for name in VERDICTS),
    )
    result.tables.append(top(f"Ranges of {options.range:,} offsets", columns, rows))
    result.tables.append(top("What is wrong", (*PLACE, "verdict"), harm))
    shown = [name for name in VERDICTS if sums[name]]
    labels = [name.replace("_", " ") for name in shown]
    result.plots.append(Bars("Offsets", labels, [float(sums[name]) for name in shown], "offsets"))
    result.ok = result.ok and not twice and not any(sums[name] for name in harmful)
