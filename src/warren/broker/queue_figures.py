"""What is counted of a queue, as the node where it lives tells the others of its cluster."""

from __future__ import annotations

from typing import NamedTuple

from warren.broker.tally import Tally


class QueueFigures(NamedTuple):
    """All are numbers. The last ones are those of `Tally` that queues count."""

    ready: int
    ready_bytes: int
    held: int  # of those ready: in memory
    held_bytes: int
    unacked: int
    unacked_bytes: int  # of those that consumers hold, and not of those that basic.get took
    consumers: int
    has_room: int  # whether one of the consumers can take a message now
    published: int
    delivered: int
    delivered_no_ack: int
    got: int
    got_no_ack: int
    got_empty: int
    redelivered: int
    acked: int

    def goes_on_from(self, before: QueueFigures) -> bool:
        """Whether the same object has counted both. Another leader of a queue counts from 0 on."""
        return all(new >= old for new, old in zip(self[COUNTS:], before[COUNTS:], strict=True))

    def put_into(self, tally: Tally) -> None:
        tally.published = self.published
        tally.delivered = self.delivered
        tally.delivered_no_ack = self.delivered_no_ack
        tally.got = self.got
        tally.got_no_ack = self.got_no_ack
        tally.got_empty = self.got_empty
        tally.redelivered = self.redelivered
        tally.acked = self.acked


COUNTS = QueueFigures._fields.index("published")  # from here on numbers only go up
