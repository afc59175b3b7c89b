"""Permissions and topic permissions over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http_api import Api
from warren.broker.access import Permissions, TopicPermissions

SOME = {"configure": "^a", "write": "^b", "read": "^c"}
TOPICS = {"exchange": "amq.topic", "write": "^b", "read": "^c"}


async def test_permissions_are_set_changed_and_taken_away(api: Api) -> None:
    path = "/api/permissions/%2F/monitor"
    assert (await api.get(path)).status == 404
    assert (await api.put(path, SOME | {"read": ""})).status == 201
    assert (await api.put(path, SOME)).status == 204
    user = api.broker.node.users["monitor"]
    assert user.permissions == {"/": Permissions("^a", "^b", "^c")}
    assert (await api.get(path)).json == {"user": "monitor", "vhost": "/", **SOME}
    assert (await api.delete(path)).status == 204
    assert (await api.delete(path)).status == 404
    assert user.permissions == {}


async def test_permissions_are_listed(api: Api) -> None:
    await api.request("PUT", "/api/vhosts/other")
    reader = {"user": "reader", "vhost": "/", "configure": "", "write": "", "read": "^open"}
    assert (await api.get("/api/users/reader/permissions")).json == [reader]
    assert reader in (await api.get("/api/permissions")).json
    assert reader in (await api.get("/api/vhosts/%2F/permissions")).json
    assert [row["user"] for row in (await api.get("/api/vhosts/other/permissions")).json] == ["guest"]
    assert (await api.get("/api/users/absent/permissions")).status == 404
    assert (await api.get("/api/vhosts/absent/permissions")).status == 404


@pytest.mark.parametrize("kind", ["permissions", "topic-permissions"])
@pytest.mark.parametrize("of", ["%2F/absent", "absent/guest"])
async def test_user_and_vhost_must_be_there(api: Api, kind: str, of: str) -> None:
    answer = await api.put(f"/api/{kind}/{of}", SOME | TOPICS)
    assert answer.status == 400
    assert answer.json["reason"].startswith("vhost_or_user_not_found: no ")
    assert (await api.get(f"/api/{kind}/{of}")).status == 404
    assert (await api.delete(f"/api/{kind}/{of}")).status == 404


@pytest.mark.parametrize("kind", ["permissions", "topic-permissions"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"read": None}, "key_missing: read"),
        ({"write": "("}, "'(' is no regular expression"),
        ({"read": 5}, "read: expected a string"),
    ],
)
async def test_patterns_that_make_no_sense_are_refused(
    api: Api, kind: str, change: dict[str, Any], reason: str
) -> None:
    answer = await api.put(f"/api/{kind}/%2F/monitor", SOME | TOPICS | change)
    assert answer.status == 400
    assert answer.json["reason"].startswith(reason)
    user = api.broker.node.users["monitor"]
    assert (user.permissions, user.topic_permissions) == ({}, {})


async def test_topic_permissions_are_set_listed_and_removed(api: Api) -> None:
    path = "/api/topic-permissions/%2F/reader"
    assert (await api.get(path)).status == 404
    assert (await api.put(path, TOPICS)).status == 201
    assert (await api.put(path, TOPICS | {"exchange": "e"})).status == 204
    user = api.broker.node.users["reader"]
    granted = TopicPermissions("^b", "^c")
    assert user.topic_permissions == {("/", "amq.topic"): granted, ("/", "e"): granted}
    row = {"user": "reader", "vhost": "/", **TOPICS}
    for listed in (path, "/api/topic-permissions", "/api/users/reader/topic-permissions"):
        assert (await api.get(listed)).json == [row, row | {"exchange": "e"}]
    assert len((await api.get("/api/vhosts/%2F/topic-permissions")).json) == 2
    assert (await api.get(f"{path}/amq.topic")).json == [row]
    assert (await api.delete(f"{path}/absent")).status == 204
    assert (await api.delete(f"{path}/e")).status == 204
    assert (await api.get(path)).json == [row]
    assert (await api.delete(path)).status == 204
    assert (await api.delete(path)).status == 404
    assert user.topic_permissions == {}


async def test_permissions_go_by_the_names_of_users(api: Api) -> None:
    rows = (await api.get("/api/permissions?name=read&columns=user,vhost")).json
    assert rows == [{"user": "reader", "vhost": "/"}]
    answer = await api.get("/api/permissions/%2F/monitor")
    assert (answer.status, answer.json["reason"]) == (404, "no permissions of user 'monitor' in vhost '/'")
