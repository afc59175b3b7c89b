"""The report of `flow`: tables by queue and by routing key, and plots of rates, latencies and sizes."""

from __future__ import annotations

import argparse
import math

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from warren.pipeline.jobs.extent import extents, tell_extents
from warren.pipeline.jobs.queries import Summary
from warren.pipeline.jobs.rows import collect, top, whole
from warren.pipeline.jobs.timeline import STEPS_MAX, lines_by_time, window_for
from warren.pipeline.jobs.windows import totals
from warren.pipeline.report.axis import round_step
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import HistogramPlot, JobResult, Plot, Table, Value
from warren.pipeline.report.words import byte_size

SIZES = ("messages", "bytes", "size_p50", "size_p95", "size_p99", "size_max")
LATENCIES = ("timed", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "latency_max_ms")
OFFSETS = ("first_offset", "last_offset")
HEADINGS = (
    "messages", "bytes", "size p50", "p95", "p99", "max", "with time", "latency p50", "p95", "p99", "max"
)  # fmt: skip
BINS = 24
KEYS_SHOWN_MAX = 30


def report_slice(
    sizes: DataFrame,
    windows: DataFrame,
    options: argparse.Namespace,
    progress: ProgressLine,
) -> JobResult:
    result = JobResult(title="Flow")
    with progress.step("reading"):
        extent = collect(extents(sizes))
        tell_extents(result, extent)
    with progress.step("totals"):
        result.tables.append(_group_table(sizes, "By queue", "vhost", "queue"))
        keys = _group_table(sizes, "By queue and routing key", "vhost", "queue", "routing_key")
        result.tables.append(keys)
    with progress.step("windows"):
        result.numbers["bytes"] = byte_size(sum(whole(row[3]) for row in result.tables[1].rows))
        result.numbers[f"windows of {options.window}"] = windows.count()
        timed = sum(whole(row[8]) for row in result.tables[1].rows)
        result.numbers["messages with a publisher's time"] = timed
        result.tables.append(busiest(windows))
    with progress.step("plots"):
        result.plots += _rates(sizes, window_for(extent))
        result.plots += _histogram(sizes, "bytes", "Sizes", "bytes")
        result.plots += _histogram(sizes, "latency_ms", "Latencies", "ms")
    if not timed:
        note = (
            f"No message has the header {options.time_header}, nor the property timestamp: there are no "
            "latencies (see --time-header)."
        )
        result.notes.append(note)
    return result


def _group_table(sizes: DataFrame, name: str, *by: str) -> Table:
    rows = collect(totals(sizes, *by).select(*by, *SIZES, *LATENCIES))
    headings = [column.replace("_", " ") for column in by]
    return top(name, [*headings, *HEADINGS], rows, most=KEYS_SHOWN_MAX, note="Latencies are in ms.")


def busiest(windows: DataFrame, most: int = 20) -> Table:
    columns = ("start", "vhost", "queue", "routing_key", "messages", "messages_a_second", "bytes", *OFFSETS)
    order = (sf.desc("messages"), "start", "vhost", "queue", "routing_key")
    rows = collect(windows.select(*columns).orderBy(*order).limit(most))
    return Table("Busiest windows", [column.replace("_", " ") for column in columns], rows)


def _rates(sizes: DataFrame, window: str) -> list[Plot]:
    counted = sizes.groupBy(sf.window("timestamp", window).alias("w"), "queue").agg(
        sf.count("*").alias("messages"), sf.percentile_approx("latency_ms", 0.99).alias("late")
    )
    rows = collect(counted.select("w.start", "queue", "messages", "late").orderBy("start", "queue"))
    plots: list[Plot] = [*lines_by_time("Messages", [row[:3] for row in rows], window)]
    late = [[row[0], row[1], row[3]] for row in rows if row[3] is not None]
    return [*plots, *lines_by_time("Latency, 99th percentile", late, window, "ms", absent=None)]


def _histogram(sizes: DataFrame, column: str, title: str, unit: str) -> list[Plot]:
    """A histogram with equal steps up to the 99th percentile: outliers would squeeze all else in a bar."""
    value = sf.col(column)
    known = sizes.filter(value.isNotNull())
    bounds = known.agg(sf.min(value), sf.percentile_approx(value, 0.99), sf.count("*")).collect()[0]
    if not bounds[2]:
        return []
    step = round_step(max(bounds[1] - bounds[0], 1) / BINS)
    low = math.floor(bounds[0] / step)
    bins = math.floor(bounds[1] / step) - low + 1
    place = (sf.floor(value / sf.lit(step)) - sf.lit(low)).cast("int")
    rows = known.groupBy(place.alias("bin")).count().filter(sf.col("bin") < bins).collect()
    counts = {row[0]: row[1] for row in rows}
    edges = [(low + i) * step for i in range(bins + 1)]
    shown = [counts.get(i, 0) for i in range(bins)]
    return [HistogramPlot(f"{title}, up to the 99th percentile", edges, shown, unit)]


def report_stream(
    current: DataFrame | None, summary: Summary, options: argparse.Namespace, progress: ProgressLine
) -> JobResult:
    result = JobResult(title=f"Flow, kept in {options.to}")
    result.numbers |= {
        "messages read": summary.rows,
        "messages too late for their window": summary.rows_late,
        "offsets without a message": summary.missing,
        "batches": summary.batches,
    }
    result.tables.append(summary.table())
    if current is not None:
        with progress.step("looking at the result"):
            result.numbers["windows in the table"] = current.count()
            result.tables.append(busiest(current))
            rows = _recent(current)
        result.plots += lines_by_time("Messages", rows, options.window)
    return result


def _recent(current: DataFrame) -> list[list[Value]]:
    """Rows for the last windows, as many as a plot can show."""
    per_queue = current.groupBy("start", "queue").agg(sf.sum("messages").alias("messages"))
    starts = [
        row[0]
        for row in per_queue.select("start").distinct().orderBy(sf.desc("start")).limit(STEPS_MAX).collect()
    ]
    return collect(per_queue.filter(sf.col("start") >= sf.lit(min(starts))).orderBy("start", "queue"))
