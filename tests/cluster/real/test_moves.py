"""Shards move: to nodes that are new, off disks that were wiped or fail. Real disks, links and etcd."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.real.shard_node import SHARDS, ShardNode, create_shards, leader_of, until
from warren.cluster.config import ShardRecord, StoreId
from warren.cluster.known_stores import IN, REMOVED
from warren.cluster.settings import Settings
from warren.server.cluster.etcd import Etcd
from warren.storage.disk import Disk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SOON = Settings(preferred_after=1.0, preferred_every=0.1)  # leaderships spread sooner than by default
MANY = [b"%d" % number for number in range(300)]


class FailingDisk(Disk):
    """A disk whose rounds fail while a test wants it."""

    is_failing = False

    def result(self) -> OSError | None:
        error = super().result()
        return OSError(errno.EIO, os.strerror(errno.EIO)) if self.is_failing else error


@pytest.fixture
async def nodes(
    tmp_path: Path, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[ShardNode]]:
    """Three nodes that keep all shards, and look after where these are. All that a test adds are stopped."""
    monkeypatch.setattr("warren.server.store_runner.Disk", FailingDisk)
    nodes = [ShardNode(tmp_path / name, etcd) for name in "abc"]
    for node in nodes:
        await node.start()
    await create_shards(nodes)
    for node in nodes:
        node.join(nodes)
        node.know(nodes)
    yield nodes
    for node in nodes:
        await node.stop()


async def publish_everywhere(nodes: list[ShardNode]) -> None:
    for shard in range(SHARDS):
        leader = await leader_of(nodes, shard)
        await leader.publish(shard, *MANY)


async def check_everywhere(nodes: list[ShardNode]) -> None:
    """All that was published is at the leader of each shard, which takes more."""
    for shard in range(SHARDS):
        leader = await leader_of(nodes, shard)
        assert leader.led[shard].bodies() == MANY
        await leader.publish(shard, b"more")


def records(node: ShardNode) -> list[ShardRecord]:
    found = [node.record(shard) for shard in range(SHARDS)]
    return [record for record in found if record is not None]


def are_settled(found: list[ShardRecord]) -> bool:
    return len(found) == SHARDS and all(
        not record.joining and not record.leaving and set(record.isr) == set(record.replicas)
        for record in found
    )


def is_even(found: list[ShardRecord], nodes: list[ShardNode]) -> bool:
    kept = Counter(store for record in found for store in record.replicas)
    counts = [kept[node.store_id] for node in nodes]
    return sum(counts) == kept.total() and max(counts) - min(counts) <= 1


def keeps_only_its_own(node: ShardNode) -> bool:
    """Whether a node's disk has queues of those shards only that it keeps."""
    for shard in range(SHARDS):
        record = node.record(shard)
        is_there = any((node.path / "shards" / str(shard)).iterdir())
        if record is None or is_there != (node.store_id in record.replicas):
            return False
    return True


@pytest.mark.parametrize("lost", range(4))
async def test_a_fourth_node_gets_its_share_and_any_one_may_be_lost(
    nodes: list[ShardNode], tmp_path: Path, etcd: Etcd, lost: int
) -> None:
    await publish_everywhere(nodes)
    fourth = ShardNode(tmp_path / "d", etcd)
    nodes.append(fourth)
    await fourth.start()
    fourth.join(nodes)
    for node in nodes:
        node.know(nodes)
    await until(lambda: are_settled(found := records(nodes[0])) and is_even(found, nodes))
    await until(lambda: all(keeps_only_its_own(node) for node in nodes))
    ended = nodes.pop(lost)
    await ended.stop()
    await check_everywhere(nodes)


async def test_a_node_whose_disk_was_wiped_gets_everything_anew(
    nodes: list[ShardNode], tmp_path: Path, etcd: Etcd
) -> None:
    await publish_everywhere(nodes)
    ended = nodes.pop()
    await ended.stop()
    shutil.rmtree(ended.path)
    wiped = ShardNode(ended.path, etcd, port=ended.port)
    wiped.former = [ended.store_id]
    nodes.append(wiped)
    await wiped.start()
    wiped.join(nodes)
    for node in nodes:
        node.know(nodes)

    def is_back(store: StoreId = wiped.store_id) -> bool:
        found = records(nodes[0])
        return are_settled(found) and all(store in record.isr for record in found)

    await until(is_back)
    await nodes.pop(0).stop()  # so that the one that was wiped is needed
    await check_everywhere(nodes)


async def test_a_node_that_is_removed_keeps_nothing_until_it_is_in_again(
    nodes: list[ShardNode], tmp_path: Path, etcd: Etcd
) -> None:
    await publish_everywhere(nodes)
    fourth = ShardNode(tmp_path / "d", etcd)
    nodes.append(fourth)
    await fourth.start()
    fourth.join(nodes)
    removed = nodes[0]
    removed.state = REMOVED
    for node in nodes:
        node.know(nodes)

    def is_without(store: StoreId = removed.store_id) -> bool:
        found = records(fourth)
        return are_settled(found) and all(store not in record.replicas for record in found)

    await until(is_without)
    await until(lambda: keeps_only_its_own(removed))
    removed.state = IN
    for node in nodes:
        node.know(nodes)
    await until(lambda: are_settled(found := records(fourth)) and is_even(found, nodes))
    await nodes.pop(1).stop()  # so that what it got anew is needed
    await check_everywhere(nodes)


async def test_leaderships_spread_again_after_a_restart(nodes: list[ShardNode]) -> None:
    await publish_everywhere(nodes)
    first = await leader_of(nodes, 0)
    await first.stop()
    nodes.remove(first)
    for shard in range(SHARDS):
        await leader_of(nodes, shard)
    again = ShardNode(first.path, first.etcd, first.run + 1, port=first.port)
    nodes.append(again)
    await again.start()
    again.join(nodes)
    for node in nodes:
        node.know(nodes)
        node.runner.participant.node.settings = SOON

    def are_spread() -> bool:
        leaders = Counter(record.leader.store for record in records(nodes[0]) if record.leader is not None)
        counts = [leaders[node.store_id] for node in nodes]
        return sum(counts) == SHARDS and max(counts) - min(counts) <= 1

    await until(are_spread)


async def test_a_leader_whose_disk_fails_hands_over_and_comes_back(nodes: list[ShardNode]) -> None:
    await publish_everywhere(nodes)
    first = await leader_of(nodes, 0)
    disk = first.disk.disk
    assert isinstance(disk, FailingDisk)
    disk.is_failing = True
    vain = asyncio.create_task(first.publish(0, b"in vain, or not"))
    rest = [node for node in nodes if node is not first]
    second = await leader_of(rest, 0)
    vain.cancel()
    await asyncio.gather(vain, return_exceptions=True)
    assert first.disk_alarms, "publishers wait meanwhile"
    await second.publish(0, b"while it fails")
    await until(lambda: 0 not in first.led)
    disk.is_failing = False
    await second.publish(0, b"when it works")
    await second.until_in_sync(0, 3)
    found = second.led[0].bodies()
    assert [body for body in found if body != b"in vain, or not"] == [
        *MANY,
        b"while it fails",
        b"when it works",
    ]
