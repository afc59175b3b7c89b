"""What nodes say to each other, as plain values; `wire.py` has their bytes.

Hello, beacons, echoes, acks, farewells, letters and figures are of a pair of nodes; the others belong to one
shard. All that a leader has for one follower of a shard is one numbered line of batches, a session. The
follower opens it by an inventory.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from warren.broker.queue_figures import QueueFigures
from warren.cluster.config import RunId, StoreId
from warren.storage.replication import LogChange, LogId, SegmentState


class Hello(NamedTuple):
    """The first thing that either end of a link says."""

    cluster: str  # the id of the cluster; nodes of another one are refused
    store: StoreId
    run: RunId
    lowest: int  # version of this protocol that the node speaks
    highest: int


class Beacon(NamedTuple):
    """A node leads these shards, in these epochs."""

    sent_at: float  # by the sender's clock
    terms: tuple[tuple[int, int], ...]  # shard and epoch


class Echo(NamedTuple):
    """A node has heard a beacon, and knows of no later epoch of these shards."""

    sent_at: float  # as the beacon said
    terms: tuple[tuple[int, int], ...]


class Inventory(NamedTuple):
    """A follower opens a session with what it has. A long inventory has several pages."""

    shard: int
    epoch: int
    session: int  # never used again
    logs: tuple[tuple[LogId, tuple[SegmentState, ...]], ...]
    is_last: bool  # page


class Refused(NamedTuple):
    """A node that was asked for a session does not lead the shard; it knows of this epoch."""

    shard: int
    epoch: int


class Batch(NamedTuple):
    """Changes for a follower, in a session."""

    shard: int
    epoch: int  # of the leader
    session: int  # as the follower has numbered it
    number: int  # in its session, from 1 on without a gap
    changes: tuple[LogChange, ...]  # to be applied in order
    in_step: bool  # with this batch the follower has all that the leader has


class Ack(NamedTuple):
    """All batches of a session up to this number are synced."""

    shard: int
    epoch: int
    session: int
    number: int


class Acks(NamedTuple):
    """All acks of a turn for one node."""

    acks: tuple[Ack, ...]


class Farewell(NamedTuple):
    """The sender's process is about to end: leaders should count it out while it still acks."""


class Letter(NamedTuple):
    """A message that a node itself publishes, such as a dead letter."""

    exchange: bytes  # a short string as AMQP has it, with its length octet
    routing_key: bytes  # the same
    properties: bytes  # as AMQP has them
    body: bytes
    persistent: bool
    died: bool  # whether it was dead-lettered


class Letters(NamedTuple):
    """Letters for a queue that the receiver leads, if the sender is right."""

    line: int  # of all letters of the sender for this queue, by chance
    queue: int  # its number
    vhost: str
    name: str  # of the queue
    settled: int  # up to this number the sender knows that letters are done with
    first: int  # the number of the first letter here; the others follow it without a gap
    letters: tuple[Letter, ...]


class LettersDone(NamedTuple):
    """What a node has done with a line of letters."""

    line: int
    up_to: int  # all letters up to this number are safe in their queue, or were refused by it
    is_here: bool  # whether the node leads the queue, and waits for the next letter


class FiguresOfQueue(NamedTuple):
    vhost: str
    name: str
    figures: QueueFigures


class Figures(NamedTuple):
    """What the sender counts of queues that live there."""

    queues: tuple[FiguresOfQueue, ...]


Message: TypeAlias = (
    Hello | Beacon | Echo | Inventory | Refused | Batch | Acks | Farewell | Letters | LettersDone | Figures
)
