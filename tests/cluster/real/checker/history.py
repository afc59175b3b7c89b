"""What clients did and saw during a run, with times of one clock: that of this machine, as logs have it.

A message that is published again, because nobody knows what became of it, is another message here: its name
says which attempt it was. So each name is sent to the broker once, and whatever comes of it twice is the
broker's doing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    CONFIRMED = "confirmed"
    NACKED = "nacked"  # the broker could not take it: it may be there all the same
    UNKNOWN = "unknown"  # the channel ended before the broker said anything


@dataclass(slots=True)
class Publish:
    """A message that was sent once, on one channel."""

    message: str
    queue: str
    channel: str  # on which it was sent. Messages of a channel are in the history in their order
    invoked: float  # just before it was sent
    priority: int = 0
    outcome: Outcome = Outcome.UNKNOWN
    ended: float = 0.0  # just after the outcome was heard

    def end(self, outcome: Outcome, now: float) -> None:
        self.outcome, self.ended = outcome, now


@dataclass(slots=True)
class Delivery:
    """A message as a consumer, or a reader of a stream, got it."""

    message: str
    queue: str
    consumer: str  # one subscription: a consumer that connects again has another one
    at: float
    redelivered: bool = False
    acked: float | None = None  # when the ack was about to be sent
    offset: int | None = None  # in a stream


@dataclass(slots=True)
class Term:
    """A node opened a shard as its leader."""

    shard: int
    epoch: int
    node: str
    at: float


@dataclass(slots=True)
class FaultTold:
    """A fault that was made, or healed."""

    at: float
    kind: str
    what: str


@dataclass(slots=True)
class History:
    publishes: list[Publish] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    ends: dict[str, float] = field(default_factory=dict)  # when each subscription ended
    terms: list[Term] = field(default_factory=list)
    faults: list[FaultTold] = field(default_factory=list)
    shard_of: dict[str, int] = field(default_factory=dict)  # of each queue

    def of_queue(self, queue: str) -> History:
        """The part of it that is about one queue, or stream."""
        shard = self.shard_of.get(queue)
        return History(
            publishes=[each for each in self.publishes if each.queue == queue],
            deliveries=[each for each in self.deliveries if each.queue == queue],
            ends=self.ends,
            terms=[each for each in self.terms if each.shard == shard],
            faults=self.faults,
            shard_of=self.shard_of,
        )

    def save(self, path: Path) -> None:
        """One line for each event, in the order of time."""
        lines = [
            *_lines("publish", self.publishes, "invoked"),
            *_lines("delivery", self.deliveries, "at"),
            *_lines("term", self.terms, "at"),
            *_lines("fault", self.faults, "at"),
            *((at, {"event": "end", "consumer": consumer, "at": at}) for consumer, at in self.ends.items()),
        ]
        lines.sort(key=lambda line: line[0])
        path.write_text("".join(json.dumps(content) + "\n" for _, content in lines))


def _lines(
    event: str, found: Iterable[Publish | Delivery | Term | FaultTold], time: str
) -> Iterable[tuple[float, dict[str, object]]]:
    for each in found:
        yield getattr(each, time), {"event": event, **asdict(each)}
