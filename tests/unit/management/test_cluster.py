"""The name of the cluster, and what RabbitMQ has besides."""

from __future__ import annotations

import pytest

from tests.support.http_api import Api


async def test_cluster_name_is_told(api: Api) -> None:
    assert (await api.get("/api/cluster-name")).json == {"name": "warren"}


async def test_there_are_no_extensions(api: Api) -> None:
    assert (await api.get("/api/extensions")).json == []


async def test_flags_of_what_there_is_are_enabled(api: Api) -> None:
    flags = (await api.get("/api/feature-flags")).json
    assert "stream_queue" in [flag["name"] for flag in flags]
    assert {flag["state"] for flag in flags} == {"enabled"}
    assert (await api.request("PUT", "/api/feature-flags/stream_queue/enable")).status == 204
    unknown = await api.request("PUT", "/api/feature-flags/odd/enable")
    assert (unknown.status, unknown.json["error"]) == (400, "bad_request")
    assert (await api.get("/api/feature-flags", user="monitor")).status == 401


@pytest.mark.parametrize("path", ["", "/used"])
async def test_no_feature_is_deprecated(api: Api, path: str) -> None:
    assert (await api.get(f"/api/deprecated-features{path}", user="manager")).json == []


async def test_rebalancing_is_done_at_once(api: Api) -> None:
    assert (await api.request("POST", "/api/rebalance/queues")).status == 204
