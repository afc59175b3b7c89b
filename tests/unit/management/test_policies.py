"""Policies and operator policies over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http_api import Api, make_broker

POLICY = {"pattern": "^q", "definition": {"max-length": 3}, "priority": 2, "apply-to": "queues"}


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
async def test_policy_is_made_changed_and_deleted(api: Api, kind: str) -> None:
    queue = api.declare("q")
    path = f"/api/{kind}/%2F/p"
    assert (await api.get(path)).status == 404
    assert (await api.put(path, POLICY | {"definition": {"max-length": 5}})).status == 201
    assert (await api.put(path, POLICY)).status == 204
    assert queue.rules.max_length == 3
    described = {"vhost": "/", "name": "p", **POLICY}
    assert (await api.get(path)).json == described
    assert (await api.get(f"/api/{kind}")).json == [described]
    assert (await api.get(f"/api/{kind}/%2F")).json == [described]
    assert (await api.delete(path)).status == 204
    assert (await api.delete(path)).status == 404
    assert queue.rules.max_length is None


async def test_policies_and_operator_policies_have_names_of_their_own(api: Api) -> None:
    await api.put("/api/policies/%2F/p", {"pattern": "", "definition": {"max-length": 3}})
    await api.put("/api/operator-policies/%2F/p", {"pattern": "", "definition": {"max-length": 2}})
    assert [row["apply-to"] for row in (await api.get("/api/policies")).json] == ["all"]
    assert [row["definition"] for row in (await api.get("/api/operator-policies")).json] == [
        {"max-length": 2}
    ]


async def test_policy_is_there_after_a_restart(api: Api) -> None:
    await api.put("/api/policies/%2F/p", POLICY)
    await api.broker.stop()
    async with make_broker(api.broker.config.data_dir) as again:
        assert again.node.vhosts["/"].policies.policies["p"].definition == {"max-length": 3}


async def test_policies_are_filtered_and_sorted(api: Api) -> None:
    for name, priority in (("a1", 1), ("a2", 3), ("b", 2)):
        body = {"pattern": "^q", "definition": {"max-length": 1}, "priority": priority}
        assert (await api.put(f"/api/policies/%2F/{name}", body)).status == 201
    rows = (await api.get("/api/policies?name=a&sort=priority&sort_reverse=true&columns=name")).json
    assert rows == [{"name": "a2"}, {"name": "a1"}]


async def test_policy_that_is_not_there_is_named(api: Api) -> None:
    answer = await api.get("/api/policies/%2F/odd")
    assert (answer.status, answer.json["reason"]) == (404, "no policy 'odd' in vhost '/'")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pattern": None}, "key_missing: pattern"),
        ({"definition": None}, "key_missing: definition"),
        ({"definition": {}}, "no policy provided"),
        ({"definition": {"odd": 1}}, "odd is not a recognised policy setting"),
        ({"definition": {"max-length": -1}}, "max-length: "),
        ({"definition": {"max-length": 2**70}}, "definition: expected an object that AMQP can carry"),
        ({"definition": 5}, "definition: expected an object"),
        ({"pattern": "("}, "pattern: "),
        ({"priority": "high"}, "priority: expected a whole number"),
        ({"apply-to": "odd"}, "apply-to: "),
    ],
)
async def test_policy_that_makes_no_sense_is_refused(api: Api, change: dict[str, Any], reason: str) -> None:
    answer = await api.put("/api/policies/%2F/p", POLICY | change)
    assert answer.status == 400
    assert answer.json["reason"].startswith(reason)
    assert api.vhost.policies.policies == {}


async def test_policymaker_makes_policies_only_where_permissions_are(api: Api) -> None:
    await api.put("/api/users/maker", {"password": "maker", "tags": "policymaker"})
    answer = await api.put("/api/policies/%2F/p", POLICY, user="maker")
    assert (answer.status, answer.json["reason"]) == (401, "User not authorised to access virtual host")
    await api.put("/api/permissions/%2F/maker", {"configure": "", "write": "", "read": ""})
    assert (await api.put("/api/policies/%2F/p", POLICY, user="maker")).status == 201
    assert (await api.put("/api/operator-policies/%2F/p", POLICY, user="maker")).status == 401
    assert len((await api.get("/api/policies", user="maker")).json) == 1


async def test_policy_of_a_vhost_that_is_not_there_is_404(api: Api) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = await api.request(method, "/api/policies/absent/p", data=b"{}")
        assert (answer.status, answer.json["reason"]) == (404, "no vhost 'absent'")
