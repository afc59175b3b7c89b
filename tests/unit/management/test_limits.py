"""The limits of vhosts and users over HTTP."""

from __future__ import annotations

import pytest

from tests.support.http_api import Api


@pytest.mark.parametrize(
    ("kind", "of", "names"),
    [
        ("vhost", "%2F", ["max-connections", "max-queues"]),
        ("user", "reader", ["max-connections", "max-channels", "max-publish-rate", "max-consume-bytes"]),
    ],
)
@pytest.mark.parametrize("value", [-1, -2])
async def test_limits_are_set_told_and_removed(
    api: Api, kind: str, of: str, names: list[str], value: int
) -> None:
    """As in RabbitMQ, any negative value removes a limit."""
    path = f"/api/{kind}-limits/{of}"
    assert (await api.get(path)).json == []
    for number, name in enumerate(names, start=1):
        assert (await api.put(f"{path}/{name}", {"value": number})).status == 204
    row = {
        kind: of.replace("%2F", "/"),
        "value": {name: number for number, name in enumerate(names, start=1)},
    }
    assert (await api.get(path)).json == [row]
    assert (await api.get(f"/api/{kind}-limits")).json == [row]
    assert (await api.delete(f"{path}/{names[0]}")).status == 204
    assert (await api.put(f"{path}/{names[1]}", {"value": value})).status == 204
    assert names[0] not in str((await api.get(path)).json)
    assert names[1] not in str((await api.get(path)).json)


async def test_limit_is_in_force_at_once(api: Api) -> None:
    api.declare("a")
    await api.put("/api/vhost-limits/%2F/max-queues", {"value": 1})
    assert api.vhost.limits.max_queues == 1
    await api.put("/api/user-limits/reader/max-channels", {"value": 0})
    assert api.broker.node.users["reader"].limits.max_channels == 0


@pytest.mark.parametrize("path", ["/api/vhost-limits/%2F", "/api/user-limits/reader"])
@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("odd", {"value": 5}, "unknown limit 'odd': expected one of max-connections, "),
        ("max-connections", {}, "key_missing: value"),
        ("max-connections", {"value": "many"}, "value: expected a whole number"),
    ],
)
async def test_limit_that_makes_no_sense_is_refused(
    api: Api, path: str, name: str, body: object, reason: str
) -> None:
    answer = await api.put(f"{path}/{name}", body)
    assert answer.status == 400
    assert answer.json["reason"].startswith(reason)


@pytest.mark.parametrize(("path", "refused"), [("vhost-limits/absent", 404), ("user-limits/absent", 400)])
async def test_limits_of_what_is_not_there_are_refused(api: Api, path: str, refused: int) -> None:
    """With RabbitMQ's statuses."""
    assert (await api.get(f"/api/{path}")).status == 404
    assert (await api.put(f"/api/{path}/max-connections", {"value": 5})).status == refused
    assert (await api.delete(f"/api/{path}/max-connections")).status == 404


@pytest.mark.parametrize("path", ["/api/vhost-limits/%2F", "/api/user-limits/reader"])
async def test_limit_that_there_is_not_can_be_removed(api: Api, path: str) -> None:
    await api.put(f"{path}/max-connections", {"value": 5})
    assert (await api.delete(f"{path}/odd")).status == 204
    assert (await api.get(path)).json[0]["value"] == {"max-connections": 5}
