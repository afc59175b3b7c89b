"""Vhosts over HTTP, and switching their firehose on and off."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.http_api import Api, make_broker
from warren.broker.access import Permissions
from warren.broker.vhost_metadata import VhostMetadata
from warren.cli.main import main

TRACED = json.dumps({"tracing": True}).encode()
BAD_BODIES = [
    b"no",
    b"[]",
    b'{"tracing": "yes"}',
    b'{"tracing": 1}',
    b'{"description": 5}',
    b'{"tags": {}}',
    b'{"metadata": 5}',
    b'{"default_queue_type": "odd"}',
    b"x" * 5000,
]
UNTRACED = json.dumps({"tracing": False}).encode()


async def test_vhosts_are_described(api: Api) -> None:
    described = {
        "name": "/",
        "description": "",
        "tags": [],
        "default_queue_type": "undefined",
        "metadata": {"description": "", "tags": []},
        "tracing": False,
        "cluster_state": {"warren": "running"},
    }
    row = (await api.get("/api/vhosts/%2F")).json
    assert row | described == row
    assert (await api.get("/api/vhosts")).json == [row]


async def test_vhost_that_is_not_there_is_404(api: Api) -> None:
    for method in ("GET", "DELETE"):
        answer = await api.request(method, "/api/vhosts/absent")
        assert (answer.status, answer.json["reason"]) == (404, "no vhost 'absent'")


@pytest.mark.parametrize(
    ("path", "status"), [("%2F/start/warren", 204), ("%2F/start/other", 400), ("absent/start/warren", 400)]
)
async def test_vhost_that_is_there_is_started(api: Api, path: str, status: int) -> None:
    assert (await api.request("POST", f"/api/vhosts/{path}")).status == status


async def test_firehose_is_switched_for_one_vhost(api: Api) -> None:
    await api.request("PUT", "/api/vhosts/other")
    for body, tracing in ((TRACED, True), (b"", True), (b"{}", True), (UNTRACED, False)):
        answer = await api.request("PUT", "/api/vhosts/%2F", data=body)
        assert answer.status == 204
        assert (await api.get("/api/vhosts/%2F")).json["tracing"] is tracing
        assert (await api.get("/api/vhosts/other")).json["tracing"] is False


async def test_vhost_is_made_for_its_maker_and_deleted(api: Api) -> None:
    assert (await api.request("PUT", "/api/vhosts/new", data=TRACED)).status == 201
    assert api.broker.node.users["guest"].permissions["new"] == Permissions(".*", ".*", ".*")
    assert (await api.get("/api/vhosts/new")).json["tracing"] is True
    assert (await api.request("DELETE", "/api/vhosts/new")).status == 204
    assert [vhost["name"] for vhost in (await api.get("/api/vhosts")).json] == ["/"]
    assert "new" not in api.broker.node.users["guest"].permissions


@pytest.mark.parametrize("tags", ["b, a", ["a", "b"]])
async def test_vhost_has_a_description_tags_and_a_default_type(api: Api, tags: object) -> None:
    given = {"description": "mine", "tags": tags, "default_queue_type": "quorum"}
    assert (await api.put("/api/vhosts/new", given)).status == 201
    told = {"description": "mine", "tags": ["a", "b"], "default_queue_type": "quorum"}
    described = (await api.get("/api/vhosts/new")).json
    assert described["metadata"] == told
    assert {name: described[name] for name in told} == told


async def test_metadata_that_is_not_given_stays(api: Api) -> None:
    await api.put("/api/vhosts/new", {"description": "mine", "default_queue_type": "stream"})
    await api.put("/api/vhosts/new", {"tracing": True})
    await api.put("/api/vhosts/new", {"tags": "a", "default_queue_type": "undefined"})
    assert api.broker.node.vhosts["new"].metadata == VhostMetadata("mine", frozenset({"a"}), None)


async def test_what_was_answered_is_there_after_a_restart_but_for_tracing(api: Api) -> None:
    await api.request("PUT", "/api/vhosts/gone")
    await api.put("/api/vhosts/kept", {"tracing": True, "description": "mine"})
    await api.request("DELETE", "/api/vhosts/gone")
    await api.broker.stop()
    async with make_broker(api.broker.config.data_dir) as again:
        assert set(again.node.vhosts) == {"/", "kept"}
        assert again.node.vhosts["kept"].firehose is None
        assert again.node.vhosts["kept"].metadata.description == "mine"
        assert set(again.node.users["guest"].permissions) == {"/", "kept"}


@pytest.mark.parametrize("user", ["reader", "manager", "monitor"])
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_only_administrators_change_vhosts(api: Api, user: str, method: str) -> None:
    answer = await api.request(method, "/api/vhosts/%2F", user=user, data=TRACED)
    assert (answer.status, answer.json["reason"]) == (401, "Not administrator user")
    assert api.vhost.firehose is None


@pytest.mark.parametrize("body", BAD_BODIES)
async def test_body_that_makes_no_sense_changes_nothing(api: Api, body: bytes) -> None:
    answer = await api.request("PUT", "/api/vhosts/new", data=body)
    assert answer.status == 400
    assert "new" not in api.broker.node.vhosts


async def test_name_that_is_too_long_is_400(api: Api) -> None:
    assert (await api.request("PUT", f"/api/vhosts/{'v' * 256}")).status == 400


async def test_command_switches_the_firehose(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://guest:guest@{api.broker.services['http'].address}/"
    for switch in ("on", "off"):
        code = await asyncio.to_thread(main, ["trace", switch, "--url", url])
        assert (code, api.vhost.firehose is not None) == (0, switch == "on")
    assert await asyncio.to_thread(main, ["trace", "on", "--vhost", "absent", "--url", url]) == 1
    assert "absent" not in api.broker.node.vhosts
    refused = url.replace("guest:guest", "guest:wrong")
    assert await asyncio.to_thread(main, ["trace", "on", "--url", refused]) == 1
    assert await asyncio.to_thread(main, ["trace", "on", "--url", "nonsense"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "warren trace: no vhost 'absent'",
        f"warren trace: Login failed: user 'guest' at {url.replace('guest:guest@', '').rstrip('/')}",
        "warren trace: --url: not a URL such as http://user:password@host:15672",
    ]
