"""The name of the cluster, and what RabbitMQ has besides."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from tests.support.http_api import Api, make_broker
from tests.support.tokens import Issuer
from warren.broker.history import MINUTE
from warren.management.message_stats import INDEX
from warren.server.oauth.settings import OAuth2Settings


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


@pytest.mark.parametrize("path", ["/api/reset", "/api/reset/warren"])
async def test_reset_forgets_samples_of_the_past(api: Api, path: str) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"body"])
    await api.broker.sampler.take()
    assert queue.history is not None
    [publish] = INDEX["publish"]
    assert queue.history.samples(publish, MINUTE, 1, 2) == [1, 0]
    assert (await api.delete(path)).status == 204
    assert queue.history.samples(publish, MINUTE, 1, 2) == [1, 1]


async def test_samples_of_another_node_cannot_be_forgotten(api: Api) -> None:
    assert (await api.delete("/api/reset/absent")).status == 404


async def test_old_name_of_definitions_still_works(api: Api) -> None:
    old, new = [(await api.get(f"/api/{path}")).json for path in ("all-configuration", "definitions")]
    assert old == new
    assert (await api.post("/api/all-configuration", old)).status == 204


async def test_without_oauth_it_is_told_to_be_off(api: Api) -> None:
    answer = await api.request("GET", "/api/auth", user="")
    assert (answer.status, answer.json["oauth_enabled"]) == (200, False)


@pytest.mark.parametrize(
    ("backends", "issuer", "expected"),
    [
        (("oauth2",), "https://tokens.test", (True, True)),
        (("internal", "oauth2"), "https://tokens.test", (True, False)),
        (("oauth2",), "", (False, None)),
    ],
)
async def test_server_of_tokens_is_told(
    tmp_path: Path, backends: tuple[str, ...], issuer: str, expected: tuple[bool, bool | None]
) -> None:
    keys = Issuer().write_jwks(tmp_path / "keys")
    oauth2 = OAuth2Settings(resource_server_id="here", issuer=issuer, jwks_file=str(keys))
    broker = make_broker(tmp_path / "data", auth_backends=backends, oauth2=oauth2)
    async with broker, aiohttp.ClientSession() as session:
        told = (await Api(broker, session).request("GET", "/api/auth", user="")).json
    assert (told["oauth_enabled"], told.get("oauth_disable_basic_auth")) == expected
    assert told.get("oauth_provider_url", "") == issuer
