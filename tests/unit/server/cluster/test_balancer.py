"""The balancer writes what placement wants: soon if it is the first, later if it is not, and once."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from tests.unit.cluster.nodes import RECORD, RUNS, A, Alone, B, C, D
from warren.cluster.config import Known, Leadership, ShardRecord, StoreId
from warren.cluster.known_stores import DRAINING, IN, REMOVED
from warren.server.cluster.balancer import RANK_SECONDS, Balancer
from warren.server.cluster.settings import ClusterSettings
from warren.server.cluster.shard_records import ShardRecords
from warren.server.log import get_logger

SETTINGS = ClusterSettings(
    name="test",
    node="a",
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
    grace_seconds=2.5,
    replace_after_seconds=60.0,
    replicate="durable",
)
LED = RECORD._replace(epoch=1, leader=Leadership(B, RUNS[B]))


class Written:
    """Stands in for `ShardRecords`: keeps what is to be written."""

    def __init__(self) -> None:
        self.swaps: list[tuple[int, int, ShardRecord]] = []
        self.created: list[ShardRecord] = []
        self.answers: list[Callable[[Known | None], None]] = []

    def swap(
        self, shard: int, revision: int, record: ShardRecord, then: Callable[[Known | None], None]
    ) -> None:
        self.swaps.append((shard, revision, record))
        self.answers.append(then)

    async def create(self, records: list[ShardRecord]) -> None:
        self.created = records


class Scene:
    """A node that can speak to all others, and its balancer."""

    def __init__(self, me: StoreId = A) -> None:
        self.node = Alone(me)
        self.node.link(*(store for store in (A, B, C, D) if store != me))
        self.written = Written()
        self.now = 0.0
        self.learnt: list[Known] = []
        self.balancer = Balancer(
            self.node.participant,
            cast("ShardRecords", self.written),
            SETTINGS,
            get_logger(),
            learn=lambda _shard, known: self.learnt.append(known),
            clock=lambda: self.now,
        )

    def nodes(self, *stores: StoreId, state: str = IN) -> None:
        for store in stores:
            self.balancer.node_is_at(store, {"store": store, "state": state})

    def learn(self, record: ShardRecord) -> None:
        self.node.revision += 1
        self.node.shard.learn(Known(self.node.revision, record), 0.0)


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    scene.nodes(A, B, C)
    return scene


async def test_first_records_are_written_when_there_are_enough_nodes() -> None:
    scene = Scene()
    scene.nodes(A, B)
    await scene.balancer.look()
    assert scene.written.created == []
    scene.nodes(C)
    await scene.balancer.look()
    assert [set(record.replicas) for record in scene.written.created] == [{A, B, C}]
    scene.written.created = []
    await scene.balancer.look()
    assert scene.written.created, "etcd may not have taken them"


async def test_a_store_whose_node_has_another_one_is_replaced(scene: Scene) -> None:
    scene.learn(LED)
    await scene.balancer.look()
    assert scene.written.swaps == []
    scene.balancer.node_is_at(C, {"store": D, "state": IN, "former": C})
    await scene.balancer.look()
    ((_, revision, record),) = scene.written.swaps
    assert (revision, record.joining, record.leaving) == (1, (D,), (C,))


async def test_a_proposal_is_sent_once_until_it_is_answered(scene: Scene) -> None:
    scene.learn(LED)
    scene.nodes(D)
    scene.nodes(C, state=REMOVED)
    await scene.balancer.look()
    await scene.balancer.look()
    assert len(scene.written.swaps) == 1
    scene.written.answers[0](None)  # nobody knows
    await scene.balancer.look()
    assert len(scene.written.swaps) == 2
    known = Known(2, scene.written.swaps[1][2])
    scene.written.answers[1](known)
    assert scene.learnt == [known]


async def test_the_second_node_waits_for_the_first() -> None:
    scene = Scene(B)
    scene.nodes(A, B, D)
    scene.nodes(C, state=REMOVED)
    scene.learn(LED._replace(leader=Leadership(A, RUNS[A])))
    await scene.balancer.look()
    assert scene.written.swaps == []
    scene.now = RANK_SECONDS
    await scene.balancer.look()
    assert len(scene.written.swaps) == 1


async def test_the_participant_hears_who_should_lead_and_who_must_not(scene: Scene) -> None:
    scene.learn(LED)
    scene.nodes(A, state=DRAINING)
    await scene.balancer.look()
    home = scene.node.participant.node
    assert home.avoided == {A}
    assert home.preferred == {0: B}
