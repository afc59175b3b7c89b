"""Hosts are cut off from each other and from etcd, wholly or one way, under load."""

from __future__ import annotations

from pathlib import Path

import pika.exceptions
import pytest

from tests.cluster.real.broker_nodes import RESOURCE_LOCKED
from tests.cluster.real.host_cluster import ETCD, PEERS, HostCluster, eventually
from tests.cluster.real.hosts import why_not
from tests.cluster.real.traffic import PERSISTENT, Publisher, connect, drained
from warren.amqp import methods as m

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ANSWERS = f"ip length > 100 tcp sport {ETCD}"  # of etcd: connections can be opened, and questions get there
SOME = 300  # messages that are confirmed before something happens, and after it


def cut_off_brokers(hosts: HostCluster, *names: str) -> None:
    """These brokers reach each other and clients, but neither the other brokers nor etcd."""
    for name in names:
        hosts.host(name).cut_port(PEERS, *(hosts.host(other) for other in hosts.others(*names)))
        hosts.host(name).cut_from_port(ETCD)


def test_a_shard_waits_if_its_leader_is_cut_off_from_etcd_and_a_member(hosts: HostCluster) -> None:
    leader = hosts.declare("split", "a")
    with Publisher(hosts, "split") as publisher:
        publisher.wait_for(SOME)
        follower, other = hosts.others(leader)
        epoch = hosts.placed("split").record.epoch
        with connect(hosts.brokers[leader].address, silence_seconds=60.0) as client:
            channel, consumer = client.channel(1), client.channel(2)
            channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            consumer.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
            consumer.consume("split", "idle")
            consumer.expect_delivery()
            cut_off_brokers(hosts, leader, follower)
            eventually(lambda: hosts.placed("split").leader == other)  # which needs one more to open
            channel.publish("", "split", b"-1", PERSISTENT)
            told = channel.expect_close(RESOURCE_LOCKED).reply_text
            assert "has no leader now: 2 of 3 replicas are there" in told
            assert consumer.expect(m.BasicCancel).consumer_tag == "idle"
        for name in (leader, follower, other):
            eventually(lambda name=name: not hosts.serves(name, "split"))  # type: ignore[misc]
        confirmed = publisher.confirmed
        hosts.heal()
        publisher.wait_for(SOME)
    record = hosts.placed("split").record
    assert record.epoch > epoch
    assert publisher.confirmed > confirmed
    publisher.check(drained(hosts, "split"))


def test_two_members_go_on_without_etcd_and_the_third_may_not_stand(hosts: HostCluster) -> None:
    leader = hosts.declare("two", "a")
    with Publisher(hosts, "two") as publisher:
        publisher.wait_for(SOME)
        follower, other = hosts.others(leader)
        hosts.host(other).cut_port(PEERS, hosts.host(leader), hosts.host(follower))
        eventually(lambda: hosts.in_sync("two") == {leader, follower})
        epoch = hosts.placed("two").record.epoch
        cut_off_brokers(hosts, leader, follower)
        publisher.wait_for(SOME)
        hosts.kill(other)  # it has no way to lead by being started again either
        hosts.start(other)
        publisher.wait_for(SOME)
        assert hosts.placed("two").record.epoch == epoch
        hosts.heal()
        hosts.wait_until_whole()
        publisher.wait_for(SOME)
    publisher.check(drained(hosts, "two"))


@pytest.mark.parametrize("change", ["shrink", "admission"])
def test_answers_of_etcd_are_lost_and_the_leader_dies(hosts: HostCluster, change: str) -> None:
    queue = f"lost-{change}"
    leader = hosts.declare(queue, "a")
    with Publisher(hosts, queue) as publisher:
        publisher.wait_for(SOME)
        follower, other = hosts.others(leader)
        if change == "admission":
            hosts.kill(other)
            eventually(lambda: hosts.in_sync(queue) == {leader, follower})
        hosts.host(leader).drop(into=[ANSWERS])
        if change == "shrink":
            hosts.kill(other)
            eventually(lambda: hosts.in_sync(queue) == {leader, follower})
        else:
            hosts.start(other)
            eventually(lambda: hosts.in_sync(queue) == {leader, follower, other})
        hosts.kill(leader)
        if change == "shrink":
            hosts.start(other)
            assert hosts.wait_for_leader(queue, follower, other) == follower
        else:
            hosts.wait_for_leader(queue, follower, other)
        publisher.wait_for(SOME)
    publisher.check(drained(hosts, queue))


def test_a_follower_that_starts_refuses_a_deposed_leader(hosts: HostCluster) -> None:
    deposed = hosts.declare("deposed", "a")
    with Publisher(hosts, "deposed") as publisher:
        publisher.wait_for(SOME)
        hosts.pause(deposed)
        leader = hosts.wait_for_leader("deposed", *hosts.others(deposed))
        publisher.wait_for(SOME)
        [follower] = hosts.others(deposed, leader)
        hosts.kill(follower)
        hosts.host(follower).cut_port(PEERS, hosts.host(leader))
        hosts.host(deposed).cut_port(PEERS, hosts.host(leader))
        hosts.host(deposed).cut_from_port(ETCD)
        hosts.start(follower)
        hosts.go_on(deposed)
        confirmed = publisher.confirmed
        hosts.kill(leader)
        hosts.host(deposed).heal()
        hosts.wait_for_leader("deposed", follower)
        publisher.wait_for(SOME)
    assert publisher.confirmed > confirmed
    publisher.check(drained(hosts, "deposed"))


def test_a_leader_that_has_not_heard_of_a_deletion_is_followed(tmp_path: Path) -> None:
    """The others have removed a log that it still has, and do not take it again: it goes before that."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    patience = {"cluster_shards": "1", "cluster_lease": "20.0", "cluster_grace": "22.0"}
    with HostCluster(tmp_path, **patience) as hosts, hosts.entered():
        first = hosts.declare("goes", "a")
        with Publisher(hosts, "goes", last=9) as publisher:
            publisher.wait_for_end()
        heir, other = hosts.others(first)
        logs = {path.name for path in (tmp_path / heir / "shards" / "0").iterdir()}
        hosts.host(heir).cut_port(PEERS, hosts.host(first))
        with connect(hosts.brokers[first].address) as client:
            client.channel().send(m.QueueDelete(queue="goes"))
            eventually(lambda: not any((tmp_path / other / "shards" / "0" / log).exists() for log in logs))
        hosts.pause(other)
        hosts.kill(first)
        eventually(lambda: hosts.leader_of(0) == heir)
        hosts.go_on(other)
        hosts.declare("stays", heir)
        with Publisher(hosts, "stays", last=9) as publisher:
            publisher.wait_for_end()
        publisher.check(drained(hosts, "stays"))
        eventually(lambda: not any((tmp_path / heir / "shards" / "0" / log).exists() for log in logs))
    hosts.check_logs()


def test_what_a_deposed_leader_never_confirmed_is_cut_off_and_set_aside(hosts: HostCluster) -> None:
    leader = hosts.declare("tail", "a")
    with Publisher(hosts, "tail", last=SOME - 1) as publisher:
        publisher.wait_for_end()
    shard = hosts.placed("tail").shard
    with connect(hosts.brokers[leader].address, silence_seconds=60.0) as client:
        channel = client.channel()
        channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        cut_off_brokers(hosts, leader)
        for number in range(5):
            channel.publish("", "tail", b"unsafe %d" % number, PERSISTENT)
        eventually(lambda: b"unsafe 4" in b"".join(segments(hosts, leader, shard).values()))
        successor = hosts.wait_for_leader("tail", *hosts.others(leader))
        with hosts.channel(successor) as other:
            other.confirm_delivery()
            for number in range(SOME, SOME + 5):
                other.basic_publish("", "tail", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        hosts.heal()
        hosts.wait_until_whole()
        channel.expect_close(RESOURCE_LOCKED)
    eventually(lambda: segments(hosts, leader, shard) == segments(hosts, successor, shard))
    aside = [path.read_bytes() for path in (hosts.path / leader / "diverged").rglob("*.seg")]
    assert any(b"unsafe 4" in content for content in aside)
    assert [got.number for got in drained(hosts, "tail")] == list(range(SOME + 5))


def segments(hosts: HostCluster, name: str, shard: int) -> dict[str, bytes]:
    """The segments that a node has of a shard, by their paths."""
    root = hosts.path / name / "shards" / str(shard)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.seg"))}


@pytest.mark.parametrize("way", ["paused", "killed"])
def test_without_etcd_traffic_goes_on_until_a_member_dies(hosts: HostCluster, way: str) -> None:
    queue = f"alone-{way}"
    leader = hosts.declare(queue, "a")
    with Publisher(hosts, queue) as publisher:
        publisher.wait_for(SOME)
        for etcd in hosts.etcds.values():
            if way == "paused":
                etcd.pause()
            else:
                etcd.kill()  # who asks is refused, and not only kept waiting
        publisher.wait_for(10 * SOME)
        with hosts.channel(leader) as channel:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
                channel.queue_declare("later", durable=True)
            assert caught.value.reply_code == RESOURCE_LOCKED
        hosts.kill(hosts.others(leader)[0])
        eventually(lambda: not hosts.serves(leader, queue))
        for etcd in hosts.etcds.values():
            if way == "paused":
                etcd.go_on()
            else:
                etcd.spawn()
        publisher.wait_for(SOME)
    publisher.check(drained(hosts, queue))
