"""Totals over very many queues: messages, their bytes, and consumers."""

from __future__ import annotations

from warren.broker.queue import Queue
from warren.broker.queue_elsewhere import QueueElsewhere
from warren.broker.stream import Stream


class QueueTotals:
    """Sums over the queues that were added."""

    def __init__(self) -> None:
        self.queues = 0
        self.ready = 0
        self.ready_bytes = 0
        self.unacked = 0
        self.consumers = 0
        self.stream_lag_max = 0  # of the reader of a stream that is furthest behind

    def add(self, queues: list[Queue]) -> None:
        """Add these queues. Every scrape and every overview adds all queues of the broker
        (`benchmarks/operators.py` watches this).
        """
        for queue in queues:
            self.queues += 1
            if not queue.is_here:
                self._add_elsewhere(queue)
                continue
            self.ready += queue.length()
            self.ready_bytes += queue.body_bytes()
            self.unacked += queue.unacked
            if queue.is_consumed:
                self.consumers += len(queue.consumers)
            if isinstance(queue, Stream):
                self.stream_lag_max = max(self.stream_lag_max, *queue.lags().values(), 0)

    def _add_elsewhere(self, queue: Queue) -> None:
        """A queue counts with what its node has told of it."""
        figures = queue.figures if isinstance(queue, QueueElsewhere) else None
        if figures is not None:
            self.ready += figures.ready
            self.ready_bytes += figures.ready_bytes
            self.unacked += figures.unacked
            self.consumers += figures.consumers

    def __repr__(self) -> str:
        return f"<QueueTotals: {self.queues} queues, {self.ready} ready, {self.unacked} unacked>"
