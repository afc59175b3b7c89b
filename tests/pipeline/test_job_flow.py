"""flow against a plain computation over the same messages."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.messages import START, Message, message, some_messages, table
from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs.flow import start
from warren.pipeline.jobs.queries import follow
from warren.pipeline.jobs.windows import current, measured, totals, windows
from warren.pipeline.report.progress import ProgressLine

QUIET = ProgressLine(None)


def latency_ms(plain: Message) -> int | None:
    text = (plain["headers"] or {}).get("timestamp_in_ms", "")
    return int(plain["timestamp"].timestamp() * 1000) - int(text) if text.isdecimal() else None


def percentile(values: list[int], fraction: float) -> int | None:
    """The smallest value that at least this fraction of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)] if ordered else None


def figures(group: list[Message]) -> dict[str, object]:
    sizes = [len(m["body"]) for m in group]
    late = [value for m in group if (value := latency_ms(m)) is not None]
    offsets = [m["offset"] for m in group]
    found: dict[str, object] = {
        "messages": len(group), "bytes": sum(sizes), "size_max": max(sizes), "timed": len(late),
        "latency_max_ms": max(late, default=None), "first_offset": min(offsets), "last_offset": max(offsets),
    }  # fmt: skip
    for percent in (50, 95, 99):
        found[f"size_p{percent}"] = percentile(sizes, percent / 100)
        found[f"latency_p{percent}_ms"] = percentile(late, percent / 100)
    return found


def minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def test_windows_have_the_figures_of_their_messages(spark: SparkSession) -> None:
    messages = some_messages(1, 150)
    groups: dict[tuple[datetime, str, str], list[Message]] = defaultdict(list)
    for plain in messages:
        groups[minute(plain["timestamp"]), plain["queue"], plain["routing_key"]].append(plain)
    found = {}
    for row in windows(measured(table(spark, messages)), "1 minute").collect():
        values = row.asDict()
        start_time = values["start"].astimezone(UTC)
        assert values["day"] == start_time.date()
        assert values["messages_a_second"] == pytest.approx(values["messages"] / 60)
        assert values["end"].astimezone(UTC) - start_time == timedelta(minutes=1)
        found[start_time, values["queue"], values["routing_key"]] = values
    assert found.keys() == groups.keys()
    for key, group in groups.items():
        wanted = figures(group)
        assert {name: found[key][name] for name in wanted} == wanted


def test_totals_have_the_figures_of_a_queue(spark: SparkSession) -> None:
    messages = some_messages(2, 200)
    found = {
        row["queue"]: row.asDict() for row in totals(measured(table(spark, messages)), "queue").collect()
    }
    for queue in ("orders", "a b/c=d:%*", "7"):
        wanted = figures([m for m in messages if m["queue"] == queue])
        assert {name: found[queue][name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1772409000000", 1_000),
        ("1772409000", 1_000),
        ("2026-03-01T23:50:00Z", 1_000),
        ("true", None),
    ],
)
def test_publishers_time_may_be_ms_seconds_or_text(
    spark: SparkSession, text: str, wanted: int | None
) -> None:
    messages = table(spark, [message("q", 1, headers={"sent": text})])
    assert measured(messages, time_header="sent").collect()[0]["latency_ms"] == wanted


def test_publishers_time_is_the_property_where_there_is_no_header(spark: SparkSession) -> None:
    sent = START - timedelta(seconds=9)
    messages = table(
        spark,
        [
            message("q", 1, published_at=sent),
            message("q", 2, published_at=sent, headers={"timestamp_in_ms": "1772409000000"}),
            message("q", 3),
        ],
    )
    found = measured(messages).orderBy("offset").collect()
    assert [row["latency_ms"] for row in found] == [10_000, 2_000, None]
    by_publisher = measured(messages, event_time="published").orderBy("offset").collect()
    assert [row["timestamp"].timestamp() for row in by_publisher] == [
        sent.timestamp(),
        START.timestamp(),
        START.timestamp() + 3,
    ]


def test_stream_of_windows_ends_with_the_same_as_a_slice(spark: SparkSession, tmp_path: Path) -> None:
    messages = some_messages(3, 90)
    source, to = tmp_path / "source", str(tmp_path / "windows")
    for part in range(3):  # windows of one part go on in the next
        rows = [m for m in messages if m["offset"] % 3 == part]
        table(spark, rows).coalesce(1).write.mode("append").parquet(str(source))
        stream = spark.readStream.schema(table(spark, []).schema).parquet(str(source))
        summary = follow(start(measured(stream), to, watermark="1 hour"), QUIET, threading.Event())
        assert summary.rows == len(rows)
        assert summary.rows_late == 0
    columns = [
        "start",
        "queue",
        "routing_key",
        "messages",
        "bytes",
        "size_p95",
        "latency_p99_ms",
        "first_offset",
    ]
    once = windows(measured(table(spark, messages)), "1 minute").select(*columns)
    kept = current(spark.read.parquet(to)).select(*columns)
    order = columns[:3]
    assert kept.orderBy(*order).collect() == once.orderBy(*order).collect()


def test_stream_of_windows_refuses_a_checkpoint_that_is_not_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, to = tmp_path / "source", str(tmp_path / "windows")
    table(spark, some_messages(4, 5)).write.parquet(str(source))
    stream = spark.readStream.schema(table(spark, []).schema).parquet(str(source))
    follow(start(measured(stream), to), QUIET, threading.Event())
    with pytest.raises(PipelineError, match="--checkpoint"):
        start(measured(stream), to, checkpoint=str(tmp_path / "another"))
