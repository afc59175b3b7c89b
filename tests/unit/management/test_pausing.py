"""Pausing queues over HTTP."""

from __future__ import annotations

from tests.support.http_api import Api


async def test_queue_is_paused_and_resumed(api: Api) -> None:
    queue = api.declare("q")
    assert (await api.request("PUT", "/api/queues/%2F/q/pause")).status == 204
    assert queue.paused
    assert (await api.get("/api/queues/%2F/q")).json["state"] == "paused"
    assert (await api.request("PUT", "/api/queues/%2F/q/pause")).status == 204
    assert (await api.request("PUT", "/api/queues/%2F/q/resume")).status == 204
    assert not queue.paused
    assert (await api.get("/api/queues/%2F/q")).json["state"] == "running"


async def test_user_needs_to_configure_the_queue(api: Api) -> None:
    queue = api.declare("q")
    assert (await api.request("PUT", "/api/queues/%2F/q/pause", user="manager")).status == 401
    assert not queue.paused
    assert (await api.request("PUT", "/api/queues/%2F/absent/pause")).status == 404
