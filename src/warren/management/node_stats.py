"""What a node has counted and uses, with rates and samples, under the names that RabbitMQ gives it.

    "fd_used": 60, "fd_used_details": {"rate": 0.4},
    "io_read_avg_time": 0.3, "io_read_avg_time_details": {"rate": 0.25}

Times are milliseconds. A round of the group commit writes and syncs in one, so that `io_write_…` and
`io_sync_…` both count rounds. What only RabbitMQ does is 0 here, for those who add it up.
"""

from __future__ import annotations

from warren.broker.history import History
from warren.management.message_stats import Row, Span, Stats
from warren.server.node_figures import NodeFigures

FIGURES = {
    "mem_used": "memory",
    "fd_used": "descriptors",
    "sockets_used": "sockets",
    "proc_used": "threads",
    "disk_free": "disk_free",
    "gc_num": "collections",
    "context_switches": "context_switches",
    "io_read_count": "reads",
    "io_read_bytes": "read_bytes",
    "io_write_count": "rounds",
    "io_write_bytes": "written_bytes",
    "io_sync_count": "rounds",
}
"""RabbitMQ's names, and those of `NodeFigures`."""
AVERAGES = {
    "io_read_avg_time": ("read_us", "reads"),
    "io_write_avg_time": ("round_us", "rounds"),
    "io_sync_avg_time": ("round_us", "rounds"),
}
"""RabbitMQ's names, and the figures that are divided: microseconds by a count."""
ALWAYS_0 = (
    "gc_bytes_reclaimed",  # Python's collector does not tell
    "io_seek_count",  # each read and write says where
    "io_seek_avg_time",
    "io_reopen_count",
    "mnesia_ram_tx_count",
    "mnesia_disk_tx_count",
    "msg_store_read_count",
    "msg_store_write_count",
    "queue_index_read_count",
    "queue_index_write_count",
)
PLACES = {name: place for place, name in enumerate(NodeFigures.NAMES)}
MICROSECONDS = 1_000  # in a millisecond


def node_stats(figures: NodeFigures, stats: Stats) -> Row:
    numbers = (*figures.counters(), *figures.gauges())
    span, history = stats.spans.node_stats, figures.history
    row: Row = {}
    for name, figure in FIGURES.items():
        place = PLACES[figure]
        row |= stats.numbers([name], [numbers[place]], history, span, first=place)
    for name, (time, count) in AVERAGES.items():
        row[name] = _average(numbers[PLACES[time]], numbers[PLACES[count]])
        row[f"{name}_details"] = _average_details(stats, history, PLACES[time], PLACES[count], span)
    for name in ALWAYS_0:
        row |= stats.numbers([name], [0], None, span)
    return row


def _average_details(stats: Stats, history: History | None, time: int, count: int, span: Span | None) -> Row:
    """Here `rate` is the average of the last tick, and `avg_rate` that of the whole span."""
    times, counts = (stats.details((place,), [history], span) for place in (time, count))
    details: Row = {"rate": _average(times["rate"], counts["rate"])}
    if span is None:
        return details
    samples = [
        {"sample": _average(taken["sample"], counted["sample"]), "timestamp": taken["timestamp"]}
        for taken, counted in zip(times["samples"], counts["samples"], strict=True)
    ]
    return details | {
        "samples": samples,
        "avg_rate": _average(times["avg_rate"], counts["avg_rate"]),
        "avg": sum(each["sample"] for each in samples) / len(samples),
    }


def _average(microseconds: float, count: float) -> float:
    return microseconds / count / MICROSECONDS if count else 0.0
