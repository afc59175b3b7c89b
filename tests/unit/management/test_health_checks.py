"""RabbitMQ's health checks, and the aliveness test."""

from __future__ import annotations

import pytest

from tests.support.http_api import Api
from warren import commands

CHECKS = "/api/health/checks"


@pytest.mark.parametrize(
    "check",
    [
        "alarms",
        "local-alarms",
        "certificate-expiration/1/months",
        "virtual-hosts",
    ],
)
async def test_broker_without_trouble_is_well(api: Api, check: str) -> None:
    answer = await api.get(f"{CHECKS}/{check}")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


@pytest.mark.parametrize("check", ["node-is-mirror-sync-critical", "node-is-quorum-critical"])
async def test_nothing_depends_on_other_nodes(api: Api, check: str) -> None:
    answer = await api.get(f"{CHECKS}/{check}")
    assert (answer.status, answer.json) == (200, {"status": "ok", "reason": "single node cluster"})


@pytest.mark.parametrize(("check", "where"), [("alarms", "in the cluster"), ("local-alarms", "on the node")])
async def test_alarms_fail_the_check(api: Api, check: str, where: str) -> None:
    api.broker.node.raise_alarm("memory")
    answer = await api.get(f"{CHECKS}/{check}")
    assert (answer.status, answer.json) == (
        503,
        {
            "status": "failed",
            "reason": f"There are alarms in effect {where}",
            "alarms": [{"node": "warren", "resource": "memory"}],
        },
    )


async def test_ports_are_checked(api: Api) -> None:
    ports = [api.broker.port, int(api.broker.services["http"].address.rpartition(":")[2])]
    for port in ports:
        assert (await api.get(f"{CHECKS}/port-listener/{port}")).json == {"status": "ok", "port": port}
    answer = await api.get(f"{CHECKS}/port-listener/1")
    assert (answer.status, answer.json) == (
        503,
        {"status": "failed", "reason": "No active listener", "missing": 1, "ports": ports},
    )
    assert (await api.get(f"{CHECKS}/port-listener/none")).status == 400


@pytest.mark.parametrize(("name", "known"), [("amqp", "amqp"), ("amqp091", "amqp"), ("AMQP0-9-1", "amqp"),
                                             ("http", "http"), ("management", "http")])  # fmt: skip
async def test_protocols_are_checked(api: Api, name: str, known: str) -> None:
    found = (await api.get(f"{CHECKS}/protocol-listener/{name}")).json
    assert found == {"status": "ok", "protocol": known}


async def test_protocol_that_nobody_speaks_fails(api: Api) -> None:
    answer = await api.get(f"{CHECKS}/protocol-listener/mqtt")
    assert (answer.status, answer.json["missing"]) == (503, "mqtt")
    assert sorted(answer.json["protocols"]) == ["amqp", "http"]


@pytest.mark.parametrize("path", ["soon/days", "1/moons", "-1/days", "1000000000/years"])
async def test_expiration_that_makes_no_sense_is_400(api: Api, path: str) -> None:
    assert (await api.get(f"{CHECKS}/certificate-expiration/{path}")).status == 400


async def test_old_health_check_names_the_node(api: Api) -> None:
    for path in ("/api/healthchecks/node", "/api/healthchecks/node/warren"):
        assert (await api.get(path)).json == {"status": "ok"}
    assert (await api.get("/api/healthchecks/node/absent")).status == 404


async def test_aliveness_test_leaves_an_empty_queue(api: Api) -> None:
    for _ in range(2):
        answer = await api.get("/api/aliveness-test/%2F")
        assert (answer.status, answer.json) == (200, {"status": "ok"})
    queue = api.vhost.queues["aliveness-test"]
    assert (queue.message_count, queue.unacked) == (0, 0)


async def test_aliveness_test_needs_permissions_and_a_vhost(api: Api) -> None:
    assert (await api.get("/api/aliveness-test/%2F", user="manager")).status == 401
    assert (await api.get("/api/aliveness-test/absent")).status == 404
    assert "aliveness-test" not in api.vhost.queues


async def test_aliveness_test_fails_if_others_take_the_message(api: Api) -> None:
    api.broker.execute(commands.DeclareQueue(vhost="/", name="aliveness-test", arguments={"x-max-length": 0}))
    api.broker.execute(commands.DeleteQueue(vhost="/", name="aliveness-test"))
    api.broker.execute(
        commands.PutPolicy(vhost="/", name="p", pattern="^aliveness", definition={"max-length": 0})
    )
    answer = await api.get("/api/aliveness-test/%2F")
    assert (answer.status, answer.json["status"]) == (503, "failed")
