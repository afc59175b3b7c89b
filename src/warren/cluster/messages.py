"""What nodes say to each other, as plain values; `wire.py` has their bytes.

Hello, beacons, echoes and acks are of a pair of nodes; the others belong to one shard. All that a leader has
for one follower of a shard is one numbered line of batches, a session. The follower opens it by an inventory.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

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


Message: TypeAlias = Hello | Beacon | Echo | Inventory | Refused | Batch | Acks
