"""Measures messages in windows of time, for `flow`: functions from tables to tables."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from warren.pipeline.jobs.columns import (
    PERCENTILES,
    TIME_HEADER,
    percentiles,
    published_time,
    since_published_ms,
    utc_date,
)

WINDOW = "1 minute"
KEYS = ("vhost", "queue", "routing_key")


ARRIVED, PUBLISHED = "arrived", "published"


def measured(messages: DataFrame, *, time_header: str = TIME_HEADER, event_time: str = ARRIVED) -> DataFrame:
    """The columns that are measured. The column timestamp, which decides the window, is when the message
    arrived, or when it was published, as `event_time` says.
    """
    time = published_time(time_header) if event_time == PUBLISHED else sf.col("timestamp")
    return messages.select(
        *KEYS,
        "offset",
        time.alias("timestamp"),
        sf.coalesce(sf.octet_length("body"), sf.lit(0)).cast("long").alias("bytes"),
        since_published_ms(sf.col("timestamp"), time_header).alias("latency_ms"),
    )


def figures() -> list[Column]:
    """The aggregates over any group of measured messages."""
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
    """Replace the arrays of percentiles by a column for each percentile."""
    for index, percent in enumerate(PERCENTILES):
        name = f"p{percent * 100:.0f}"
        groups = groups.withColumn(f"size_{name}", sf.col("size")[index])
        groups = groups.withColumn(f"latency_{name}_ms", sf.col("latency")[index])
    return groups.drop("size", "latency")


def windows(sizes: DataFrame, window: str = WINDOW) -> DataFrame:
    """A row for each window, queue and routing key. A streaming table needs a watermark first."""
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
    """The latest row of each window, from a table that a streaming query has written."""
    newest = Window.partitionBy("start", "end", *KEYS).orderBy(sf.col("batch").desc())
    ranked = written.withColumn("_rank", sf.row_number().over(newest))
    return ranked.filter(sf.col("_rank") == 1).drop("_rank", "batch")
