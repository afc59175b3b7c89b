"""Parameters and global parameters over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.fakes import quick_hash
from tests.support.happenings import Happenings
from tests.support.http_api import Api, make_broker
from warren import commands
from warren.broker.events import ShovelFailed

VALUE = {"uri": "amqp://elsewhere", "expires": 3_600_000, "nested": [1, 1.5, None, True]}
PATH = "/api/parameters/component/%2F/name"


@pytest.fixture(autouse=True)
def components(api: Api) -> None:
    """Components of the broker, whose parameters these tests set."""
    for name in ("component", "c"):
        api.broker.node.parameters.register(name, lambda *_: None)


async def test_parameter_of_an_unknown_component_is_taken_from_files_only(api: Api) -> None:
    answer = await api.put("/api/parameters/odd/%2F/name", {"value": 1})
    assert (answer.status, answer.json["reason"]) == (400, "component odd not found")
    row = {"vhost": "/", "component": "odd", "name": "name", "value": 1}
    assert (await api.post("/api/definitions", {"parameters": [row]})).status == 204
    assert (await api.get("/api/parameters/odd")).json == [row]


async def test_policy_is_shown_as_a_parameter_but_not_listed(api: Api) -> None:
    value = {"pattern": "^q", "definition": {"max-length": 3}, "priority": 0, "apply-to": "queues"}
    await api.put("/api/policies/%2F/p", value)
    row = {"vhost": "/", "component": "policy", "name": "p", "value": value}
    assert (await api.get("/api/parameters/policy/%2F/p")).json == row
    assert (await api.get("/api/parameters/policy/%2F/absent")).status == 404
    assert (await api.get("/api/parameters/policy")).json == []


async def test_parameter_is_set_told_and_cleared(api: Api) -> None:
    assert (await api.get(PATH)).status == 404
    assert (await api.put(PATH, {"value": 1})).status == 201
    assert (await api.put(PATH, {"value": VALUE})).status == 204
    row = {"vhost": "/", "component": "component", "name": "name", "value": VALUE}
    assert (await api.get(PATH)).json == row
    for path in ("", "/component", "/component/%2F"):
        assert (await api.get(f"/api/parameters{path}")).json == [row]
    assert (await api.get("/api/parameters/shovel")).json == []
    assert (await api.delete(PATH)).status == 204
    assert (await api.delete(PATH)).status == 404
    assert (await api.get("/api/parameters")).json == []


async def test_parameters_are_there_after_a_restart(api: Api) -> None:
    await api.put(PATH, {"value": VALUE})
    await api.put("/api/global-parameters/g", {"value": [1]})
    await api.put("/api/global-parameters/cluster_name", {"value": "renamed"})
    await api.broker.stop()
    async with make_broker(api.broker.config.data_dir) as again:
        assert again.node.parameters.find("component", "/", "name") == VALUE
        assert again.node.parameters.of_node == {"g": [1], "cluster_name": "renamed"}
        assert again.node.cluster_name == "renamed"


async def test_operator_policies_are_parameters_as_well(api: Api) -> None:
    value = {"pattern": "^q", "definition": {"max-length": 3}, "priority": 0, "apply-to": "queues"}
    path = "/api/parameters/operator_policy/%2F/op"
    assert (await api.put(path, {"value": value})).status == 201
    assert (await api.get("/api/operator-policies/%2F/op")).json == {"vhost": "/", "name": "op", **value}
    assert (await api.get(path)).json["value"] == value
    assert (await api.delete(path)).status == 204
    assert (await api.get("/api/operator-policies")).json == []


async def test_limits_of_a_vhost_are_a_parameter_as_well(api: Api) -> None:
    path = "/api/parameters/vhost-limits/%2F/limits"
    assert (await api.put(path, {"value": {"max-queues": 3}})).status == 201
    assert api.vhost.limits.max_queues == 3
    assert (await api.get("/api/parameters")).json == [
        {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 3}}
    ]
    assert (await api.delete(path)).status == 204
    assert api.vhost.limits.max_queues is None


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (PATH, {}, "key_missing: value"),
        (PATH, {"value": float("inf")}, "value: expected JSON"),
        ("/api/parameters/policy/%2F/p", {"value": {}}, "policies may not be set using this method"),
        ("/api/parameters/operator_policy/%2F/p", {"value": {}}, "value: key_missing: pattern"),
        ("/api/parameters/vhost-limits/%2F/limits", {"value": {"odd": 1}}, "unknown limit 'odd'"),
        (
            "/api/parameters/vhost-limits/%2F/odd",
            {"value": {}},
            "component vhost-limits has no parameter but",
        ),
        ("/api/global-parameters/g", {}, "key_missing: value"),
        ("/api/global-parameters/cluster_name", {"value": 5}, "cluster_name: expected a name"),
    ],
)
async def test_parameter_that_makes_no_sense_is_refused(
    api: Api, path: str, body: dict[str, Any], reason: str
) -> None:
    answer = await api.put(path, body)
    assert answer.status == 400
    assert answer.json["reason"].startswith(reason)
    assert (await api.get("/api/parameters")).json == []


async def test_parameter_of_a_vhost_that_is_not_there_is_404(api: Api) -> None:
    answer = await api.put("/api/parameters/shovel/absent/s", {"value": 1})
    assert (answer.status, answer.json["reason"]) == (404, "no vhost 'absent'")


async def test_global_parameters_are_set_told_and_cleared(api: Api) -> None:
    assert (await api.get("/api/global-parameters")).json == []
    assert (await api.put("/api/global-parameters/g", {"value": {"a": 1}})).status == 201
    assert (await api.put("/api/global-parameters/g", {"value": 2})).status == 204
    assert (await api.get("/api/global-parameters/g")).json == {"name": "g", "value": 2}
    assert (await api.get("/api/global-parameters")).json == [{"name": "g", "value": 2}]
    assert (await api.delete("/api/global-parameters/g")).status == 204
    assert (await api.delete("/api/global-parameters/g")).status == 404
    await api.put("/api/global-parameters/cluster_name", {"value": "renamed"})
    assert (await api.get("/api/overview")).json["cluster_name"] == "renamed"
    assert (await api.delete("/api/global-parameters/cluster_name")).status == 400


async def test_the_cluster_is_renamed_by_its_own_path_as_well(api: Api) -> None:
    assert (await api.put("/api/cluster-name", {"name": "north"})).status == 204
    assert (await api.get("/api/cluster-name")).json == {"name": "north"}
    assert (await api.get("/api/global-parameters/cluster_name")).json["value"] == "north"
    assert (await api.put("/api/cluster-name", {"name": 5})).status == 400


async def test_parameters_are_filtered_by_name(api: Api) -> None:
    for name in ("a", "b"):
        assert (await api.put(f"/api/parameters/c/%2F/{name}", {"value": 1})).status == 201
        assert (await api.put(f"/api/global-parameters/{name}", {"value": 1})).status == 201
    for path in ("parameters", "parameters/c", "parameters/c/%2F", "global-parameters"):
        assert (await api.get(f"/api/{path}?name=b&columns=name")).json == [{"name": "b"}]


@pytest.mark.parametrize(
    ("component", "name", "value"),
    [
        ("operator_policy", "op", {"pattern": ".*", "definition": {"max-length": 3}, "apply-to": "queues"}),
        ("vhost-limits", "limits", {"max-queues": 3}),
    ],
)
async def test_what_holds_for_policymakers_is_changed_by_administrators_only(
    api: Api, component: str, name: str, value: dict[str, Any]
) -> None:
    make_policymaker(api)
    path = f"/api/parameters/{component}/%2F/{name}"
    assert (await api.put(path, {"value": value}, **AS_POLICYMAKER)).status == 401
    assert (await api.get(path)).status == 404
    assert (await api.put(path, {"value": value})).status == 201
    assert (await api.delete(path, **AS_POLICYMAKER)).status == 401
    assert (await api.get(path, **AS_POLICYMAKER)).status == 200


SHOVEL = {
    "src-uri": ["amqp://me:canary@127.0.0.1:1"],
    "src-queue": "q",
    "dest-uri": "amqp://me:canary@127.0.0.1:1?password=canary",
    "reconnect-delay": 0,
}
SHOWN = SHOVEL | {
    "src-uri": ["amqp://me:***@127.0.0.1:1"],
    "dest-uri": "amqp://me:***@127.0.0.1:1?password=***",
}
AS_POLICYMAKER = {"user": "reader"}


def make_policymaker(api: Api) -> None:
    api.broker.execute(
        commands.PutUser(name="reader", password=quick_hash("reader"), tags=frozenset({"policymaker"}))
    )


async def test_passwords_in_uris_are_shown_to_administrators_only(api: Api) -> None:
    make_policymaker(api)
    path = "/api/parameters/shovel/%2F/s"
    assert (await api.put(path, {"value": SHOVEL})).status == 201
    await api.put("/api/global-parameters/g", {"value": SHOVEL})
    for each in (path, "/api/global-parameters/g"):
        assert (await api.get(each)).json["value"] == SHOVEL
        assert (await api.get(each, **AS_POLICYMAKER)).json["value"] == SHOWN
    for each in ("", "/shovel", "/shovel/%2F"):
        answer = await api.get(f"/api/parameters{each}", **AS_POLICYMAKER)
        assert [row["value"] for row in answer.json] == [SHOWN]
    answer = await api.get("/api/global-parameters", **AS_POLICYMAKER)
    assert [row["value"] for row in answer.json] == [SHOWN]


async def test_a_hidden_password_does_not_become_the_password(api: Api) -> None:
    path = "/api/parameters/shovel/%2F/s"
    await api.put(path, {"value": SHOVEL})
    answer = await api.put(path, {"value": SHOWN})
    assert answer.status == 400
    assert answer.json["reason"] == ("shovel 's': src-uri is wrong: give the password itself, and not ***")
    assert (await api.get(path)).json["value"] == SHOVEL


async def test_exported_definitions_restore_shovels(api: Api, tmp_path: Path) -> None:
    await api.put("/api/parameters/shovel/%2F/s", {"value": SHOVEL})
    exported = (await api.get("/api/definitions")).body
    async with make_broker(tmp_path / "other") as broker, aiohttp.ClientSession() as session:
        other = Api(broker, session)
        assert (await other.request("POST", "/api/definitions", data=exported)).status == 204
        assert broker.node.parameters.find("shovel", "/", "s") == SHOVEL
        assert [row["name"] for row in (await other.get("/api/shovels")).json] == ["s"]


OF_AMQP_1_0 = {
    "src-protocol": "amqp10",
    "src-uri": "amqp://me:canary@there",
    "src-address": "/queue/q",
    "dest-protocol": "amqp091",
    "dest-uri": "amqp://",
    "dest-queue": "q",
}


async def test_a_shovel_of_amqp_1_0_is_refused_but_does_not_keep_a_file_from_being_imported(api: Api) -> None:
    path = "/api/parameters/shovel/%2F/s"
    answer = await api.put(path, {"value": OF_AMQP_1_0})
    assert answer.status == 400
    assert answer.json["reason"] == "shovel 's': src-protocol is AMQP 1.0, which is not spoken here"
    parameter = {"component": "shovel", "vhost": "/", "name": "s", "value": OF_AMQP_1_0}
    queue = {"name": "after", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    with Happenings(api.broker, ShovelFailed) as happenings:
        answer = await api.post("/api/definitions", {"parameters": [parameter], "queues": [queue]})
        assert answer.status == 204
        await happenings.until(ShovelFailed)
    assert "after" in api.broker.node.vhosts["/"].queues
    assert (await api.get(path)).json["value"] == OF_AMQP_1_0, "it can be exported again"
    [row] = (await api.get("/api/shovels")).json
    assert row["state"] == "terminated"
    assert row["reason"] == "shovel 's': src-protocol is AMQP 1.0, which is not spoken here"
    assert (await api.delete("/api/shovels/vhost/%2F/s")).status == 204
