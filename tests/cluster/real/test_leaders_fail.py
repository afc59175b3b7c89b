"""Leaders of queues are paused, killed and cut off under load, on real hosts."""

from __future__ import annotations

import contextlib

import pytest

from tests.cluster.real.host_cluster import HostCluster, eventually
from tests.cluster.real.traffic import Publisher, connect, drained
from tests.support.errors import UnexpectedError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SOME = 300  # messages that are confirmed before something happens, and after it


def test_a_paused_leader_is_succeeded_and_follows_when_it_wakes_up(hosts: HostCluster) -> None:
    leader = hosts.declare("paused", "a")
    with Publisher(hosts, "paused") as publisher, connect(hosts.brokers[leader].address) as client:
        channel = client.channel()
        channel.consume("paused")
        before = [channel.expect_delivery().body for _ in range(SOME)]
        epoch = hosts.placed("paused").record.epoch
        hosts.pause(leader)
        sent = publisher.sent
        hosts.wait_for_leader("paused", *hosts.others(leader))
        publisher.wait_for(SOME)
        hosts.go_on(leader)
        with contextlib.suppress(UnexpectedError):
            while True:
                before.append(channel.expect_delivery().body)
        eventually(lambda: leader in hosts.in_sync("paused"))
        publisher.wait_for(SOME)
    assert max(map(int, before)) < sent
    assert hosts.placed("paused").record.epoch > epoch
    found = drained(hosts, "paused")
    publisher.check(found)
    assert all(got.redelivered for got in found[:SOME])


def test_a_killed_leader_that_is_back_at_once_has_a_new_epoch(hosts: HostCluster) -> None:
    leader = hosts.declare("killed", "b")
    with Publisher(hosts, "killed") as publisher:
        publisher.wait_for(SOME)
        before = hosts.placed("killed").record
        hosts.kill(leader)
        hosts.start(leader)
        publisher.wait_for(SOME)
        hosts.wait_until_whole()
        publisher.wait_for(SOME)
    after = hosts.placed("killed").record
    assert after.epoch > before.epoch
    assert after.leader != before.leader
    publisher.check(drained(hosts, "killed"))


def test_a_power_cut_of_all_hosts_loses_nothing(hosts: HostCluster) -> None:
    hosts.declare("dark", "c")
    with Publisher(hosts, "dark") as publisher:
        publisher.wait_for(SOME)
        for etcd in hosts.etcds.values():
            etcd.process.kill()
        hosts.kill("a", "b", "c")
        hosts.heal()
        hosts.wait_until_whole()
        publisher.wait_for(SOME)
    publisher.check(drained(hosts, "dark"))


def test_a_host_dies_with_the_leaders_of_etcd_and_of_a_queue(hosts: HostCluster) -> None:
    name = hosts.declare("dead", "a")
    hosts.move_etcd_leader(name)
    with Publisher(hosts, "dead") as publisher:
        publisher.wait_for(SOME)
        hosts.die(name)
        publisher.wait_for(SOME)
        assert hosts.etcd_leader() != name
        hosts.boot(name)
        hosts.wait_until_whole()
        publisher.wait_for(SOME)
    publisher.check(drained(hosts, "dead"))
