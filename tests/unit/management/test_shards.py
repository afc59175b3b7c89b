"""What the HTTP API tells of a cluster, and lets operators do with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.http_api import Api
from tests.unit.management.fake_cluster import OTHER, THIS, FakeCluster, api_in

SHARDS = "/api/cluster/shards"
DRAIN = "/api/cluster/drain"
CRITICAL = "/api/health/checks/node-is-quorum-critical"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def clustered(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[Api]:
    async with api_in(cluster, tmp_path / "data") as api:
        yield api


async def test_shards_are_told_with_what_followers_lack(clustered: Api) -> None:
    assert (await clustered.get(SHARDS)).json == [
        {
            "number": 5,
            "epoch": 7,
            "leader": THIS,
            "replicas": [THIS, OTHER],
            "in_sync": [THIS],
            "joining": [],
            "leaving": [],
            "role": "open",
            "is_older_in_etcd": False,
            "followers": [
                {
                    "node": OTHER,
                    "is_in_step": False,
                    "in_step_seconds": None,
                    "batches_unacked": 3,
                    "bytes_in_flight": 100,
                }
            ],
        }
    ]
    assert (await clustered.get(f"{SHARDS}?columns=number,leader")).json == [{"number": 5, "leader": THIS}]


async def test_nodes_are_listed_by_name_and_this_one_tells_most(clustered: Api) -> None:
    other, this, zoe = (await clustered.get("/api/nodes")).json
    assert [(each["name"], each["running"]) for each in (other, this, zoe)] == [
        (OTHER, False),
        (THIS, True),
        ("zoe", True),
    ]
    assert (this["leads"], this["keeps"], this["in_sync"]) == (1, 2, 2)
    assert this["mem_used"] > 0
    assert other == (await clustered.get(f"/api/nodes/{OTHER}")).json
    assert (other["type"], other["amqp_address"], other["version"]) == ("disc", f"{OTHER}:5672", "1.2.3")
    assert (await clustered.get("/api/nodes/none")).status == 404
    assert (await clustered.get(f"/api/nodes/{OTHER}/memory")).status == 404


async def test_queues_in_shards_tell_who_leads_and_keeps_them(clustered: Api) -> None:
    for name in ("kept", "single"):
        clustered.declare(name)
    queue = (await clustered.get("/api/queues/%2F/kept")).json
    expected = {"node": OTHER, "leader": OTHER, "members": [THIS, OTHER], "online": [THIS], "shard": 5}
    assert {name: queue[name] for name in expected} == expected
    for query in ("", "?disable_stats=true", "?columns=name,node,leader,members,online,shard"):
        kept, single = (await clustered.get(f"/api/queues{query}")).json
        assert {name: kept[name] for name in expected} == expected
        assert (single["name"], single["node"]) == ("single", THIS)
        assert "members" not in single


async def test_a_node_is_drained_and_undrained(clustered: Api, cluster: FakeCluster) -> None:
    assert (await clustered.put(DRAIN, {})).status == 204
    assert cluster.is_draining
    assert (await clustered.get(f"/api/nodes/{THIS}")).json["being_drained"] is True
    assert (await clustered.delete(DRAIN)).status == 204
    assert not cluster.is_draining


async def test_without_etcd_nothing_is_drained(clustered: Api, cluster: FakeCluster) -> None:
    cluster.can_reach_etcd = False
    answer = await clustered.put(DRAIN, {})
    assert (answer.status, answer.json["reason"]) == (503, "no etcd")


async def test_a_shard_is_handed_over(clustered: Api, cluster: FakeCluster) -> None:
    assert (await clustered.put(f"{SHARDS}/5/leader", {"node": OTHER})).status == 204
    assert cluster.moved == [(5, OTHER)]


@pytest.mark.parametrize(
    ("shard", "body", "status"),
    [("5", {"node": "none"}, 400), ("5", {}, 400), ("5", [], 400), ("five", {"node": OTHER}, 404)],
)
async def test_moves_that_make_no_sense_are_refused(
    clustered: Api, cluster: FakeCluster, shard: str, body: object, status: int
) -> None:
    assert (await clustered.put(f"{SHARDS}/{shard}/leader", body)).status == status
    assert cluster.moved == []


async def test_a_node_is_made_to_lead_a_shard_if_loss_is_accepted(
    clustered: Api, cluster: FakeCluster
) -> None:
    answer = await clustered.post(f"{SHARDS}/5/forced-leader", {"node": THIS, "accept_data_loss": True})
    assert (answer.status, answer.json) == (
        200,
        {"node": THIS, "epoch": 8, "were_in_sync": [OTHER], "queues": 2},
    )
    assert cluster.forced == [5]


@pytest.mark.parametrize(
    ("shard", "body", "status"),
    [
        ("5", {"node": THIS}, 400),
        ("5", {"node": THIS, "accept_data_loss": False}, 400),
        ("5", {"node": OTHER, "accept_data_loss": True}, 400),
        ("5", {"accept_data_loss": True}, 400),
        ("five", {"node": THIS, "accept_data_loss": True}, 404),
    ],
)
async def test_nothing_is_forced_without_a_right_wish(
    clustered: Api, cluster: FakeCluster, shard: str, body: object, status: int
) -> None:
    assert (await clustered.post(f"{SHARDS}/{shard}/forced-leader", body)).status == status
    assert cluster.forced == []


async def test_a_node_that_is_known_is_removed(clustered: Api, cluster: FakeCluster) -> None:
    assert (await clustered.delete(f"/api/cluster/nodes/{OTHER}")).status == 204
    assert (await clustered.delete("/api/cluster/nodes/none")).status == 400
    assert cluster.removed == [OTHER]


async def test_a_node_on_which_queues_depend_is_critical(clustered: Api, cluster: FakeCluster) -> None:
    assert (await clustered.get(CRITICAL)).json == {"status": "ok"}
    clustered.declare("kept", queue_type="quorum")
    cluster.critical = [("/", "kept"), ("/", "deleted"), ("gone", "q")]
    answer = await clustered.get(CRITICAL)
    assert (answer.status, answer.json) == (
        503,
        {
            "status": "failed",
            "reason": "There are queues that would lose their quorum if the target node is shut down",
            "queues": [
                {
                    "name": "kept",
                    "virtual_host": "/",
                    "readable_name": "queue 'kept' in vhost '/'",
                    "type": "quorum",
                }
            ],
        },
    )


async def test_a_broker_that_is_alone_has_no_shards_and_nobody_to_hand_them_to(api: Api) -> None:
    assert (await api.get(SHARDS)).json == []
    for answer in (
        await api.put(DRAIN, {}),
        await api.delete(DRAIN),
        await api.delete("/api/cluster/nodes/other"),
        await api.put(f"{SHARDS}/0/leader", {"node": OTHER}),
        await api.post(f"{SHARDS}/0/forced-leader", {"node": OTHER, "accept_data_loss": True}),
    ):
        assert (answer.status, answer.json["reason"]) == (400, "this node is not in a cluster")
