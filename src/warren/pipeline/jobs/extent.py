"""What a job has read: for each queue how many messages, from which offset to which, and of what time."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from warren.pipeline.jobs.rows import whole
from warren.pipeline.report.result import JobResult, Table, Value

COLUMNS = ("vhost", "queue", "messages", "first offset", "last offset", "first time", "last time")
MESSAGES = 2


def extents(messages: DataFrame) -> DataFrame:
    return (
        messages.groupBy("vhost", "queue")
        .agg(
            sf.count("*").alias("messages"),
            sf.min("offset").alias("first_offset"),
            sf.max("offset").alias("last_offset"),
            sf.min("timestamp").alias("first_time"),
            sf.max("timestamp").alias("last_time"),
        )
        .orderBy("vhost", "queue")
    )


def tell_extents(result: JobResult, rows: Sequence[Sequence[Value]], name: str = "Read") -> int:
    """Add the table and the number that every result begins with; returns how many messages were read."""
    count = sum(whole(row[MESSAGES]) for row in rows)
    result.numbers["messages read"] = count
    result.tables.append(Table(name, COLUMNS, rows))
    return count
