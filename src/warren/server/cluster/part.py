"""What a broker asks of its part in a cluster. Only a broker that is in one loads the rest, and aiohttp."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from structlog.stdlib import BoundLogger

from warren.broker.commands import Command
from warren.broker.node import Node
from warren.server.cluster.settings import ClusterSettings
from warren.server.cluster.views import ClusterOperations
from warren.storage.store import DiskStore


class ClusterPart(Protocol):
    """`ClusterNode` implements it."""

    @property
    def operations(self) -> ClusterOperations: ...

    def first_node(self) -> str:
        """The name of the node that does what one node does for all; empty if this one cannot know."""

    async def start(self, recovered: list[Command], store: DiskStore) -> None: ...
    async def listens(self, addresses: dict[str, str], version: str) -> None: ...
    async def hand_over(self) -> None: ...
    async def stop(self) -> None: ...


def load_cluster() -> Callable[[Node, ClusterSettings, Path, BoundLogger], ClusterPart]:
    module = import_module("warren.server.cluster.node")
    return cast("Callable[[Node, ClusterSettings, Path, BoundLogger], ClusterPart]", module.ClusterNode)
