"""What operators see of a cluster, and do with it: plain values, and what is asked of a node's part in it.

All of it is what this one node knows. Nodes are named; a store whose node is not known any more, such as that
of a wiped disk, stands there by its id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from warren.server.metrics import Metrics


class OperationRefused(Exception):
    """An operator's wish that cannot be met; the text says why."""


class CannotReachEtcd(OperationRefused):
    """Nobody can be told of the wish now."""


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A node of the cluster. One that was removed, is down and keeps nothing is not told any more."""

    name: str
    is_this: bool  # whether it is the node that tells
    is_running: bool | None  # as far as this node can hear; None if it listens to no others
    state: str  # in, draining (it is to lead nothing) or removed (it is to keep nothing)
    amqp: str  # where clients connect; this and the rest as the node said when it started
    http: str
    version: str
    leads: int  # shards
    keeps: int  # shards of which it has a copy, or gets one
    in_sync: int  # shards of which it has all that is confirmed


@dataclass(frozen=True, kw_only=True)
class FollowerView:
    """A follower, as the leader of the shard sees it."""

    node: str
    is_in_step: bool  # whether it has had all that the leader has, in this session
    in_step_seconds: float | None  # for how long
    batches_unacked: int  # what it lacks, or has not said that it has
    bytes_in_flight: int


@dataclass(frozen=True, kw_only=True)
class ShardView:
    number: int
    epoch: int  # the number of its leader's term
    leader: str | None  # None if it has none, or that is gone
    replicas: tuple[str, ...]  # the nodes that keep it; the first should lead
    in_sync: tuple[str, ...]  # of these, those that have all that is confirmed
    joining: tuple[str, ...]
    leaving: tuple[str, ...]
    role: str  # of this node: one of the values of `Role`
    is_older_in_etcd: bool  # etcd has lost what was written to it, so nobody else can lead it
    followers: tuple[FollowerView, ...]  # only if this node leads


@dataclass(frozen=True, kw_only=True)
class ForcedView:
    """What became of a shard that a node was made to lead although it was not in sync."""

    node: str
    epoch: int
    were_in_sync: tuple[str, ...]  # these had all that was confirmed: what only they have is lost
    queues: int  # that the shard has


@dataclass(frozen=True, kw_only=True)
class PlaceView:
    """Where the queues of a shard are."""

    leader: str | None
    members: tuple[str, ...]
    online: tuple[str, ...]


class ClusterOperations(Protocol):
    """`Operations` implements it."""

    def nodes(self) -> list[NodeView]: ...

    def shards(self) -> list[ShardView]: ...

    def places(self) -> dict[int, PlaceView]:
        """By the numbers of shards."""

    def shard_of(self, vhost: str, queue: str) -> int | None:
        """The shard that a queue is in; None for one that lives on a single node."""

    def critical_queues(self) -> list[tuple[str, str]]:
        """Queues, by vhost and name, that would stop if this node did: too few others are in sync."""

    def add_metrics(self, metrics: Metrics) -> None: ...

    async def drain(self) -> None:
        """This node hands over all that others can take, and is elected for nothing until `undrain`, or its
        next start.
        """

    async def undrain(self) -> None: ...

    async def remove(self, node: str) -> None:
        """Another node is to keep nothing any more; whatever it keeps goes to those that have room."""

    def move(self, shard: int, node: str) -> None:
        """Hand the leadership of a shard, which this node has, to another node. It stays there, unless that
        node leads much more than others then.
        """

    async def force_leader(self, shard: int, node: str) -> ForcedView:
        """Have this node, which has to be named, lead a shard although it is not in sync. No node that is may
        be there. What was confirmed and this node lacks is lost.
        """
