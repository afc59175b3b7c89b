"""One task of a replay: publishes the wanted rows, and counts by queue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark import TaskContext

from warren.amqp.properties import decode_properties
from warren.pipeline.publisher import Unpublished
from warren.pipeline.sink.headers import DEDUPLICATION_HEADER
from warren.pipeline.sink.options import WriteOptions
from warren.pipeline.sink.task import write_rows

WANTED = "wanted"
COUNTS = (
    "vhost string, queue string, published long, skipped long, failed long, "
    "first_offset long, last_offset long, first_time timestamp, last_time timestamp"
)
TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("vhost", pa.string()),
        ("queue", pa.string()),
        ("published", pa.int64()),
        ("skipped", pa.int64()),
        ("failed", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("first_time", TIME),
        ("last_time", TIME),
    ]
)
LIMITS = [("offset", "count"), *((name, what) for name in ("offset", "timestamp") for what in ("min", "max"))]
SOURCE = re.compile(r"(.*)/\d+(?:/p\d+)?", re.DOTALL)


@dataclass
class Count:
    """How many messages of one queue were published."""

    vhost: str
    queue: str
    published: int = 0
    skipped: int = 0  # not wanted
    failed: int = 0  # published, but no queue took them
    first_offset: int | None = None  # this and the following: of the published ones; None if there are none
    last_offset: int | None = None
    first_time: datetime | None = None
    last_time: datetime | None = None

    def add(self, count: int, offsets: tuple[int, int], times: tuple[datetime, datetime]) -> None:
        first, last = offsets
        self.published += count
        self.first_offset = first if self.first_offset is None else min(first, self.first_offset)
        self.last_offset = last if self.last_offset is None else max(last, self.last_offset)
        self.first_time = min(times[0], self.first_time or times[0])
        self.last_time = max(times[1], self.last_time or times[1])


class Tally:
    """Counts the rows that pass through it, by queue."""

    def __init__(self) -> None:
        self._counts: dict[str, Count] = {}

    def pass_wanted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._look_at(batch)
            wanted = batch.filter(batch.column(WANTED))
            if wanted.num_rows:
                yield wanted

    def _look_at(self, batch: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([batch])
        for row in table.group_by(["vhost", "queue", WANTED]).aggregate(LIMITS).to_pylist():
            vhost, queue = row["vhost"], row["queue"]
            count = self._counts.setdefault(f"{vhost}/{queue}", Count(vhost, queue))
            if row[WANTED]:
                times = row["timestamp_min"], row["timestamp_max"]
                count.add(row["offset_count"], (row["offset_min"], row["offset_max"]), times)
            else:
                count.skipped += row["offset_count"]

    def on_failure(self, failure: Unpublished) -> None:
        headers = decode_properties(failure.message.properties).headers or {}
        source = SOURCE.fullmatch(str(headers[DEDUPLICATION_HEADER]))
        assert source is not None, "replay itself wrote this header"
        self._counts[source[1]].failed += 1

    def batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([vars(count) for count in self._counts.values()], schema=SCHEMA)


def publish_batches(
    batches: Iterator[pa.RecordBatch], *, options: WriteOptions, name: str
) -> Iterator[pa.RecordBatch]:
    """For Spark's `mapInArrow`: takes rows, publishes those that are wanted, and gives counts."""
    context = TaskContext.get()
    assert context is not None, "this runs in a task"
    tally = Tally()
    part = f"{name}/{context.partitionId()}"
    write_rows(tally.pass_wanted(batches), options, part, on_failure=tally.on_failure)
    yield tally.batch()
