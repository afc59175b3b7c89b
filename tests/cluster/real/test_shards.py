"""Shards on three nodes with real disks, links and etcd: what is confirmed survives the loss of a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.real.shard_node import (
    LOG,
    PREFIX,
    SECONDS_MAX,
    SHARDS,
    ShardNode,
    create_shards,
    leader_of,
)
from warren.cluster.config import ShardRecord
from warren.cluster.messages import Batch
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


class FailsOnce:
    """Takes the place of a method, and fails when it is called first with what `concerns` the test."""

    def __init__(self, work: Callable[..., Any], concerns: Callable[..., bool] = lambda *_: True) -> None:
        self.work = work
        self.concerns = concerns
        self.has_failed = False

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        if not self.has_failed and self.concerns(*arguments):
            self.has_failed = True
            raise RuntimeError("it cannot be done")
        return self.work(*arguments, **more)


def reported(caplog: pytest.LogCaptureFixture) -> list[object]:
    """The shards of which the log has told that something has failed, and the error itself."""
    return [
        getattr(record, "shard", None)
        for record in caplog.records
        if record.message == "a shard's part here has failed"
    ]


async def test_follower_that_fails_to_apply_a_batch_gets_it_again(
    nodes: list[ShardNode], caplog: pytest.LogCaptureFixture
) -> None:
    leader = await leader_of(nodes, 0)
    await leader.publish(0, b"1")
    await leader.until_in_sync(0, 3)
    follower = next(node for node in nodes if node is not leader)
    log = follower.runner.here[0].copies.log(LOG)
    failing = FailsOnce(log._append)
    log._append = failing  # type: ignore[method-assign]
    await leader.publish(0, b"2")
    await leader.publish(0, b"3")
    await leader.until_in_sync(0, 3)
    assert failing.has_failed
    assert reported(caplog) == [0]
    await leader.stop()
    third = next(node for node in nodes if node not in (leader, follower))
    await third.stop()
    back = await start_again(nodes, leader)
    second = await leader_of([follower, back], 0)
    assert second.led[0].bodies() == [b"1", b"2", b"3"]
    await start_again(nodes, third)


@pytest.mark.parametrize("what", ["shard_is_led", "shard_opened"])
async def test_leader_that_cannot_open_a_shard_hands_it_over(
    tmp_path: Path, etcd: Etcd, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = [ShardNode(tmp_path / name, etcd) for name in "abc"]
    for node in nodes:
        await node.start()
        setattr(node, what, FailsOnce(getattr(node, what), lambda shard, *_: shard == 0))
    failing = [getattr(node, what) for node in nodes]
    await create_shards(nodes)
    for node in nodes:
        node.join(nodes)
    for shard in range(1, SHARDS):
        await (await leader_of(nodes, shard)).publish(shard, b"elsewhere")
    leader = await leader_of(nodes, 0)
    await leader.publish(0, b"1")
    assert leader.led[0].bodies() == [b"1"]
    assert any(each.has_failed for each in failing)
    assert set(reported(caplog)) == {0}
    for node in nodes:
        await node.stop()


async def test_leader_that_fails_while_nobody_can_take_over_leads_again(
    nodes: list[ShardNode], caplog: pytest.LogCaptureFixture
) -> None:
    leader = await leader_of(nodes, 0)
    home = leader.runner.participant.node
    home.settings = replace(home.settings, failure_patience=1.0)
    away, lost = (node for node in nodes if node is not leader)
    await leader.publish(0, b"1")
    await away.stop()
    await leader.publish(0, b"2")  # so these two are in sync
    await lost.stop()
    led = leader.led[0].led
    led.take = FailsOnce(led.take)  # type: ignore[method-assign]
    leader.led[0].append(b"3", lambda: None)
    leader.end_turn()
    back = await start_again(nodes, away)
    await back.until_in_sync(0, 2)
    assert await leader_of(nodes, 0) is leader
    await leader.publish(0, b"4")
    assert leader.led[0].bodies() == [b"1", b"2", b"3", b"4"]
    assert set(reported(caplog)) == {0}
    await start_again(nodes, lost)


async def test_what_one_shard_fails_with_stops_no_other(
    nodes: list[ShardNode], caplog: pytest.LogCaptureFixture
) -> None:
    leaders = [await leader_of(nodes, shard) for shard in range(SHARDS)]
    for node in nodes:
        node.peers.send = FailsOnce(  # type: ignore[method-assign]
            node.peers.send, lambda _store, message: isinstance(message, Batch) and message.shard == 0
        )
    for shard, leader in enumerate(leaders):
        await leader.publish(shard, b"1")
        assert leader.led[shard].bodies() == [b"1"]
    assert set(reported(caplog)) == {0}


@pytest.mark.parametrize("where", ["here", "on its way"])
async def test_a_swap_that_fails_is_answered(nodes: list[ShardNode], etcd: Etcd, where: str) -> None:
    """It is not known what came of it, so the record is read, and another one is made."""
    leader = await leader_of(nodes, 0)
    rest = [node for node in nodes if node is not leader]
    await leader.publish(0, b"1")
    if where == "here":
        failing = [FailsOnce(node.records.swap, lambda shard, *_: shard == 0) for node in rest]
        for node, swap in zip(rest, failing, strict=True):
            node.records.swap = swap  # type: ignore[method-assign]
    else:
        failing = [FailsOnce(etcd.txn, lambda wanted: wanted.writes[0].key == f"{PREFIX}shards/0")]
        etcd.txn = failing[0]  # type: ignore[method-assign]
    await leader.stop()
    second = await leader_of(rest, 0)
    assert second.led[0].bodies() == [b"1"]
    assert any(each.has_failed for each in failing)
    await start_again(nodes, leader)


async def test_what_is_appended_once_a_hand_over_is_asked_for_is_not_copied(nodes: list[ShardNode]) -> None:
    """Whoever published it is told that the leader has changed, and publishes it again."""
    leader = await leader_of(nodes, 0)
    await leader.publish(0, b"1")
    await leader.until_in_sync(0, 3)
    is_asked = asyncio.Event()
    held: list[tuple[Any, ...]] = []
    swap, epoch = leader.records.swap, leader.led[0].led.epoch

    def hold(shard: int, revision: int, record: ShardRecord, *then: Any) -> None:
        if record.epoch == epoch:  # it looks whether etcd is there
            swap(shard, revision, record, *then)
            return
        held.append((shard, revision, record, *then))
        is_asked.set()

    leader.records.swap = hold  # type: ignore[assignment,method-assign]
    leader.runner.hand_over(0)
    async with asyncio.timeout(SECONDS_MAX):
        await is_asked.wait()
    leader.led[0].append(b"2", lambda: None)
    leader.end_turn()
    leader.records.swap = swap  # type: ignore[method-assign]
    for what in held:
        swap(*what)
    second = await leader_of([node for node in nodes if node is not leader], 0)
    assert second.led[0].bodies() == [b"1"]
    await second.publish(0, b"2")
    await second.until_in_sync(0, 3)
    assert second.led[0].bodies() == [b"1", b"2"]
