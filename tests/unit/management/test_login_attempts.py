"""How often clients tried to log in, over HTTP."""

from __future__ import annotations

from tests.support.http_api import Api

PATH = "/api/auth/attempts/warren"


async def test_logins_are_counted_and_counted_anew(api: Api) -> None:
    await api.get("/api/whoami", user="manager")
    await api.get("/api/whoami", user="manager", password="wrong")
    [http] = (await api.get(PATH)).json
    assert http == {
        "protocol": "http",
        "auth_attempts": 3,
        "auth_attempts_succeeded": 2,
        "auth_attempts_failed": 1,
    }
    by_source = (await api.get(f"{PATH}/source")).json
    assert by_source[0] == {
        "protocol": "http",
        "remote_address": "127.0.0.1",
        "username": "manager",
        "auth_attempts": 2,
        "auth_attempts_succeeded": 1,
        "auth_attempts_failed": 1,
    }
    assert (await api.delete(PATH)).status == 204
    assert [row["auth_attempts"] for row in (await api.get(PATH)).json] == [1]


async def test_node_that_is_not_there_is_404(api: Api) -> None:
    for method in ("GET", "DELETE"):
        assert (await api.request(method, "/api/auth/attempts/absent")).status == 404
        assert (await api.request(method, "/api/auth/attempts/absent/source")).status == 404


async def test_attempts_are_those_of_the_node_when_the_cluster_is_renamed(api: Api) -> None:
    assert (await api.put("/api/cluster-name", {"name": "other"})).status == 204
    assert (await api.get("/api/auth/attempts/warren")).status == 200
    answer = await api.get("/api/auth/attempts/other")
    assert (answer.status, answer.json["reason"]) == (404, "no node 'other': this one is 'warren'")
