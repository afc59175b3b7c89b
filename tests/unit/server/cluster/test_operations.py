"""What operators see of a cluster at one node, and what they can have it do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.cluster.nodes import RECORD, RUNS, A, Alone, B, C, D
from warren.broker.commands import DeclareQueue
from warren.cluster import config
from warren.cluster.config import Known, Leadership, ShardRecord, StoreId
from warren.cluster.definitions.definition import path_of
from warren.cluster.effects import Cas, CasAnswer, ReadRecord
from warren.cluster.known_stores import DRAINING, IN, REMOVED
from warren.cluster.transactions import Outcome
from warren.server.cluster.etcd_errors import Unreachable
from warren.server.cluster.operations import Operations
from warren.server.cluster.settings import ClusterSettings
from warren.server.cluster.shard_service import ShardService
from warren.server.cluster.views import CannotReachEtcd, ForcedView, OperationRefused
from warren.server.metrics import Metrics
from warren.storage.definition_keys import QueueKey

GRACE = 2.5
WRITTEN = "what was to be written"
NAMES = {A: "ann", B: "bob", C: "cat"}
SETTINGS = ClusterSettings(
    name="test",
    node="ann",
    etcd=None,
    advertise=None,
    http_advertise=None,
    peers_bind=None,
    peers_advertise=None,
    secret_file="",
    shards=1,
    replicas=3,
    min_in_sync=2,
    lease_seconds=1.5,
    grace_seconds=GRACE,
    replace_after_seconds=1800,
    replicate="durable",
)


class Node:
    """Node `ann`, with the store A, and one shard that it knows. The test plays the others."""

    def __init__(self) -> None:
        self.alone = Alone(A)
        self.now = 0.0
        self.announced: list[tuple[str, str]] = []
        self.etcd_fails = False
        self.etcd_has: CasAnswer | str = WRITTEN  # what it has when a record was to be written
        self.written: list[ShardRecord] = []
        self.logged: list[dict[str, Any]] = []
        self.records: dict[str, Any] = {}
        self.facts = {
            name: {"store": store, "amqp": f"{name}:5672", "http": f"{name}:15672", "version": "1"}
            for store, name in NAMES.items()
        }
        runner = SimpleNamespace(
            participant=self.alone.participant,
            clock=lambda: self.now,
            carry_out=lambda: None,
            drain=lambda: self.alone.participant.drain(self.now),
        )
        in_shards = SimpleNamespace(count=self.count)
        copy = SimpleNamespace(find=self.records.get, records=self.records, in_shards=in_shards)
        service = SimpleNamespace(
            runner=runner,
            store_id=A,
            me=self.alone.me,
            nodes={store: (name, "") for store, name in NAMES.items()},
            definitions=SimpleNamespace(metadata=SimpleNamespace(copy=copy)),
            records=SimpleNamespace(swap=self.swap),
            log=SimpleNamespace(warning=lambda _text, **told: self.logged.append(told)),
        )
        self.operations = Operations(SETTINGS, self.facts, self.announce)
        self.operations.service = cast("ShardService", service)

    async def announce(self, name: str, state: str) -> bool:
        if self.etcd_fails:
            raise Unreachable("no route", was_sent=False)
        self.announced.append((name, state))
        return True

    def swap(self, shard: int, revision: int, record: ShardRecord, then: Callable[[CasAnswer], None]) -> None:
        if isinstance(self.etcd_has, str):
            self.written.append(record)
            then(Known(revision + 1, record))
        else:
            then(self.etcd_has)

    def count(self, shard: int) -> int:
        return sum(each.definition.shard == shard for each in self.records.values())

    def lead(self, *followers: StoreId) -> None:
        """Lead the shard, with these in step."""
        self.alone.link(*followers)
        self.alone.lead(self.now)
        for number, store in enumerate(followers, 101):
            self.alone.follow(store, number, self.now)
        self.alone.participant.tick(self.now)

    def follow(self, leader: StoreId) -> None:
        self.alone.link(B, C, now=self.now)
        self.alone.learn(RECORD._replace(epoch=4, leader=Leadership(leader, RUNS[leader])), self.now)

    def define(self, queue: str, shard: int | None) -> None:
        definition = SimpleNamespace(shard=shard, command=DeclareQueue(vhost="/", name=queue))
        self.records[path_of(QueueKey("/", queue))] = SimpleNamespace(alive=True, definition=definition)

    def numbers(self) -> dict[str, object]:
        metrics = Metrics()
        self.operations.add_metrics(metrics)
        return {name: metric.read() for name, metric in metrics.by_name.items()}


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_leader_tells_what_its_followers_have(node: Node) -> None:
    node.lead(B, C)
    node.now = 1.0
    (shard,) = node.operations.shards()
    assert (shard.number, shard.epoch, shard.leader, shard.role) == (0, 1, "ann", "open")
    assert shard.replicas == shard.in_sync == ("ann", "bob", "cat")
    assert (shard.joining, shard.leaving) == ((), ())
    assert [(each.node, each.is_in_step, each.in_step_seconds) for each in shard.followers] == [
        ("bob", True, 1.0),
        ("cat", True, 1.0),
    ]


def test_a_follower_that_was_never_there_is_told_as_not_in_step(node: Node) -> None:
    node.lead(B)
    (shard,) = node.operations.shards()
    assert shard.role == "opening"
    assert [(each.node, each.is_in_step, each.in_step_seconds) for each in shard.followers] == [
        ("bob", True, 0.0),
        ("cat", False, None),
    ]


def test_nodes_are_told_with_what_they_lead_and_keep(node: Node) -> None:
    node.follow(B)
    told = {each.name: each for each in node.operations.nodes()}
    assert list(told) == ["ann", "bob", "cat"]
    assert [each.leads for each in told.values()] == [0, 1, 0]
    assert [each.keeps for each in told.values()] == [1, 1, 1]
    assert [each.in_sync for each in told.values()] == [1, 1, 1]
    assert [each.is_running for each in told.values()] == [True, True, True]
    assert [each.is_this for each in told.values()] == [True, False, False]
    assert told["bob"].amqp == "bob:5672"


def test_a_node_without_a_link_does_not_run_and_does_not_lead(node: Node) -> None:
    node.follow(B)
    node.alone.participant.link_down(B, 0.0)
    told = {each.name: each for each in node.operations.nodes()}
    assert [each.is_running for each in told.values()] == [True, False, True]
    assert told["bob"].leads == 0
    (shard,) = node.operations.shards()
    assert shard.leader is None
    assert shard.in_sync == ("ann", "bob", "cat"), "that is etcd's to say"


def test_a_leader_that_is_linked_and_silent_for_long_does_not_run(node: Node) -> None:
    node.follow(B)
    node.now = GRACE
    assert node.operations.shards()[0].leader == "bob"
    node.now = GRACE + 0.1
    assert node.operations.shards()[0].leader is None


def test_a_leader_that_has_started_again_does_not_lead(node: Node) -> None:
    node.alone.link(C)
    node.alone.learn(RECORD._replace(epoch=4, leader=Leadership(C, RUNS[B])))
    assert node.operations.shards()[0].leader is None


def test_a_store_whose_node_is_not_known_stands_there_by_its_id(node: Node) -> None:
    node.alone.learn(RECORD._replace(replicas=(A, B, D), isr=(A, B)))
    (shard,) = node.operations.shards()
    assert shard.replicas == ("ann", "bob", D)
    assert [each.keeps for each in node.operations.nodes()] == [1, 1, 0]


def test_a_queue_is_where_its_shard_is(node: Node) -> None:
    node.follow(B)
    node.alone.participant.link_down(C, 0.0)
    node.define("q", 0)
    node.define("alone", None)
    assert node.operations.shard_of("/", "q") == 0
    assert node.operations.shard_of("/", "alone") is None
    assert node.operations.shard_of("/", "none") is None
    place = node.operations.places()[0]
    assert (place.leader, place.members, place.online) == ("bob", ("ann", "bob", "cat"), ("ann", "bob"))


def test_queues_are_critical_if_too_few_others_are_in_sync(node: Node) -> None:
    node.follow(B)
    node.define("q", 0)
    node.define("alone", None)
    assert node.operations.critical_queues() == []
    node.alone.participant.link_down(C, 0.0)
    assert node.operations.critical_queues() == [("/", "q")]


def test_metrics_count_shards(node: Node) -> None:
    node.lead(B, C)
    told = node.numbers()
    assert told == {
        "rabbitmq_unreachable_cluster_peers_count": 0,
        "warren_cluster_shards": 1,
        "warren_cluster_shards_led": 1,
        "warren_cluster_shards_kept": 1,
        "warren_cluster_shards_in_sync": 1,
        "warren_cluster_shards_without_leader": 0,
        "warren_cluster_shards_older_in_etcd": 0,
        "warren_cluster_in_flight_bytes": 0,
        "warren_cluster_leader_changes_total": 1,
    }
    node.alone.participant.link_down(B, 0.0)
    assert node.numbers()["rabbitmq_unreachable_cluster_peers_count"] == 1


def test_a_shard_that_etcd_has_lost_is_told(node: Node) -> None:
    node.follow(B)
    shard = node.alone.shard
    assert not node.operations.shards()[0].is_older_in_etcd
    node.alone.participant.tick(20.0)
    (asked,) = node.alone.take(ReadRecord)
    shard.record_read(asked.number, Known(1, RECORD._replace(epoch=3, leader=Leadership(B, RUNS[B]))), 20.0)
    assert node.operations.shards()[0].is_older_in_etcd
    assert node.numbers()["warren_cluster_shards_older_in_etcd"] == 1


def test_a_node_that_was_removed_is_told_while_it_runs_or_keeps_something(node: Node) -> None:
    node.follow(B)
    node.facts["bob"]["state"] = REMOVED
    told = {each.name: each for each in node.operations.nodes()}
    assert told["bob"].state == REMOVED
    node.alone.participant.link_down(B, 0.0)
    assert [each.name for each in node.operations.nodes()] == ["ann", "bob", "cat"]
    assert node.numbers()["rabbitmq_unreachable_cluster_peers_count"] == 0
    node.alone.learn(RECORD._replace(epoch=5, leader=Leadership(C, RUNS[C]), replicas=(A, C), isr=(A, C)))
    assert [each.name for each in node.operations.nodes()] == ["ann", "cat"]


# --- what operators have it do ---


async def test_the_others_know_first_that_a_node_is_drained(node: Node) -> None:
    node.lead(B, C)
    node.etcd_fails = True
    with pytest.raises(CannotReachEtcd):
        await node.operations.drain()
    assert not node.alone.participant.node.is_draining, "or others would hand it what it hands over"
    node.etcd_fails = False
    await node.operations.drain()
    assert node.alone.participant.node.is_draining
    await node.operations.undrain()
    assert not node.alone.participant.node.is_draining
    assert node.announced == [("ann", DRAINING), ("ann", IN)]


async def test_a_node_that_is_not_there_cannot_be_removed(node: Node) -> None:
    with pytest.raises(OperationRefused, match="no node 'dan'"):
        await node.operations.remove("dan")
    await node.operations.remove("bob")
    assert node.announced == [("bob", REMOVED)]


def test_a_shard_is_handed_to_a_node_by_name(node: Node) -> None:
    node.lead(B, C)
    node.operations.move(0, "cat")
    node.alone.write(0.1)
    (cas,) = node.alone.take(Cas)
    assert cas.record.leader == Leadership(C, RUNS[C])


def test_moving_a_shard_to_its_leader_changes_nothing(node: Node) -> None:
    node.lead(B, C)
    node.operations.move(0, "ann")
    node.alone.participant.tick(0.1)
    assert node.alone.take(Cas) == []


@pytest.mark.parametrize(
    ("shard", "to", "why"),
    [
        (7, "bob", "there is no shard 7"),
        (0, "dora", "there is no node 'dora'"),
        (0, "cat", "that node is not in sync"),
        (0, "bob", "that node is being drained"),
    ],
)
def test_a_move_that_cannot_be_is_refused_with_the_reason(node: Node, shard: int, to: str, why: str) -> None:
    node.lead(B, C)
    node.alone.participant.link_down(C, 0.0)
    node.alone.participant.node.avoided = {B}
    with pytest.raises(OperationRefused, match=why):
        node.operations.move(shard, to)


def test_a_move_is_asked_of_the_leader_whose_address_is_told(node: Node) -> None:
    node.follow(B)
    with pytest.raises(OperationRefused, match="led by node 'bob': ask there, at http://bob:15672"):
        node.operations.move(0, "cat")


# --- a leader that is not in sync ---


def lost(node: Node, **changed: Any) -> ShardRecord:
    """The shard had B and C in sync; both are gone."""
    record = RECORD._replace(epoch=4, leader=Leadership(B, RUNS[B]), isr=(B, C), **changed)
    node.alone.learn(record)
    return record


async def test_a_node_is_made_to_lead_what_nobody_else_can(node: Node) -> None:
    record = lost(node)
    node.define("q", shard=0)
    forced = await node.operations.force_leader(0, "ann")
    assert forced == ForcedView(node="ann", epoch=5, were_in_sync=("bob", "cat"), queues=1)
    assert node.written == [config.force(record, node.alone.me)]
    assert node.logged == [
        {"shard": 0, "were_in_sync": ("bob", "cat"), "epoch": 5, "node": "ann", "queues": 1}
    ]


@pytest.mark.parametrize(
    ("shard", "name", "why"),
    [
        (1, "ann", "there is no shard 1"),
        (0, "bob", "this is not node 'bob': ask there, at http://bob:15672"),
        (0, "dan", "this is not node 'dan'"),
    ],
)
async def test_force_is_asked_of_the_node_that_is_to_lead(
    node: Node, shard: int, name: str, why: str
) -> None:
    lost(node)
    with pytest.raises(OperationRefused, match=why):
        await node.operations.force_leader(shard, name)
    assert node.written == []


async def test_nothing_is_forced_while_a_node_is_there_that_is_in_sync(node: Node) -> None:
    lost(node)
    node.alone.link(C)
    with pytest.raises(OperationRefused, match="node 'cat' is there"):
        await node.operations.force_leader(0, "ann")
    node.alone.learn(RECORD._replace(epoch=5, leader=Leadership(B, RUNS[B]), isr=(A, B)))
    with pytest.raises(OperationRefused, match="node 'ann' is there"):
        await node.operations.force_leader(0, "ann")


async def test_a_node_without_a_whole_copy_is_not_forced(node: Node) -> None:
    lost(node)
    node.alone.shard.damage_found(0.0)
    with pytest.raises(OperationRefused, match="is damaged"):
        await node.operations.force_leader(0, "ann")
    node.alone.learn(RECORD._replace(epoch=5, leader=Leadership(B, RUNS[B]), replicas=(B, C), isr=(B, C)))
    with pytest.raises(OperationRefused, match="has no copy of shard 0"):
        await node.operations.force_leader(0, "ann")


async def test_no_term_is_forced_that_may_have_been(node: Node) -> None:
    """Etcd was restored from a backup, or another leader is elected just now."""
    lost(node)
    node.alone.shard.hear_epoch(6, 0.0)
    with pytest.raises(OperationRefused, match="knows a later term"):
        await node.operations.force_leader(0, "ann")


async def test_a_node_that_is_being_drained_is_not_forced(node: Node) -> None:
    lost(node)
    node.alone.participant.drain(0.0)
    with pytest.raises(OperationRefused, match="being drained"):
        await node.operations.force_leader(0, "ann")


async def test_a_forced_leader_that_etcd_does_not_take_is_told(node: Node) -> None:
    record = lost(node)
    answers: dict[CasAnswer, str] = {
        Outcome.UNKNOWN: "does not say",
        Outcome.NOT_SENT: "nothing has changed",
    }
    for answer, told in answers.items():
        node.etcd_has = answer
        with pytest.raises(CannotReachEtcd, match=told):
            await node.operations.force_leader(0, "ann")
    node.etcd_has = Known(9, record._replace(epoch=7))
    with pytest.raises(OperationRefused, match="has changed at the same time"):
        await node.operations.force_leader(0, "ann")


async def test_a_cluster_without_shards_has_nodes_and_nothing_to_hand_over(node: Node) -> None:
    node.operations.service = None
    assert [each.is_running for each in node.operations.nodes()] == [True, None, None]
    assert node.operations.shards() == []
    assert node.operations.places() == {}
    assert node.operations.critical_queues() == []
    assert node.numbers()["rabbitmq_unreachable_cluster_peers_count"] == 0
    with pytest.raises(OperationRefused):
        await node.operations.drain()
    with pytest.raises(OperationRefused):
        node.operations.move(0, "bob")
