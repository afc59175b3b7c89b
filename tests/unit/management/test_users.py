"""Users over HTTP."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from tests.support.http_api import Api, make_broker
from tests.unit.broker.test_passwords import GOLDEN
from warren.broker.passwords import PasswordHash

SHA256 = "rabbit_password_hashing_sha256"


async def test_users_are_described(api: Api) -> None:
    described = (await api.get("/api/users/monitor")).json
    password = api.broker.node.users["monitor"].password
    assert password is not None
    assert described == {
        "name": "monitor",
        "password_hash": password.value,
        "hashing_algorithm": password.algorithm,
        "tags": ["monitoring"],
        "limits": {},
    }
    assert described in (await api.get("/api/users")).json
    assert [user["name"] for user in (await api.get("/api/users?name=mon")).json] == ["monitor"]
    assert (await api.get("/api/users/absent")).status == 404


@pytest.mark.parametrize("given", [{}, {"hashing_algorithm": SHA256}, {"hashing_algorithm": "scrypt"}])
async def test_user_is_made_and_logs_in(api: Api, given: dict[str, str]) -> None:
    assert (
        await api.put("/api/users/new", {"password": "pass wörd", "tags": "management"} | given)
    ).status == 201
    assert (await api.get("/api/whoami", user="new", password="pass wörd")).json == {
        "name": "new",
        "tags": ["management"],
    }
    made = api.broker.node.users["new"].password
    assert made is not None
    assert made.algorithm == given.get("hashing_algorithm", "scrypt")
    assert (await api.get("/api/whoami", user="new", password="wrong")).status == 401


async def test_user_of_the_api_is_there_after_a_restart(api: Api) -> None:
    await api.put("/api/users/new", {"password": "p", "tags": ["management", "x"]})
    await api.put("/api/user-limits/new/max-channels", {"value": 3})
    await api.broker.stop()
    async with make_broker(api.broker.config.data_dir) as again:
        user = again.node.users["new"]
        assert user.tags == {"management", "x"}
        assert user.limits.max_channels == 3


@pytest.mark.parametrize("golden", GOLDEN)
async def test_user_with_a_hash_of_rabbitmq_logs_in(api: Api, golden: PasswordHash) -> None:
    given = {"password_hash": golden.value, "hashing_algorithm": golden.algorithm, "tags": "management"}
    assert (await api.put("/api/users/old", given)).status == 201
    assert (await api.get("/api/whoami", user="old", password="password")).status == 200


async def test_user_changed_without_a_password_has_none_from_then_on(api: Api) -> None:
    await api.put("/api/users/new", {"password": "p", "tags": "management"})
    assert (await api.put("/api/users/new", {"tags": "monitoring"})).status == 204
    assert api.broker.node.users["new"].tags == {"monitoring"}
    assert (await api.get("/api/whoami", user="new", password="p")).status == 401


@pytest.mark.parametrize("field", ["password", "password_hash"])
async def test_empty_password_is_none_that_anybody_could_use(api: Api, field: str) -> None:
    assert (await api.put("/api/users/new", {field: "", "tags": "management"})).status == 201
    assert api.broker.node.users["new"].password is None
    assert (await api.get("/api/users/new")).json["password_hash"] == ""
    assert (await api.get("/api/whoami", user="new", password="")).status == 401


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"password": "p"}, "key_missing: tags"),
        ({"password": "p", "password_hash": "", "tags": ""}, "both password and password_hash are given"),
        ({"password_hash": "?", "tags": ""}, "password_hash: "),
        ({"password_hash": "AAAA", "hashing_algorithm": "rot13", "tags": ""}, "password_hash: unknown"),
        ({"password": "p", "hashing_algorithm": "rot13", "tags": ""}, "hashing_algorithm: unknown"),
        ({"password": 5, "tags": ""}, "password: expected a string"),
        ({"password": "p", "tags": [5]}, "tags: expected a list of strings"),
        ({"tags": "", "limits": {"max-odd": 5}}, "unknown limit 'max-odd'"),
        ({"tags": "\ud800"}, "tags: expected a string of whole characters"),
        ([], "expected {"),
    ],
)
async def test_body_that_makes_no_sense_makes_no_user(api: Api, body: Any, reason: str) -> None:
    answer = await api.put("/api/users/new", body)
    assert answer.status == 400
    assert answer.json["reason"].startswith(reason)
    assert "new" not in api.broker.node.users


async def test_users_are_deleted(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.put(f"/api/users/{name}", {"password": name, "tags": ""})
    assert (await api.delete("/api/users/a")).status == 204
    assert (await api.delete("/api/users/a")).status == 404
    answer = await api.post("/api/users/bulk-delete", {"users": ["b", "c", "absent"]})
    assert (answer.status, answer.json["reason"]) == (400, "no_such_user: absent")
    assert {"b", "c"} < set(api.broker.node.users)
    assert (await api.post("/api/users/bulk-delete", {"users": ["b", "c"]})).status == 204
    assert not {"a", "b", "c"} & set(api.broker.node.users)


@pytest.mark.parametrize("users", ["a", [" a "], [5], {}])
async def test_only_users_whose_very_names_are_listed_are_deleted(api: Api, users: object) -> None:
    await api.put("/api/users/a", {"password": "a", "tags": ""})
    assert (await api.post("/api/users/bulk-delete", {"users": users})).status == 400
    assert "a" in api.broker.node.users


async def test_users_without_permissions_are_found(api: Api) -> None:
    assert [user["name"] for user in (await api.get("/api/users/without-permissions")).json] == ["monitor"]


async def test_password_is_hashed_as_rabbitmq_does(api: Api) -> None:
    for answer in (
        await api.get("/api/auth/hash_password/s%C3%A4cret"),
        await api.post("/api/auth/hash_password", {"password": "säcret"}),
    ):
        raw = base64.b64decode(answer.json["ok"])
        assert raw[4:] == hashlib.sha256(raw[:4] + "säcret".encode()).digest()


@pytest.mark.parametrize("given", [{}, {"hashing_algorithm": SHA256}])
async def test_password_of_half_characters_is_refused(api: Api, given: dict[str, str]) -> None:
    half = {"password": "\udc80", "tags": ""} | given
    answer = await api.put("/api/users/new", half)
    assert (answer.status, answer.json["reason"]) == (400, "password: expected a string of whole characters")
    assert (await api.post("/api/auth/hash_password", half)).status == 400
    assert (await api.get("/api/auth/hash_password/%80")).status < 500


@pytest.mark.parametrize("name", ["bulk-delete", "without-permissions"])
async def test_names_of_paths_are_no_users(api: Api, name: str) -> None:
    """As in RabbitMQ, but for longer names that only begin so."""
    assert (await api.put(f"/api/users/{name}", {"password_hash": "", "tags": ""})).status == 405
    assert (await api.delete(f"/api/users/{name}")).status == 405
    assert (await api.put(f"/api/users/{name}-2", {"password_hash": "", "tags": ""})).status == 201
    assert (await api.get(f"/api/users/{name}-2")).json["name"] == f"{name}-2"
