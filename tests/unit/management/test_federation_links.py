"""Federation links over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.federation import (
    are_running,
    declare_exchange,
    declare_queue,
    federate,
    federation_of,
    named_broker,
    set_upstream,
    until,
)
from tests.support.http_api import Api
from warren.relay.supervisor import State

NOBODY = "amqp://me:secret@127.0.0.1:1/v"  # nobody listens there


async def until_failed(api: Api) -> None:
    await until(
        lambda: State.TERMINATED in [one.supervised.status.state for one in federation_of(api.broker).all()]
    )


async def test_links_are_told_as_in_rabbitmq(api: Api, tmp_path: Path) -> None:
    async with named_broker("up", tmp_path) as up:
        declare_exchange(api.broker, "x")
        declare_queue(api.broker, "q")
        set_upstream(api.broker, "up", up.url)
        federate(api.broker, "^[xq]$", "all")
        await until(lambda: are_running(api.broker, 2))
        for path in ("", "/%2F"):
            exchange, queue = (await api.get(f"/api/federation-links{path}")).json
            for link in (exchange, queue):
                assert link.pop("timestamp")
                assert len(link.pop("id")) == 8
                assert link.pop("local_connection")
            common = {
                "node": api.broker.node.name,
                "vhost": "/",
                "upstream": "up",
                "status": "running",
                "uri": f"amqp://{up.address}",
            }
            assert exchange == {"type": "exchange", "exchange": "x", "upstream_exchange": "x", **common}
            told = {"queue": "q", "upstream_queue": "q", "consumer_tag": "federation-link-up"}
            assert queue == {"type": "queue", **told, **common}
        assert (await api.get("/api/federation-links/state/down")).json == []
        assert (await api.get("/api/federation-links?name=q&columns=type")).json == [{"type": "queue"}]
        await api.broker.stop()


async def test_link_that_failed_says_why_and_not_its_password(api: Api) -> None:
    declare_exchange(api.broker, "x")
    set_upstream(api.broker, "up", NOBODY, reconnect_delay=0)
    federate(api.broker, "^x$")
    await until_failed(api)
    for path in ("/state/down", "/%2F/state/down", ""):
        (link,) = (await api.get(f"/api/federation-links{path}")).json
        assert (link["status"], link["uri"]) == ("error", "amqp://127.0.0.1:1/v")
        assert link["error"].startswith("cannot connect to 127.0.0.1:1: ")
        assert "local_connection" not in link
    metrics = (await api.get("/metrics")).body.decode()
    assert 'warren_federation_links{status="error"} 1' in metrics
    assert 'warren_federation_links{status="running"} 0' in metrics


async def test_link_can_be_started_again(api: Api) -> None:
    declare_exchange(api.broker, "x")
    set_upstream(api.broker, "up", NOBODY, reconnect_delay=0)
    federate(api.broker, "^x$")
    await until_failed(api)
    before = federation_of(api.broker).all()[0]
    (link,) = (await api.get("/api/federation-links")).json
    path = f"/api/federation-links/vhost/%2F/{link['id']}/{link['node']}/restart"
    assert (await api.delete(path)).status == 204
    await until(lambda: bool(federation_of(api.broker).all()))
    (after,) = federation_of(api.broker).all()
    assert after is not before
    assert after.link.key == before.link.key


@pytest.mark.parametrize("path", ["nobody/NODE", "ID/nobody"])
async def test_link_that_is_not_there_cannot_be_started_again(api: Api, path: str) -> None:
    declare_exchange(api.broker, "x")
    set_upstream(api.broker, "up", NOBODY, reconnect_delay=0)
    federate(api.broker, "^x$")
    (running,) = federation_of(api.broker).all()
    path = path.replace("NODE", api.broker.node.name).replace("ID", running.link.key.id)
    answer = await api.delete(f"/api/federation-links/vhost/%2F/{path}/restart")
    link, node = path.split("/")
    reason = f"no federation link '{link}' in vhost '/' on node '{node}'"
    assert (answer.status, answer.json["reason"]) == (404, reason)


async def test_upstream_that_makes_no_sense_is_refused(api: Api) -> None:
    answer = await api.put("/api/parameters/federation-upstream/%2F/up", {"value": {"uri": "http://there"}})
    assert answer.status == 400
    assert answer.json["reason"] == "upstream 'up': uri is wrong: not an amqp:// URI, nor amqps://"
    answer = await api.put("/api/parameters/federation-upstream-set/%2F/s", {"value": [{}]})
    assert answer.status == 400
    assert answer.json["reason"] == "upstream set 's': upstream should be the name of one"
