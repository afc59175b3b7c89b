"""dead-letters: in which queues messages died, why and how often; which go in circles; how long they lived.

A dead letter carries its deaths in x-death, which has an entry with a count for each queue and reason; a row
of `deaths` is one entry. The letter's timestamp is when it arrived in the queue where it is now. How long it
lived until then is known if the publisher sent its time, in a header or as the property timestamp, or if it
died only once, of its own expiration.

With --to, the causes of each day are written as a table, partitioned by the day on which the letters arrived.
A day is replaced as a whole, so read whole days.
"""

from __future__ import annotations

import argparse
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from warren.pipeline.jobs import inputs
from warren.pipeline.jobs.columns import PERCENTILES, TIME_HEADER, percentiles, since_published_ms, utc_date
from warren.pipeline.jobs.extent import extents, tell_extents
from warren.pipeline.jobs.numbers import positive
from warren.pipeline.jobs.rows import collect, top, whole
from warren.pipeline.jobs.tables import overwrite_partitions
from warren.pipeline.jobs.timeline import lines_by_time, window_for
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import Bars, JobResult, Value

ABOUT = "say what died where and of what, which messages go in circles, and how long they lived"
LOOPS_FROM = 3
CAUSE_COLUMNS = (
    "vhost", "died in", "reason", "published to", "messages", "deaths", "most", "first died", "last came"
)  # fmt: skip
LOOP_COLUMNS = ("vhost", "queue", "reason", "messages", "deaths", "most", "worst message")
LIFE_COLUMNS = ("vhost", "died in", "reason", "messages", "least", "p50", "p95", "p99", "most")
Rows: TypeAlias = list[list[Value]]

LETTER = (
    "vhost", "queue", "offset", "timestamp", "exchange", "routing_key", "message_id", "x_death", "life_ms"
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs.add_arguments(parser)
    add = parser.add_argument_group("how to look at it").add_argument
    add("--to", metavar="DIR", help="write the causes of each day there, as Parquet by day")
    add(
        "--loops",
        type=positive,
        default=LOOPS_FROM,
        metavar="N",
        help="more deaths in one queue than N are a loop",
    )
    add(
        "--time-header",
        default=TIME_HEADER,
        metavar="NAME",
        help="the header with the publisher's time (default: %(default)s)",
    )


def letters(messages: DataFrame, *, time_header: str = TIME_HEADER) -> DataFrame:
    """The messages that died at least once, with how long they lived; only the columns that are needed."""
    died = sf.size("x_death") > 0
    newest = sf.col("x_death")[0]
    own_expiration = sf.when(
        (sf.size("x_death") == 1) & (newest["count"] == 1) & (newest["reason"] == "expired"),
        newest["original_expiration"].try_cast("long"),
    )
    life = sf.coalesce(since_published_ms(sf.col("timestamp"), time_header), own_expiration)
    return messages.filter(died).withColumn("life_ms", life).select(*LETTER)


def deaths(dead: DataFrame) -> DataFrame:
    """A row for each entry of x-death; `place` 0 is the newest."""
    kept = ("vhost", "queue", "offset", "timestamp", "routing_key", "message_id", "life_ms")
    entries = dead.select(*kept, sf.posexplode("x_death").alias("place", "death"))
    return entries.select(
        *kept,
        "place",
        utc_date(sf.col("timestamp")).alias("day"),
        sf.col("death.queue").alias("died_in"),
        sf.col("death.reason").alias("reason"),
        sf.col("death.exchange").alias("published_to"),
        sf.col("death.count").alias("count"),
        sf.col("death.time").alias("died_at"),
    )


def causes(entries: DataFrame, *by: str) -> DataFrame:
    """A row for each queue and reason: how many messages died so, and how often. `by` are columns to group by
    as well.
    """
    return (
        entries.groupBy(*by, "vhost", "died_in", "reason", "published_to")
        .agg(
            sf.count("*").alias("messages"),
            sf.sum("count").alias("deaths"),
            sf.max("count").alias("most"),
            sf.min("died_at").alias("first_died"),
            sf.max("timestamp").alias("last_came"),
        )
        .orderBy(*by, sf.desc("deaths"), "vhost", "died_in", "reason", "published_to")
    )


def loops(entries: DataFrame, more_than: int) -> DataFrame:
    """Queues in which the same messages died again and again."""
    return (
        entries.filter(sf.col("count") > more_than)
        .groupBy("vhost", "died_in", "reason")
        .agg(
            sf.count("*").alias("messages"),
            sf.sum("count").alias("deaths"),
            sf.max("count").alias("most"),
            sf.max_by(sf.coalesce("message_id", sf.concat_ws(" ", "queue", "offset")), "count").alias(
                "worst"
            ),
        )
        .orderBy(sf.desc("deaths"), "vhost", "died_in", "reason")
    )


def times_to_death(entries: DataFrame) -> DataFrame:
    """How long letters lived, in milliseconds, by where they died last; without those of unknown life."""
    p50, p95, p99 = (sf.col("p")[i].alias(f"p{PERCENTILES[i] * 100:.0f}_ms") for i in range(len(PERCENTILES)))
    return (
        entries.filter((sf.col("place") == 0) & sf.col("life_ms").isNotNull())
        .groupBy("vhost", "died_in", "reason")
        .agg(
            sf.count("*").alias("messages"),
            sf.min("life_ms").alias("min_ms"),
            percentiles(sf.col("life_ms")).alias("p"),
            sf.max("life_ms").alias("max_ms"),
        )
        .select("vhost", "died_in", "reason", "messages", "min_ms", p50, p95, p99, "max_ms")
        .orderBy("vhost", "died_in", "reason")
    )


def over_time(entries: DataFrame, window: str) -> DataFrame:
    """How many letters arrived in each window of time, by where they died last."""
    return (
        entries.filter(sf.col("place") == 0)
        .groupBy(sf.window("timestamp", window).alias("w"), "died_in", "reason")
        .agg(sf.count("*").alias("messages"))
        .select(
            sf.col("w.start").alias("start"),
            sf.concat_ws(", ", "died_in", "reason").alias("cause"),
            "messages",
        )
        .orderBy("start", "cause")
    )


def write_days(entries: DataFrame, to: str) -> None:
    overwrite_partitions(causes(entries, "day").coalesce(1), to, ["day"])


def check(options: argparse.Namespace) -> None:
    inputs.check(options)


def run(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    messages = inputs.read(spark, inputs.source_of(options), body=False).drop("body").persist()
    try:  # read once: a queue that is read twice has changed in between
        return _result(messages, options, progress)
    finally:
        messages.unpersist()


def _result(messages: DataFrame, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    result = JobResult(title="Dead letters")
    with progress.step("reading"):
        extent = collect(extents(messages))
        read = tell_extents(result, extent)
    dead = letters(messages, time_header=options.time_header)
    entries = deaths(dead)
    with progress.step("causes"):
        found = collect(causes(entries))
        circles = collect(loops(entries, options.loops))
    with progress.step("times"):
        lives = collect(times_to_death(entries))
        window = window_for(extent)
        timeline = collect(over_time(entries, window))
        dead_count = dead.count()
    result.numbers |= {
        "dead letters": dead_count,
        "messages that never died": read - dead_count,
        "deaths": sum(whole(row[5]) for row in found),
        f"messages that died more than {options.loops} times in a queue": sum(
            whole(row[3]) for row in circles
        ),
    }
    if options.to:
        with progress.step("writing"):
            write_days(entries, options.to)
        result.notes.append(f"The causes of each day are in {options.to}.")
    _tell(result, options, found, circles, lives)
    result.plots += lines_by_time("Dead letters", timeline, window)
    return result


def _tell(result: JobResult, options: argparse.Namespace, found: Rows, circles: Rows, lives: Rows) -> None:
    more = f"more than {options.loops} deaths in one queue"
    note = (
        f"From publishing (header {options.time_header}, the property timestamp in whole seconds, or the "
        "message's own expiration) to the dead letter."
    )
    result.tables += [
        top("Causes", CAUSE_COLUMNS, found),
        top(f"Loops: {more}", LOOP_COLUMNS, circles),
        top("Time to death, in ms", LIFE_COLUMNS, lives, note=note),
    ]
    labels, values = [f"{row[1]}, {row[2]}" for row in found], [float(whole(row[5])) for row in found]
    result.plots.append(Bars("Deaths by queue and reason", labels, values, "deaths"))
