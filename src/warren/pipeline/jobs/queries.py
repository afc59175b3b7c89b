"""Follows a streaming query until it ends, or until a signal asks it to."""

from __future__ import annotations

import json
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import FrameType

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import LinePlot, Series, Table, Value

POLL_SECONDS = 1
HISTORY_MAX = 500
RATE_SPAN = timedelta(minutes=1)
WRITING_OFFSETS = "walCommit"  # Spark's name for writing a batch's offsets to the checkpoint


@dataclass
class Summary:
    """What a query has done in this run. Offsets are those of the source, by queue."""

    initial: Mapping[str, int] = field(default_factory=dict)
    """Where the query's first batch ever begins, which Spark does not report."""
    batches: int = 0  # with messages
    rows: int = 0
    rows_late: int = 0  # dropped, since they came after the watermark
    first: dict[str, int] = field(default_factory=dict)  # the first offsets that were read
    next: dict[str, int] = field(default_factory=dict)  # the next offsets to read
    seen: set[int] = field(default_factory=set)  # ids of the batches that are counted
    history: deque[tuple[datetime, int]] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))
    """When each of the last batches began, and how many messages it had."""
    ends: deque[tuple[datetime, dict[str, int]]] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))
    """Where the streams ended at each of the last batches."""

    def take_in(self, query: StreamingQuery) -> None:
        """Count the batches that are new. Spark remembers the last hundred: this is called far more often."""
        for progress in query.recentProgress:
            if progress.batchId not in self.seen and progress.sources:
                self.seen.add(progress.batchId)
                self._add(progress)

    def _add(self, progress: StreamingQueryProgress) -> None:
        source = progress.sources[0]
        begin = self.initial if source.startOffset in {None, "null"} else offsets_of(source.startOffset)
        if _was_written_before(progress):
            begin = offsets_of(source.endOffset)
        self.first = {**begin, **self.first}
        self.next.update(offsets_of(source.endOffset))
        self.batches += progress.numInputRows > 0
        self.rows += progress.numInputRows
        self.history.append((datetime.fromisoformat(progress.timestamp), progress.numInputRows))
        self.rows_late += sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
        latest = offsets_of(source.latestOffset)
        if latest:
            self.ends.append((datetime.fromisoformat(progress.timestamp), latest))

    def __str__(self) -> str:
        told = [f"{self.rows:,} messages in {self.batches:,} batches"]
        if self.rate_in is not None:
            told.append(f"{self.rate_in:,.0f} a second come in")
        if self.lag is not None:
            told.append(f"{self.lag:,} behind")
        return ", ".join(told)

    @property
    def rate_in(self) -> float | None:
        """How many messages a second arrive in the streams, over the last minute or so. It is not the rate at
        which the query reads, which is higher while it catches up.
        """
        if not self.ends:
            return None
        now, ends = self.ends[-1]
        since, earlier = next((at, e) for at, e in self.ends if now - at <= RATE_SPAN)
        if since == now:
            return None
        came = sum(offset - earlier[queue] for queue, offset in ends.items() if queue in earlier)
        return max(0, came) / (now - since).total_seconds()

    @property
    def lag(self) -> int | None:
        """How many messages were not read yet when Spark last looked."""
        if not self.ends:
            return None
        return sum(max(0, end - self.next.get(queue, end)) for queue, end in self.ends[-1][1].items())

    @property
    def missing(self) -> int | None:
        """Offsets in the range without a message: lost to damage, or to retention if that is allowed."""
        if not self.next.keys() <= self.first.keys():
            return None
        return max(0, sum(offset - self.first[queue] for queue, offset in self.next.items()) - self.rows)

    def plot(self) -> LinePlot:
        """How many messages each of the last batches had."""
        counts = [float(rows) for _, rows in self.history]
        times = [began for began, _ in self.history]
        return LinePlot("Messages by batch", times, [Series("messages", counts)], "messages")

    def table(self) -> Table:
        rows = [self._row(queue, offset) for queue, offset in sorted(self.next.items())]
        return Table("Read", ("queue", "offsets", "first offset", "last offset"), rows)

    def _row(self, queue: str, end: int) -> tuple[Value, ...]:
        first = self.first.get(queue)
        if first is None:
            return queue, None, None, end - 1
        return (queue, end - first, first, end - 1) if end > first else (queue, 0, None, None)


def _was_written_before(progress: StreamingQueryProgress) -> bool:
    """Whether a killed run has written this batch, but not its commit. Then Spark runs the batch again: its
    offsets are in the checkpoint already, and no rows are read, since the sink has them.
    """
    return progress.numInputRows == 0 and WRITING_OFFSETS not in progress.durationMs


def offsets_of(text: str | None) -> dict[str, int]:
    """A source's offset as Spark shows it: JSON with a number for each queue."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(queue): offset for queue, offset in found.items() if isinstance(offset, int)}


def follow(
    query: StreamingQuery,
    progress: ProgressLine,
    stop: threading.Event,
    initial: Mapping[str, int] | None = None,
) -> Summary:
    """Wait until the query is done, fails (which raises), or `stop` is set; then stop it."""
    summary = Summary(initial or {})
    with progress.step(query.name or "running", lambda: str(summary)):
        try:
            while not query.awaitTermination(POLL_SECONDS):
                summary.take_in(query)
                if stop.is_set():
                    break
        finally:
            query.stop()
        summary.take_in(query)
    return summary


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that a query can end in good order."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
