"""A stream of messages that a test makes up, and its archive."""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.messages import Message, table
from warren.pipeline.jobs.archive import start
from warren.pipeline.jobs.queries import follow
from warren.pipeline.report.progress import ProgressLine

QUIET = ProgressLine(None)


class Recorded:
    """A directory of Parquet files as a stream of messages, and its archive."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.source = str(path / "source")
        self.to = str(path / "archive")

    def add(self, messages: list[Message]) -> None:
        table(self.spark, messages).coalesce(1).write.mode("append").parquet(self.source)

    def archive(self) -> int:
        stream = self.spark.readStream.schema(table(self.spark, []).schema).parquet(self.source)
        return follow(start(stream, self.to), QUIET, threading.Event()).rows


def places(frame: DataFrame) -> list[tuple[str, str, int]]:
    return sorted(
        (row["vhost"], row["queue"], row["offset"])
        for row in frame.select("vhost", "queue", "offset").collect()
    )
