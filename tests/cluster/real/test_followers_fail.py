"""Followers come back with old, damaged or no data, and have to lead; brokers are restarted one by one."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.real.host_cluster import NAMES, HostCluster, eventually
from tests.cluster.real.traffic import Publisher, connect, drained
from warren.amqp import methods as m

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SOME = 300  # messages that are confirmed before something happens, and after it
QUEUES = 200
MANY = 10_000


def test_a_store_is_admitted_with_all_that_its_leader_had_at_first(hosts: HostCluster) -> None:
    """A new leader has confirmed nothing yet when a store that lacks much joins it, and then it dies."""
    first = hosts.declare("joined", "a")
    with Publisher(hosts, "joined") as publisher:
        publisher.wait_for(SOME)
        second, late = hosts.others(first)
        hosts.kill(late)
        eventually(lambda: hosts.in_sync("joined") == {first, second})
        publisher.wait_for(SOME)
        hosts.kill(first)
        hosts.start(late)
        eventually(lambda: late in hosts.in_sync("joined"))
        hosts.kill(second)
        hosts.start(first)
        hosts.wait_for_leader("joined", late, first)
        publisher.wait_for(SOME)
    publisher.check(drained(hosts, "joined"))


def test_a_damaged_copy_is_fetched_anew_and_deletes_nothing_on_others(hosts: HostCluster) -> None:
    first = hosts.declare("damaged", "a")
    with Publisher(hosts, "damaged", last=SOME - 1) as publisher:
        publisher.wait_for_end()
    hosts.kill(first)  # the next term begins a segment, and this one is closed
    leader = hosts.wait_for_leader("damaged", *hosts.others(first))
    hosts.start(first)
    hosts.wait_until_whole()
    damaged, other = hosts.others(leader)
    hosts.kill(other)
    eventually(lambda: hosts.in_sync("damaged") == {leader, damaged})
    path = largest_segment(hosts, damaged, "damaged")
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    path.write_bytes(flipped)
    hosts.stop(leader)  # and hands over to the one that is damaged
    hosts.start(leader, other)
    hosts.wait_until_whole()
    with hosts.channel(hosts.wait_for_leader("damaged")) as channel:  # which reads all of it
        for number, (method, _, body) in enumerate(channel.consume("damaged"), 1):
            assert method is not None
            assert body == b"%d" % (number - 1)
            if number == SOME:
                break
    eventually(lambda: path.read_bytes() == content)
    publisher.check(drained(hosts, "damaged"))


def largest_segment(hosts: HostCluster, name: str, queue: str) -> Path:
    """Of those that a node has of the shard of a queue."""
    directory = hosts.path / name / "shards" / str(hosts.placed(queue).shard)
    return max(directory.rglob("*.seg"), key=lambda path: path.stat().st_size)


def test_a_deleted_queue_does_not_come_back_with_a_follower(hosts: HostCluster) -> None:
    leader = hosts.declare("again", "a")
    with Publisher(hosts, "again", last=SOME - 1) as publisher:
        publisher.wait_for_end()
    follower, other = hosts.others(leader)
    hosts.kill(follower)
    eventually(lambda: follower not in hosts.in_sync("again"))
    with hosts.channel(leader) as channel:
        channel.queue_delete("again")
    leader = hosts.declare("again", leader)
    with Publisher(hosts, "again", last=9) as publisher:
        publisher.wait_for_end()
    hosts.start(follower)
    hosts.wait_until_whole()
    for name in {leader, other}:
        hosts.kill(name)
    hosts.start(*{leader, other})
    publisher.check(drained(hosts, "again"))


def test_a_rolling_restart_loses_nothing_and_leaves_no_shard_without_a_leader(hosts: HostCluster) -> None:
    wanted = [{"name": f"roll{number}", "vhost": "/", "durable": True} for number in range(QUEUES)]
    hosts.api("a").post("definitions", {"queues": wanted})
    with ExitStack() as stack:
        queues = [hosts.declare(f"rolling-{name}", name) and f"rolling-{name}" for name in NAMES]
        publishers = [stack.enter_context(Publisher(hosts, queue)) for queue in queues]
        for name in NAMES:
            for publisher in publishers:
                publisher.wait_for(SOME)
            hosts.stop(name)
            hosts.start(name)
            hosts.wait_until_whole()
        for publisher in publishers:
            publisher.wait_for(SOME)
    for publisher in publishers:
        found = drained(hosts, publisher.queue)
        publisher.check(found)
        assert len(found) == len({got.number for got in found}), "a hand-over makes no duplicates"
        assert len(publisher.nodes) <= len(NAMES) + 1, (
            f"it has connected more than once a restart: {publisher.nodes}"
        )
    for number in range(0, QUEUES, QUEUES // 10):
        hosts.wait_for_leader(f"roll{number}")


def test_a_leader_dies_with_half_of_many_unconfirmed(hosts: HostCluster) -> None:
    leader = hosts.declare("half", "b")
    with Publisher(hosts, "half", last=499) as publisher:
        publisher.wait_for_end()
    with connect(hosts.brokers[leader].address) as client:
        channel = client.channel()
        channel.call(m.BasicQos(prefetch_count=500), m.BasicQosOk)
        channel.consume("half")
        unacked = [int(channel.expect_delivery().body) for _ in range(500)]
        with Publisher(hosts, "half", window=MANY, last=MANY - 1) as publisher:
            eventually(lambda: publisher.confirmed > MANY // 2)
            hosts.kill(leader)
            publisher.wait_for_end()
        client.abort()
    found = drained(hosts, "half")
    assert [got.number for got in found[:500]] == unacked
    assert all(got.redelivered for got in found[:500])
    publisher.check(found[500:])


def test_a_wiped_disk_is_another_store_and_nothing_is_lost(hosts: HostCluster) -> None:
    leader = hosts.declare("wiped", "a")
    wiped, other = hosts.others(leader)
    store = hosts.node_facts()[wiped]["store"]
    with Publisher(hosts, "wiped") as publisher:
        publisher.wait_for(SOME)
        hosts.kill(other)
        eventually(lambda: hosts.in_sync("wiped") == {leader, wiped})
        publisher.wait_for(SOME)
        hosts.kill(wiped)
        shutil.rmtree(hosts.path / wiped)
        hosts.start(wiped)
        assert hosts.node_facts()[wiped]["store"] != store
        publisher.wait_for(SOME)  # the new store has stood in for the old one, of which nothing is left
        hosts.start(other)
        eventually(lambda: hosts.in_sync("wiped") == set(NAMES))
        publisher.wait_for(SOME)
    assert store not in hosts.placed("wiped").record.replicas
    publisher.check(drained(hosts, "wiped"))
