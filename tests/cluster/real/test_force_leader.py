"""All nodes are lost that had everything: an operator has one lead that has less."""

from __future__ import annotations

import shutil

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.broker_nodes import Nodes, eventually, leader, start_replicating
from tests.cluster.real.test_operations import SHARDS, command, is_whole, shards

pytestmark = pytest.mark.slow


def test_a_node_that_was_behind_leads_by_force_and_the_others_follow_it(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abc":
        start_replicating(nodes, name)
    nodes.declare_replicated("a", "q")
    eventually(lambda: all(is_whole(nodes, name) for name in "abc"))
    first, channel = leader(nodes, "q")
    behind, other = sorted(nodes.running.keys() - {first})
    publish(channel, b"kept")
    nodes.running[behind].kill()
    eventually(lambda: all(len(shard["in_sync"]) == 2 for shard in shards(nodes, first)))
    publish(leader(nodes, "q")[1], b"lost")
    for name in (first, other):
        nodes.running[name].kill()
    again(nodes, behind)
    assert {shard["leader"] for shard in shards(nodes, behind)} == {None}
    for shard in range(SHARDS):
        assert command(nodes, behind, "force-leader", str(shard), first, "--accept-data-loss") == 1
        assert f"this is not node '{first}'" in capsys.readouterr().err
        assert command(nodes, behind, "force-leader", str(shard), behind, "--accept-data-loss") == 0
        told = capsys.readouterr().out.splitlines()[-1].split("\t")
        assert told[0] == behind
        assert set(told[2].split()) == {first, other}
    assert "what it lacks of all that was confirmed is lost" in nodes.running[behind].log()
    channel = nodes.channel(behind)
    assert bodies(channel) == [b"kept"]
    publish(channel, b"new")
    shutil.rmtree(nodes.running[other].data_dir)
    for name in (first, other):
        again(nodes, name)
    eventually(lambda: all(is_whole(nodes, name) for name in "abc"))
    assert bodies(leader(nodes, "q")[1]) == [b"kept", b"new"], (
        "what only the lost ones had does not come back"
    )
    assert command(nodes, behind, "force-leader", "0", behind, "--accept-data-loss") == 1
    assert "is there, and has all that was confirmed" in capsys.readouterr().err


def again(nodes: Nodes, name: str) -> None:
    nodes.running[name].launch()
    nodes.running[name].wait_until_ready()


def publish(channel: BlockingChannel, body: bytes) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))


def bodies(channel: BlockingChannel) -> list[bytes]:
    """What is in the queue, which keeps it."""
    found: list[bytes] = []
    tag = 0
    while (got := channel.basic_get("q"))[2] is not None:
        found.append(got[2])
        tag = got[0].delivery_tag
    channel.basic_nack(tag, multiple=True, requeue=True)
    return found
