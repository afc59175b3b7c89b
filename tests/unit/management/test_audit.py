"""Changes over the API, and attempts at them, are events; reading is not."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.http_api import Api
from warren import events


@pytest.fixture
def seen(api: Api) -> list[events.AdministrativeAction]:
    found: list[events.AdministrativeAction] = []
    api.broker.subscribe(events.AdministrativeAction, found.append)
    return found


async def test_change_tells_who_from_where_and_what(
    api: Api, seen: list[events.AdministrativeAction]
) -> None:
    await api.request("PUT", "/api/vhosts/new%2Fone?secret=canary", data=b'{"tracing": false}')
    assert seen == [events.AdministrativeAction("guest", "127.0.0.1", "PUT /api/vhosts/new%2Fone", 201)]


async def test_names_with_slashes_are_told_apart(api: Api, seen: list[events.AdministrativeAction]) -> None:
    for path in ("a/b%2Fc", "a%2Fb/c", "a%252Fb/c", "%C3%A9/%80"):
        await api.delete(f"/api/queues/{path}")
    names = [event.action.removeprefix("DELETE /api/queues/") for event in seen]
    assert names == ["a/b%2Fc", "a%2Fb/c", "a%252Fb/c", "é/\udc80"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/auth/hash_password/canary",
        "/api/auth/x/hash_password/canary/y",
        "/api/auth/hash_password%2Fcanary",
        "/api/auth/hash%5Fpassword/canary",
    ],
)
async def test_passwords_in_paths_are_not_told(
    api: Api, seen: list[events.AdministrativeAction], caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level("DEBUG", "warren")
    assert (await api.request("POST", path)).status in {404, 405}
    assert [event.action[-1] for event in seen] == ["…"]
    assert "canary" not in str(seen)
    assert "canary" not in caplog.text


async def test_refused_change_is_told(api: Api, seen: list[events.AdministrativeAction]) -> None:
    await api.request("DELETE", "/api/vhosts/%2F", user="manager")
    assert seen == [events.AdministrativeAction("manager", "127.0.0.1", "DELETE /api/vhosts/%2F", 401)]


async def test_who_is_not_logged_in_is_not_told_here(
    api: Api, seen: list[events.AdministrativeAction]
) -> None:
    assert (await api.request("DELETE", "/api/vhosts/%2F", password="wrong")).status == 401
    assert seen == []


async def test_reading_and_access_to_messages_are_not_told(
    api: Api, seen: list[events.AdministrativeAction]
) -> None:
    assert (await api.get("/api/vhosts")).status == 200
    assert (await api.request("POST", "/api/segments/%2F", data=b"{}")).status < 500
    assert seen == []


async def test_change_whose_client_hangs_up_is_told(
    api: Api, seen: list[events.AdministrativeAction]
) -> None:
    """The job is begun, and waits for the alarm to end; so does the answer."""
    api.declare("q")
    api.broker.node.alarms.add("disk")
    told = asyncio.Event()
    api.broker.subscribe(events.AdministrativeAction, lambda _event: told.set())
    path = "/api/queues/%2F/q/delete-messages?wait=60"
    asking = asyncio.create_task(api.request("POST", path))
    while not (await api.get("/api/message-jobs")).json:
        pass
    asking.cancel()
    await told.wait()
    action = "POST /api/queues/%2F/q/delete-messages"
    assert seen == [events.AdministrativeAction("guest", "127.0.0.1", action, 499)]
    api.broker.node.alarms.discard("disk")
