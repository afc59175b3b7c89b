"""Importing definitions over HTTP."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.http_api import USERS, Api, make_broker
from tests.unit.broker.test_passwords import GOLDEN, MD5, salted
from tests.unit.management.test_definitions import make_all
from warren.broker import commands
from warren.broker.access import Permissions, TopicPermissions
from warren.broker.vhost_metadata import VhostMetadata
from warren.management.definitions_import import OBJECTS_A_TURN

QUORUM = {"default_queue_type": "quorum"}
OPERATOR = {"pattern": "", "definition": {"max-length": 2}, "priority": 0, "apply-to": "queues"}
QUEUE = {"vhost": "/", "name": "q", "durable": True, "auto_delete": False, "arguments": {}}


async def test_what_was_exported_makes_the_same_again(api: Api, tmp_path: Path) -> None:
    await make_all(api)
    exported = (await api.get("/api/definitions")).json
    async with make_broker(tmp_path / "other", users=USERS[:1]) as broker, aiohttp.ClientSession() as session:
        other = Api(broker, session)
        assert (await other.post("/api/definitions", exported)).status == 204
        assert (await other.get("/api/definitions")).json == exported
        assert (await other.post("/api/definitions", exported)).status == 204
        assert (await other.get("/api/definitions")).json == exported
        assert (await other.get("/api/whoami", user="manager")).status == 200
        await broker.stop()
    async with make_broker(tmp_path / "other", users=USERS[:1]) as broker, aiohttp.ClientSession() as session:
        assert (await Api(broker, session).get("/api/definitions")).json == exported


async def test_definitions_of_a_vhost_go_into_another_one(api: Api) -> None:
    await make_all(api)
    exported = (await api.get("/api/definitions/%2F")).json
    await api.request("PUT", "/api/vhosts/copy")
    assert (await api.post("/api/definitions/copy", exported)).status == 204
    again = (await api.get("/api/definitions/copy")).json
    for kind in ("parameters", "policies", "queues", "exchanges", "bindings"):
        assert again[kind] == exported[kind]
    assert (await api.post("/api/definitions/absent", exported)).status == 404


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.algorithm)
async def test_users_log_in_with_their_old_passwords(api: Api, golden: Any) -> None:
    user = {
        "name": "old",
        "password_hash": golden.value,
        "hashing_algorithm": golden.algorithm,
        "tags": ["management"],
        "limits": {"max-channels": 7},
    }
    assert (await api.post("/api/definitions", {"users": [user]})).status == 204
    assert (await api.get("/api/whoami", user="old", password="password")).status == 200
    assert api.broker.node.users["old"].limits.max_channels == 7


async def test_hashes_of_very_old_files_are_md5(api: Api) -> None:
    user = {"name": "old", "password_hash": salted(MD5), "tags": "management"}
    assert (await api.post("/api/definitions", {"rabbit_version": "3.5.7", "users": [user]})).status == 204
    assert (await api.get("/api/whoami", user="old", password="password")).status == 200


async def test_every_kind_of_object_is_made(api: Api) -> None:
    content = {
        "users": [{"name": "u", "password": "p", "tags": "management,monitoring"}],
        "vhosts": [{"name": "v", "metadata": {"description": "d", "tags": ["t"], **QUORUM}}],
        "permissions": [{"user": "u", "vhost": "v", "configure": "^a", "write": "^b", "read": "^c"}],
        "topic_permissions": [{"user": "u", "vhost": "v", "exchange": "x", "write": "^b", "read": "^c"}],
        "parameters": [
            {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 9}},
            {"vhost": "v", "component": "other", "name": "s", "value": {"a": 1}},
            {
                "vhost": "v",
                "component": "operator_policy",
                "name": "op",
                "value": OPERATOR,
            },
        ],
        "global_parameters": [{"name": "cluster_name", "value": "rabbit@host"}, {"name": "g", "value": 1}],
        "policies": [
            {"vhost": "v", "name": "p", "pattern": "", "definition": {"expires": 9999}, "priority": 1}
        ],
        "queues": [
            {"vhost": "v", "name": "plain", "durable": True, "auto_delete": False, "arguments": {}},
            {"vhost": "v", "name": "typed", "type": "stream", "durable": True, "arguments": []},
            {"vhost": "v", "name": "old", "type": "classic", "durable": True, "arguments": {}},
            {"vhost": "v", "name": "amq.gen-left-out", "durable": True},
        ],
        "exchanges": [
            {"vhost": "v", "name": "x", "type": "topic", "durable": True, "internal": True},
            {"vhost": "v", "name": "amq.left.out", "type": "topic"},
            {"vhost": "v", "name": "", "type": "direct"},
        ],
        "bindings": [
            {
                "vhost": "v", "source": "x", "destination": "plain", "destination_type": "queue",
                "routing_key": "k",
            },
            {"vhost": "v", "source": "amq.topic", "destination": "x", "destination_type": "exchange"},
            {"vhost": "v", "source": "x", "destination": "amq.gen-left-out", "destination_type": "queue"},
            {"vhost": "v", "source": "", "destination": "plain", "destination_type": "queue"},
        ],
        "unknown": [5],
    }  # fmt: skip
    assert (await api.post("/api/definitions", content)).status == 204
    node = api.broker.node
    vhost, user = node.vhosts["v"], node.users["u"]
    assert user.permissions == {"v": Permissions("^a", "^b", "^c")}
    assert user.topic_permissions == {("v", "x"): TopicPermissions("^b", "^c")}
    assert vhost.metadata == VhostMetadata("d", frozenset({"t"}), "quorum")
    assert vhost.limits.max_queues == 9
    assert node.parameters.of_vhost("v") == {("other", "s"): {"a": 1}}
    assert (node.cluster_name, node.parameters.of_node["g"]) == ("rabbit@host", 1)
    assert set(vhost.policies.policies) == {"p"}
    assert set(vhost.policies.operator_policies) == {"op"}
    assert {name: queue.arguments for name, queue in vhost.queues.items()} == {
        "plain": {"x-queue-type": "quorum"},
        "typed": {"x-queue-type": "stream"},
        "old": {"x-queue-type": "classic"},
    }
    assert vhost.queues["plain"].rules.max_length == 2
    assert vhost.exchanges["x"].internal
    assert "amq.left.out" not in vhost.exchanges
    assert [binding.routing_key for binding in vhost.exchanges["x"].bindings.values()] == ["k"]
    assert len(vhost.exchanges["amq.topic"].bindings) == 1


async def test_queue_that_is_there_stays_as_it_is(api: Api) -> None:
    queue = api.declare("q", max_length=5)
    assert (await api.post("/api/definitions", {"queues": [QUEUE]})).status == 204
    assert api.vhost.queues["q"] is queue


async def test_any_negative_limit_is_none_as_in_rabbitmq(api: Api) -> None:
    user = {"name": "free", "password_hash": "", "tags": "", "limits": {"max-channels": -5}}
    limits = {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": -7}}
    assert (await api.post("/api/definitions", {"users": [user], "parameters": [limits]})).status == 204
    assert api.broker.node.users["free"].limits.max_channels is None
    assert api.vhost.limits.max_queues is None


async def test_tags_and_limits_of_a_user_are_changed(api: Api) -> None:
    user = {"name": "reader", "tags": [], "limits": {"max-connections": 2}}
    assert (await api.post("/api/definitions", {"users": [user]})).status == 204
    assert api.broker.node.users["reader"].limits.max_connections == 2
    assert api.broker.node.users["reader"].password is None, "as in RabbitMQ, without one nobody logs in"


@pytest.mark.parametrize(
    ("kind", "row", "reason"),
    [
        ("queues", QUEUE | {"arguments": {"x-max-length": -1}}, "queue 'q' in vhost '/': "),
        ("queues", QUEUE | {"vhost": "absent"}, "queue 'q' in vhost 'absent': no vhost 'absent'"),
        ("queues", QUEUE | {"name": None}, "queue 'None' in vhost '/': key_missing: name"),
        ("queues", QUEUE | {"durable": "perhaps"}, "queue 'q' in vhost '/': durable: expected true or false"),
        ("queues", QUEUE | {"name": "q" * 300}, "name: expected at most 255 bytes"),
        ("queues", QUEUE | {"arguments": {"a": 2**64}}, "arguments: expected an object that AMQP can carry"),
        ("queues", "q", "queues: expected a list of objects"),
        ("exchanges", {"vhost": "/", "name": "x", "type": "odd"}, "exchange 'x' in vhost '/': unknown"),
        (
            "bindings",
            {"vhost": "/", "source": "amq.topic", "destination": "no", "destination_type": "queue"},
            "binding 'amq.topic' to 'no' in vhost '/': no queue 'no' in vhost '/'",
        ),
        (
            "bindings",
            {"vhost": "/", "source": "amq.topic", "destination": "no", "destination_type": "odd"},
            "destination_type: expected queue or exchange",
        ),
        (
            "users",
            {"name": "u", "password_hash": "AA==", "hashing_algorithm": "odd", "tags": ""},
            "user 'u': ",
        ),
        ("users", {"name": "u", "password": "p"}, "user 'u': key_missing: tags"),
        ("vhosts", {"name": "v", "default_queue_type": "odd"}, "default_queue_type: 'odd' is none of"),
        (
            "permissions",
            {"user": "absent", "vhost": "/", "configure": "", "write": "", "read": ""},
            "permissions 'absent' in vhost '/': no user 'absent'",
        ),
        (
            "permissions",
            {"user": "guest", "vhost": "absent", "configure": "", "write": "", "read": ""},
            "permissions 'guest' in vhost 'absent': no vhost 'absent'",
        ),
        ("permissions", {"user": "guest", "vhost": "/", "configure": "(", "write": "", "read": ""}, "'('"),
        ("policies", {"vhost": "/", "name": "p", "pattern": "", "definition": {"odd": 1}}, "policy 'p' in"),
        ("parameters", {"vhost": "/", "component": "policy", "name": "p", "value": {}}, "parameter 'p' in"),
        ("global_parameters", {"name": "g"}, "global parameter 'g': key_missing: value"),
    ],
)
async def test_error_names_the_object_and_what_came_before_stays(
    api: Api, kind: str, row: object, reason: str
) -> None:
    before = {"users": {"name": "early", "tags": ""}, "queues": {**QUEUE, "name": "early"}}
    rows = [before[kind]] if kind in before else []
    answer = await api.post("/api/definitions", {"users": [before["users"]]} | {kind: [*rows, row]})
    assert answer.status == 400
    assert reason in answer.json["reason"]
    assert "early" in api.broker.node.users
    if kind == "queues":
        assert set(api.vhost.queues) == {"early"}


@pytest.mark.parametrize("body", [b"nonsense", b"[]", b'{"queues": 5}', b"\xff"])
async def test_what_is_no_file_of_definitions_is_400(api: Api, body: bytes) -> None:
    assert (await api.request("POST", "/api/definitions", data=body)).status == 400


async def test_empty_body_makes_nothing(api: Api) -> None:
    assert (await api.request("POST", "/api/definitions", data=b"")).status == 204


async def test_many_objects_are_made_over_many_turns_of_the_loop(api: Api) -> None:
    counts: list[int] = []

    async def look() -> None:
        while len(api.vhost.queues) < 1000:
            counts.append(len(api.vhost.queues))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    rows = [{**QUEUE, "name": f"q{number}"} for number in range(1000)]
    assert (await api.post("/api/definitions", {"queues": rows})).status == 204
    await looking
    assert max(after - before for before, after in pairwise(counts)) <= OBJECTS_A_TURN


# --- uploads ---


async def test_file_is_uploaded_in_a_form(api: Api) -> None:
    content = json.dumps({"queues": [QUEUE]}).encode()
    for path, as_file in (
        ("/api/definitions", True),
        ("/api/definitions/%2F", True),
        ("/api/definitions", False),
    ):
        form = aiohttp.FormData({"other": "x"})
        if as_file:
            form.add_field("file", content, filename="definitions.json", content_type="application/json")
        else:
            form.add_field("file", content.decode(), content_type="text/plain")
        assert (await api.request("POST", path, data=form)).status == 204
        assert set(api.vhost.queues) == {"q"}
        api.broker.execute(commands.DeleteQueue(vhost="/", name="q"))


async def test_form_without_a_file_is_400(api: Api) -> None:
    form = aiohttp.FormData()
    form.add_field("other", b"x", filename="x")
    assert (await api.request("POST", "/api/definitions", data=form)).status == 400
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = await api.request("POST", "/api/definitions", data=b"nonsense", headers=headers)
    assert answer.status == 400


@pytest.mark.parametrize("body", [b"--b\r\n\xc2\x9f--b--\r\n", b"--b", b"--b\r\n\r\nx\r\n--b--\r\n"])
async def test_a_form_that_is_none_is_400(api: Api, body: bytes) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = await api.request("POST", "/api/definitions", data=body, headers=headers)
    assert answer.status == 400
    assert answer.json["error"] == "bad_request"
