"""Whose records keep a node from starting, with a real etcd and real links."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.cluster.real.shard_node import CLUSTER
from tests.unit.server.cluster.test_peers import HOST, A, B, Node
from warren.server.address import Address
from warren.server.cluster import presence
from warren.server.cluster.agreement import check_agreement, settings_told
from warren.server.cluster.bootstrap import facts_of, register
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.presence import ASKED, answer
from warren.server.cluster.settings import ClusterSettings
from warren.server.config_error import ConfigError

MINE = replace(CLUSTER, node="a")
THEIRS = replace(CLUSTER, node="b")
PREFIX = CLUSTER.prefix


class Cluster:
    """Node `a` starts. Node `b` has registered, and may run."""

    def __init__(self, etcd: Etcd) -> None:
        self.etcd = etcd
        self.a, self.b = Node(A), Node(B)
        self.answering: asyncio.Task[None] | None = None  # node b looks whether it is asked

    async def register(self, *, machine: str, settings: ClusterSettings = THEIRS) -> None:
        at = await self.b.listen()
        facts = {
            "store": B,
            "run": "1",
            "peers": f"{at.host}:{at.port}",
            **settings_told(settings),
            "machine": machine,
        }
        await register(self.etcd, settings, facts)

    def run_where_nobody_can_call(self) -> None:
        self.answering = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        async for _ in self.etcd.watch(f"{PREFIX}nodes/b", 1):
            await answer(self.etcd, PREFIX, "b")

    async def check(self, settings: ClusterSettings = MINE, port: int = 1) -> None:
        mine = {**settings_told(settings), "machine": "here", "peers": f"{HOST}:{port}"}
        await check_agreement(self.etcd, settings, mine, self.a.credentials)

    async def stop(self) -> None:
        for node in (self.a, self.b):
            await node.peers.stop()
        if self.answering is not None:
            self.answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.answering


@pytest.fixture
async def cluster(etcd: Etcd) -> AsyncIterator[Cluster]:
    cluster = Cluster(etcd)
    yield cluster
    await cluster.stop()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is waited for, since none comes."""
    monkeypatch.setattr(presence, "LOOK_SECONDS", 0.0)


async def test_a_node_that_runs_on_another_machine_and_cannot_be_called_refuses(cluster: Cluster) -> None:
    await cluster.register(machine="there")
    await cluster.b.peers.stop()
    cluster.run_where_nobody_can_call()
    with pytest.raises(ConfigError, match="cluster_peers_bind has to say"):
        await cluster.check()
    assert ASKED not in await facts_of(cluster.etcd, PREFIX, "b")
    await cluster.check(replace(MINE, peers_bind=Address(HOST, 1)))


async def test_a_node_that_answers_at_a_loopback_address_is_on_this_machine(cluster: Cluster) -> None:
    await cluster.register(machine="here, before its name was changed")
    await cluster.check()


@pytest.mark.usefixtures("hasty")
async def test_a_node_that_does_not_run_refuses_nobody(cluster: Cluster) -> None:
    await cluster.register(machine="there", settings=replace(THEIRS, min_in_sync=1))
    with pytest.raises(ConfigError, match="node 'b' runs with 1"):
        await cluster.check()
    await cluster.b.peers.stop()
    await cluster.check()


async def test_a_node_that_has_not_answered_is_not_waited_for_again_until_it_has_started(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.register(machine="there")
    await cluster.b.peers.stop()
    monkeypatch.setattr(presence, "LOOK_SECONDS", 0.0)
    await cluster.check()
    before = (await cluster.etcd.status()).revision
    await cluster.check()
    assert (await cluster.etcd.status()).revision == before, "nobody has asked"
    monkeypatch.undo()
    await cluster.register(machine="there")
    await cluster.b.peers.stop()
    cluster.run_where_nobody_can_call()
    with pytest.raises(ConfigError, match="cluster_peers_bind has to say"):
        await cluster.check()


@pytest.mark.usefixtures("hasty")
async def test_this_node_itself_is_not_taken_for_the_one_whose_address_it_has(cluster: Cluster) -> None:
    await cluster.register(machine="here", settings=replace(THEIRS, min_in_sync=1))
    await cluster.b.peers.stop()
    cluster.a.port = cluster.b.port
    await cluster.a.listen()
    await cluster.check(port=cluster.a.port)
