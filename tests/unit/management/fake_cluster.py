"""A broker whose part in a cluster is played by the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp

from tests.support.http_api import Api, make_broker
from warren.broker.commands import Command
from warren.cluster.known_stores import DRAINING, IN
from warren.server.cluster.views import (
    CannotReachEtcd,
    FollowerView,
    ForcedView,
    NodeView,
    OperationRefused,
    PlaceView,
    ShardView,
)
from warren.server.metrics import Metrics
from warren.storage.store import DiskStore

THIS = "warren"  # the name that the broker has
OTHER = "other"


def node_view(name: str, *, is_running: bool = True) -> NodeView:
    return NodeView(
        name=name,
        is_this=name == THIS,
        is_running=is_running,
        state=IN,
        amqp=f"{name}:5672",
        http=f"{name}:15672",
        version="1.2.3",
        leads=1,
        keeps=2,
        in_sync=2,
    )


SHARD = ShardView(
    number=5,
    epoch=7,
    leader=THIS,
    replicas=(THIS, OTHER),
    in_sync=(THIS,),
    joining=(),
    leaving=(),
    role="open",
    is_older_in_etcd=False,
    followers=(
        FollowerView(
            node=OTHER, is_in_step=False, in_step_seconds=None, batches_unacked=3, bytes_in_flight=100
        ),
    ),
)


class FakeCluster:
    """Is the broker's part in the cluster, and its operations."""

    def __init__(self) -> None:
        self.is_draining = False
        self.first = OTHER  # the node that does what one does for all
        self.can_reach_etcd = True
        self.moved: list[tuple[int, str]] = []
        self.forced: list[int] = []
        self.removed: list[str] = []
        self.in_shards = {("/", "kept"): 5}
        self.critical: list[tuple[str, str]] = []

    @property
    def operations(self) -> FakeCluster:
        return self

    async def start(self, recovered: list[Command], store: DiskStore) -> None:
        raise AssertionError("the broker makes its own part, if it is in a cluster")

    async def listens(self, addresses: dict[str, str], version: str) -> None:
        raise AssertionError("the broker listens already")

    async def hand_over(self) -> None:
        """There is nothing to hand over."""

    async def stop(self) -> None:
        """There is nothing to end."""

    def nodes(self) -> list[NodeView]:
        return [
            node_view(OTHER, is_running=False),
            replace(node_view(THIS), state=DRAINING if self.is_draining else IN),
            node_view("zoe"),
        ]

    def shards(self) -> list[ShardView]:
        return [SHARD]

    def places(self) -> dict[int, PlaceView]:
        return {5: PlaceView(leader=OTHER, members=(THIS, OTHER), online=(THIS,))}

    def shard_of(self, vhost: str, queue: str) -> int | None:
        return self.in_shards.get((vhost, queue))

    def critical_queues(self) -> list[tuple[str, str]]:
        return self.critical

    def add_metrics(self, metrics: Metrics) -> None:
        """None of them."""

    def first_node(self) -> str:
        return self.first

    async def drain(self) -> None:
        if not self.can_reach_etcd:
            raise CannotReachEtcd("no etcd")
        self.is_draining = True

    async def undrain(self) -> None:
        self.is_draining = False

    async def remove(self, node: str) -> None:
        if node != OTHER:
            raise OperationRefused(f"there is no node '{node}'")
        self.removed.append(node)

    async def force_leader(self, shard: int, node: str) -> ForcedView:
        if node != THIS:
            raise OperationRefused(f"this is not node '{node}'")
        self.forced.append(shard)
        return ForcedView(node=node, epoch=8, were_in_sync=(OTHER,), queues=2)

    def move(self, shard: int, node: str) -> None:
        if node != OTHER:
            raise OperationRefused(f"there is no node '{node}'")
        self.moved.append((shard, node))


@asynccontextmanager
async def api_in(cluster: FakeCluster, directory: Path) -> AsyncIterator[Api]:
    async with make_broker(directory) as broker, aiohttp.ClientSession() as session:
        broker.cluster = cluster
        yield Api(broker, session)
