"""Counts of messages: what has gone through a queue, an exchange, a channel or a vhost so far.

A count is one addition on the path of a message. The others are worked out when somebody asks: of all that
was `delivered`, what was neither `got` nor without acknowledgement went to consumers that acknowledge.
"""

from __future__ import annotations

from dataclasses import dataclass

FIGURES = (
    "publish",
    "publish_out",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "redeliver",
    "ack",
)
"""RabbitMQ's names, in the order of `Tally.figures`."""
OCTETS = ("recv_oct", "send_oct")
"""The bytes that clients sent and got. In the histories of connections and vhosts they follow `FIGURES`."""


class Tally:
    """All counts only go up. Which of them are used depends on what they are of."""

    def __init__(self) -> None:
        self.published = 0  # by clients; of a queue or exchange: what came in
        self.routed = 0  # copies of these that queues got
        self.with_confirms = 0  # of those published: on channels with confirms
        self.confirmed = 0
        self.returned = 0  # mandatory, and without a queue
        self.dropped = 0  # without a queue
        self.delivered = 0  # to consumers and by basic.get, redeliveries included
        self.delivered_no_ack = 0  # of these: they count as acknowledged
        self.got = 0  # of those delivered: by basic.get
        self.got_no_ack = 0  # of these: they count as acknowledged
        self.got_empty = 0  # basic.get that found nothing
        self.redelivered = 0  # of those delivered: not for the first time
        self.acked = 0

    def figures(self) -> tuple[int, ...]:
        """The counts that `FIGURES` names."""
        consumed_no_ack = self.delivered_no_ack - self.got_no_ack
        return (
            self.published,
            self.routed,
            self.confirmed,
            self.returned,
            self.dropped,
            self.delivered - self.got - consumed_no_ack,
            consumed_no_ack,
            self.got - self.got_no_ack,
            self.got_no_ack,
            self.got_empty,
            self.redelivered,
            self.acked,
        )

    def add(self, other: Tally) -> None:
        self.published += other.published
        self.routed += other.routed
        self.with_confirms += other.with_confirms
        self.confirmed += other.confirmed
        self.returned += other.returned
        self.dropped += other.dropped
        self.delivered += other.delivered
        self.delivered_no_ack += other.delivered_no_ack
        self.got += other.got
        self.got_no_ack += other.got_no_ack
        self.got_empty += other.got_empty
        self.redelivered += other.redelivered
        self.acked += other.acked

    def __repr__(self) -> str:
        return f"<Tally: {self.published} published, {self.delivered} delivered>"


@dataclass
class Bytes:
    """What went over one connection, or over several."""

    received: int = 0
    sent: int = 0
    reads: int = 0  # that brought what was received
    writes: int = 0

    def add(self, other: Bytes) -> None:
        self.received += other.received
        self.sent += other.sent
        self.reads += other.reads
        self.writes += other.writes


class VhostTally:
    """The counts of a vhost, also of what is gone. Channels count what clients publish, queues what they
    deliver, each for its type of queue.
    """

    def __init__(self) -> None:
        self.clients = Tally()
        self.by_queue_type: dict[str, Tally] = {}
        self.declared_queues = 0  # how often clients have declared one
        self.bytes = Bytes()  # of connections that are closed

    def of_type(self, queue_type: str) -> Tally:
        return self.by_queue_type.setdefault(queue_type, Tally())

    def total(self) -> Tally:
        total = Tally()
        total.add(self.clients)
        for tally in self.by_queue_type.values():
            total.add(tally)
        return total

    def add(self, other: VhostTally) -> None:
        self.clients.add(other.clients)
        self.declared_queues += other.declared_queues
        self.bytes.add(other.bytes)
        for queue_type, tally in other.by_queue_type.items():
            self.of_type(queue_type).add(tally)
