"""The name of the cluster, and what RabbitMQ has besides."""

from __future__ import annotations

from tests.support.http_api import Api


async def test_cluster_name_is_told(api: Api) -> None:
    assert (await api.get("/api/cluster-name")).json == {"name": "warren"}


async def test_there_are_no_extensions(api: Api) -> None:
    assert (await api.get("/api/extensions")).json == []


async def test_rebalancing_is_done_at_once(api: Api) -> None:
    assert (await api.request("POST", "/api/rebalance/queues")).status == 204
