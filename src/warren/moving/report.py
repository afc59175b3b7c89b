"""What the takeover of each queue has come to: the final table."""

from __future__ import annotations

from dataclasses import dataclass

from warren.client.api import Row
from warren.moving.drain import Moved
from warren.moving.queues import QueueInfo, differences


@dataclass(frozen=True)
class QueueReport:
    """A line of the final table."""

    vhost: str
    queue: str
    moved: int
    """Messages that this run has moved, or copied from a stream."""
    left: int
    """Messages that are still there."""
    differences: str
    """What is not the same here, and why messages are left, in words."""
    is_well: bool
    """Whether nothing is left, and no error came up."""

    def as_json(self) -> Row:
        return {
            "vhost": self.vhost,
            "queue": self.queue,
            "moved": self.moved,
            "left": self.left,
            "differences": self.differences,
        }


@dataclass
class Taken:
    """A queue, and how far its takeover has come."""

    there: QueueInfo
    here: QueueInfo | None
    """The queue of that name here; None if there is none."""
    reason: str | None
    """Why its messages are not moved; None if they are."""
    result: Moved
    unacked: int = 0
    """Messages that are out with consumers of the source, as it said last."""
    looks: int = 0
    """How often we have seen that for certain."""

    @property
    def key(self) -> tuple[str, str]:
        return self.there.vhost, self.there.name

    def report(self) -> QueueReport:
        notes = differences(self.there, self.here) + self._notes()
        is_well = not (self.result.left or self.result.problem or self.unacked)
        return QueueReport(*self.key, self.result.moved, self.result.left, "; ".join(notes), is_well)

    def _notes(self) -> list[str]:
        notes = []
        if self.there.is_stream and self.reason is None and not self.result.problem:
            notes.append("copied: the stream there keeps its messages")
        if self.result.rerouted:
            notes.append(f"messages that now come from the exchange warren.import…: {self.result.rerouted}")
        if self.result.problem:
            notes.append(self.result.problem)
        if self.reason:
            notes.append(self.reason)
        if self.unacked:
            notes.append(f"messages that are out with consumers there: {self.unacked}")
        return notes
