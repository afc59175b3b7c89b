"""Shards on three nodes with real disks, links and etcd: what is confirmed survives the loss of a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.real.shard_node import SHARDS, ShardNode, create_shards, leader_of
from warren.server.cluster.etcd import Etcd

pytestmark = pytest.mark.slow


@pytest.fixture
async def nodes(tmp_path: Path, etcd: Etcd) -> AsyncIterator[list[ShardNode]]:
    """Three nodes that keep all shards. A test may replace one of them in the list."""
    nodes = [ShardNode(tmp_path / name, etcd) for name in "abc"]
    for node in nodes:
        await node.start()
    await create_shards(nodes)
    for node in nodes:
        node.join(nodes)
    yield nodes
    for node in nodes:
        await node.stop()


async def start_again(nodes: list[ShardNode], ended: ShardNode) -> ShardNode:
    """Another run of a node that has ended, with its disk and its port."""
    again = ShardNode(ended.path, ended.etcd, ended.run + 1, port=ended.port)
    nodes[nodes.index(ended)] = again
    await again.start()
    again.join(nodes)
    return again


async def test_each_shard_has_a_leader_and_what_is_published_is_safe_everywhere(
    nodes: list[ShardNode],
) -> None:
    for shard in range(SHARDS):
        leader = await leader_of(nodes, shard)
        await leader.publish(shard, *(b"%d" % number for number in range(100)))
        assert leader.led[shard].bodies() == [b"%d" % number for number in range(100)]


async def test_node_that_ends_is_replaced_and_nothing_confirmed_is_lost(nodes: list[ShardNode]) -> None:
    first = await leader_of(nodes, 0)
    await first.publish(0, b"1", b"2", b"3")
    await first.stop()
    rest = [node for node in nodes if node is not first]
    second = await leader_of(rest, 0)
    assert second.led[0].bodies() == [b"1", b"2", b"3"]
    await second.publish(0, b"4")

    await start_again(nodes, first)
    await second.publish(0, b"5")
    assert second.led[0].bodies() == [b"1", b"2", b"3", b"4", b"5"]


async def test_node_that_was_away_gets_what_it_missed_and_can_lead(nodes: list[ShardNode]) -> None:
    first = await leader_of(nodes, 0)
    away = next(node for node in nodes if node is not first)
    await first.publish(0, b"1")
    await away.stop()
    missed = [b"%d" % number for number in range(2, 500)]
    await first.publish(0, *missed)
    back = await start_again(nodes, away)
    third = next(node for node in nodes if node not in (first, back))
    # Both others end: only the node that was away can have all of it.
    await first.publish(0, b"500")
    await first.until_in_sync(0, 3)
    await first.stop()
    await third.stop()
    again = await start_again(nodes, third)
    leader = await leader_of([back, again], 0)
    assert leader.led[0].bodies() == [b"1", *missed, b"500"]
    await start_again(nodes, first)
