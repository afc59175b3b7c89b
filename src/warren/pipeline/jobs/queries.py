"""Watching a streaming query until it ends, or until somebody asks it to."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from pyspark.sql.streaming.query import StreamingQuery

from warren.pipeline.report.progress import Progress
from warren.pipeline.report.result import Table

POLL_SECONDS = 1


@dataclass
class Summary:
    """What a query has done in this run. Offsets are those of the source, by queue."""

    batches: int = 0
    rows: int = 0
    rows_late: int = 0
    rows_a_second: float = 0.0
    first: dict[str, int] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def take_in(self, query: StreamingQuery) -> None:
        """Spark keeps the last hundred batches; it is asked more often than it makes these."""
        for progress in query.recentProgress:
            if progress.batchId in self.seen or not progress.sources:
                continue
            self.seen.add(progress.batchId)
            source = progress.sources[0]
            for queue, offset in offsets_of(source.startOffset).items():
                self.first.setdefault(queue, offset)
            self.next.update(offsets_of(source.endOffset))
            self.batches += progress.numInputRows > 0
            self.rows += progress.numInputRows
            self.rows_late += sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
            self.rows_a_second = progress.processedRowsPerSecond

    def __str__(self) -> str:
        return f"{self.rows:,} messages in {self.batches:,} batches, {self.rows_a_second:,.0f} a second"

    @property
    def missing(self) -> int:
        """Offsets in the range without a message: lost to damage, or to retention if that was allowed."""
        span = sum(offset - self.first.get(queue, 0) for queue, offset in self.next.items())
        return max(0, span - self.rows)

    def table(self) -> Table:
        rows = [
            (queue, offset - self.first.get(queue, 0), self.first.get(queue, 0), offset - 1)
            if offset > self.first.get(queue, 0)
            else (queue, 0, None, None)
            for queue, offset in sorted(self.next.items())
        ]
        return Table("Read", ("queue", "offsets", "first offset", "last offset"), rows)


def offsets_of(text: str | None) -> dict[str, int]:
    """A source's offset as Spark shows it: JSON with a number for each queue."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(queue): offset for queue, offset in found.items() if isinstance(offset, int)}


def follow(query: StreamingQuery, progress: Progress, stop: threading.Event) -> Summary:
    """Until the query is done, fails (which raises), or `stop` is set."""
    summary = Summary()
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
