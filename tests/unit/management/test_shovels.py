"""`/api/shovels`: what operators see of shovels and do with them. What shovels carry is tested elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import aio_pika
import aiohttp
import pytest

import warren
from tests.support.happenings import Happenings
from tests.support.http_api import Api, make_broker
from tests.unit.management.fake_cluster import FakeCluster
from warren import commands
from warren.broker.events import (
    Event,
    MessageAcked,
    ParameterCleared,
    ShovelFailed,
    ShovelStarted,
    ShovelStopped,
    VhostDeleted,
)
from warren.relay.service import RelayName, relays_of
from warren.relay.supervisor import State
from warren.server.config_definitions import StaticShovel

WITHIN: dict[str, Any] = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
NOWHERE = WITHIN | {"dest-uri": "amqp://me:canary@127.0.0.1:1/v?password=canary", "reconnect-delay": 0}
EVENTS = (ShovelStarted, ShovelFailed, ShovelStopped)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A broker with the static shovel `fixed`."""
    fixed = StaticShovel(name="fixed", definition=WITHIN | {"src-queue": "c"})
    async with (
        make_broker(tmp_path / "data", shovels=(fixed,)) as broker,
        aiohttp.ClientSession() as session,
    ):
        await until(broker, "fixed", State.RUNNING)
        yield Api(broker, session)


async def until(broker: warren.Broker, name: str, state: State) -> None:
    """Wait until a shovel has this state."""
    with Happenings(broker, *EVENTS) as happenings:
        while relays_of(broker).shovels[RelayName("/", name)].status.state is not state:
            await happenings.until(Event)


async def put(api: Api, name: str, value: dict[str, Any], vhost: str = "%2F") -> None:
    assert (await api.put(f"/api/parameters/shovel/{vhost}/{name}", {"value": value})).status == 201


async def started(api: Api, name: str, value: dict[str, Any]) -> None:
    with Happenings(api.broker, ShovelStarted) as happenings:
        await put(api, name, value)
        assert await happenings.until(ShovelStarted) == [ShovelStarted("/", name)]


async def test_a_running_shovel_is_told(api: Api) -> None:
    queue = api.declare("a")
    await api.publish(queue, [b"1", b"2", b"3"])
    before = time.time()
    with Happenings(api.broker, ShovelStarted, MessageAcked) as happenings:
        await put(api, "s", WITHIN)
        await happenings.until(MessageAcked, 3)
    row = (await api.get("/api/shovels/vhost/%2F/s")).json
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row.pop("timestamp"))
    assert before - 60 < row.pop("since") / 1000 < time.time() + 60
    assert row == {
        "node": api.broker.node.cluster_name,
        "name": "s",
        "vhost": "/",
        "type": "dynamic",
        "state": "running",
        "src_uri": "amqp://",
        "src_protocol": "amqp091",
        "src_queue": "a",
        "dest_uri": "amqp://",
        "dest_protocol": "amqp091",
        "dest_queue": "b",
        "blocked_status": "running",
        "forwarded": 3,
        "pending": 0,
    }


async def test_exchanges_and_keys_are_told(api: Api) -> None:
    value = {
        "src-uri": "amqp://",
        "src-exchange": "amq.topic",
        "src-exchange-key": "a.#",
        "dest-uri": ["amqp://me:secret@[::1]:1/x%2Fy", "amqp://"],
        "dest-exchange": "amq.fanout",
        "dest-exchange-key": "k",
    }
    with Happenings(api.broker, ShovelFailed) as happenings:
        await put(api, "s", value | {"reconnect-delay": 0})
        await happenings.until(ShovelFailed)
    row = (await api.get("/api/shovels/vhost/%2F/s")).json
    told = {key: row[key] for key in row if key.startswith(("src_", "dest_"))}
    assert told == {
        "src_uri": "amqp://",
        "src_protocol": "amqp091",
        "src_exchange": "amq.topic",
        "src_exchange_key": "a.#",
        "dest_uri": "amqp://[::1]:1/x%2Fy",
        "dest_protocol": "amqp091",
        "dest_exchange": "amq.fanout",
        "dest_exchange_key": "k",
    }


async def test_lists_are_of_all_vhosts_or_of_one(api: Api) -> None:
    api.broker.execute(commands.AddVhost(name="v"))
    await put(api, "two", NOWHERE, "v")
    await put(api, "one", WITHIN)
    rows = (await api.get("/api/shovels?columns=vhost,name,type")).json
    assert rows == [
        {"vhost": "/", "name": "fixed", "type": "static"},
        {"vhost": "/", "name": "one", "type": "dynamic"},
        {"vhost": "v", "name": "two", "type": "dynamic"},
    ]
    assert [row["name"] for row in (await api.get("/api/shovels/v")).json] == ["two"]
    page = (await api.get("/api/shovels?page=1&page_size=1&name=o")).json
    assert (page["filtered_count"], [row["name"] for row in page["items"]]) == (2, ["one"])
    assert (await api.get("/api/shovels/absent")).status == 404


@pytest.mark.parametrize("path", ["absent", "absent/restart"])
async def test_a_shovel_that_is_not_there_is_404(api: Api, path: str) -> None:
    for vhost in ("%2F", "absent"):
        answer = await api.delete(f"/api/shovels/vhost/{vhost}/{path}")
        assert (answer.status, answer.json["error"]) == (404, "Object Not Found")
    answer = await api.get("/api/shovels/vhost/%2F/absent")
    assert (answer.status, answer.json["reason"]) == (404, "no shovel 'absent' in vhost '/'")


async def test_a_shovel_that_fails_tells_why_without_its_password(api: Api) -> None:
    with Happenings(api.broker, ShovelFailed) as happenings:
        await put(api, "s", NOWHERE)
        [event] = await happenings.until(ShovelFailed)
    answer = await api.get("/api/shovels/vhost/%2F/s")
    assert answer.json["state"] == "terminated"
    assert answer.json["reason"] == event.reason
    assert event.reason.startswith("destination: cannot connect to 127.0.0.1:1: ")
    assert answer.json["dest_uri"] == "amqp://127.0.0.1:1/v"
    assert b"canary" not in answer.body


async def test_a_shovel_that_may_not_consume_never_runs(api: Api) -> None:
    """An exclusive consumer has the queue."""
    api.declare("a")
    async with await aio_pika.connect(api.broker.url) as connection:
        queue = await (await connection.channel()).get_queue("a")
        await queue.consume(AsyncMock(), exclusive=True)
        with Happenings(api.broker, *EVENTS) as happenings:
            await put(api, "s", WITHIN | {"reconnect-delay": 0})
            [event] = await happenings.until(ShovelFailed)
            assert happenings.seen == []
    assert "403 ACCESS_REFUSED" in event.reason


async def test_delete_ends_a_shovel_and_clears_its_parameter(api: Api) -> None:
    await started(api, "s", WITHIN)
    with Happenings(api.broker, *EVENTS, ParameterCleared) as happenings:
        assert (await api.delete("/api/shovels/vhost/%2F/s")).status == 204
        assert await happenings.until(ShovelStopped) == [ShovelStopped("/", "s", "it was deleted")]
        assert happenings.seen == [ParameterCleared("/", "shovel", "s")]
    assert (await api.delete("/api/shovels/vhost/%2F/s")).status == 404
    assert (await api.get("/api/parameters/shovel/%2F/s")).status == 404


async def test_a_shovel_of_another_node_is_told_and_cannot_be_restarted_here(api: Api) -> None:
    api.broker.cluster = FakeCluster()
    elsewhere = {"src-uri": "amqp://there", "src-queue": "a", "dest-uri": "amqp://there"}
    await put(api, "s", elsewhere)
    row = (await api.get("/api/shovels/vhost/%2F/s")).json
    assert (row["state"], row["reason"]) == ("elsewhere", "node 'other' runs it")
    answer = await api.delete("/api/shovels/vhost/%2F/s/restart")
    assert answer.status == 400
    assert "node 'other' runs it" in answer.json["reason"]


async def test_restart_starts_a_shovel_anew(api: Api) -> None:
    await started(api, "s", WITHIN)
    for name in ("s", "fixed"):
        before = relays_of(api.broker).shovels[RelayName("/", name)]
        with Happenings(api.broker, *EVENTS) as happenings:
            assert (await api.delete(f"/api/shovels/vhost/%2F/{name}/restart")).status == 204
            assert await happenings.until(ShovelStarted) == [ShovelStarted("/", name)]
            assert happenings.seen == [ShovelStopped("/", name, "it is restarted")]
        assert relays_of(api.broker).shovels[RelayName("/", name)] is not before


async def test_a_changed_parameter_changes_the_shovel(api: Api) -> None:
    await started(api, "s", WITHIN)
    with Happenings(api.broker, *EVENTS) as happenings:
        await api.put("/api/parameters/shovel/%2F/s", {"value": WITHIN | {"dest-queue": "other"}})
        await happenings.until(ShovelStarted)
        assert happenings.seen == [ShovelStopped("/", "s", "its definition has changed")]
    assert (await api.get("/api/shovels/vhost/%2F/s")).json["dest_queue"] == "other"


async def test_a_shovel_that_is_done_goes_with_its_parameter(api: Api) -> None:
    await api.publish(api.declare("a"), [b"1", b"2"])
    with Happenings(api.broker, *EVENTS, ParameterCleared) as happenings:
        await put(api, "s", WITHIN | {"src-delete-after": "queue-length"})
        await happenings.until(ParameterCleared)
        assert happenings.seen == [
            ShovelStarted("/", "s"),
            ShovelStopped("/", "s", "it has carried all that it was to carry"),
        ]
    assert (await api.get("/api/shovels/vhost/%2F/s")).status == 404
    await api.restart()
    assert (await api.get("/api/parameters/shovel")).json == []


async def test_shovels_end_with_their_vhost(api: Api) -> None:
    api.broker.execute(commands.AddVhost(name="v"))
    await put(api, "s", WITHIN, "v")
    with Happenings(api.broker, ShovelStopped, VhostDeleted) as happenings:
        api.broker.execute(commands.DeleteVhost(name="v"))
        await happenings.until(VhostDeleted)
        assert happenings.seen == [ShovelStopped("v", "s", "its vhost was deleted")]
    assert RelayName("v", "s") not in relays_of(api.broker).shovels


async def test_a_static_shovel_cannot_be_deleted_nor_replaced(api: Api) -> None:
    answer = await api.delete("/api/shovels/vhost/%2F/fixed")
    assert (answer.status, answer.json["reason"]) == (
        400,
        "shovel 'fixed' is static: it stands in the settings of the broker",
    )
    answer = await api.put("/api/parameters/shovel/%2F/fixed", {"value": WITHIN})
    assert (answer.status, answer.json["reason"]) == (
        400,
        "shovel 'fixed': a static shovel has this name",
    )
    row = (await api.get("/api/shovels/vhost/%2F/fixed")).json
    assert (row["state"], row["type"], row["src_queue"]) == ("running", "static", "c")


async def test_who_monitors_sees_all_and_changes_only_where_they_may_enter(api: Api) -> None:
    assert [row["name"] for row in (await api.get("/api/shovels", user="monitor")).json] == ["fixed"]
    answer = await api.delete("/api/shovels/vhost/%2F/fixed/restart", user="monitor")
    assert (answer.status, answer.json["reason"]) == (401, "User not authorised to access virtual host")
    api.grant("monitor", configure="", write="", read="")
    assert (await api.delete("/api/shovels/vhost/%2F/fixed/restart", user="monitor")).status == 204


async def test_a_definition_of_older_days_that_makes_no_sense_harms_nobody(api: Api) -> None:
    api.broker.node.parameters.checks.clear()
    api.broker.execute(
        commands.SetParameter(vhost="/", component="shovel", name="odd", value={"src-queue": "a"})
    )
    await api.end_turn()
    await api.restart()
    await until(api.broker, "odd", State.TERMINATED)
    row = (await api.get("/api/shovels/vhost/%2F/odd")).json
    assert (row["state"], row["reason"]) == (
        "terminated",
        "shovel 'odd': src-uri should be an AMQP URI, or a list of some",
    )
    assert (await api.delete("/api/shovels/vhost/%2F/odd")).status == 204


async def test_connections_of_shovels_have_names_of_their_own(api: Api) -> None:
    await started(api, "s", WITHIN)
    rows = (await api.get("/api/connections")).json
    assert len({row["name"] for row in rows}) == len(rows) == 4
    named = sorted(row["client_properties"]["connection_name"] for row in rows)
    assert named == ["Shovel fixed", "Shovel fixed", "Shovel s", "Shovel s"]
    assert {(row["type"], row["protocol"]) for row in rows} == {("direct", "Direct 0-9-1")}


# --- figures ---


async def metrics(api: Api, path: str = "") -> list[str]:
    text = (await api.get(f"/metrics{path}")).body.decode()
    return [line for line in text.splitlines() if "_shovel_" in line and not line.startswith("#")]


async def test_metrics_count_shovels_by_state_and_messages(api: Api) -> None:
    await api.publish(api.declare("a"), [b"1", b"2", b"3"])
    with Happenings(api.broker, MessageAcked, ShovelFailed) as happenings:
        await put(api, "s", WITHIN)
        await put(api, "t", NOWHERE)
        await happenings.until(MessageAcked, 3)
        await happenings.until(ShovelFailed)
    counts = [
        'rabbitmq_shovel_dynamic{status="starting"} 0',
        'rabbitmq_shovel_dynamic{status="running"} 1',
        'rabbitmq_shovel_dynamic{status="terminated"} 1',
        'rabbitmq_shovel_static{status="starting"} 0',
        'rabbitmq_shovel_static{status="running"} 1',
        'rabbitmq_shovel_static{status="terminated"} 0',
    ]
    one_by_one = [
        'warren_shovel_messages_total{vhost="/",shovel="fixed"} 0',
        'warren_shovel_messages_total{vhost="/",shovel="s"} 3',
        'warren_shovel_messages_total{vhost="/",shovel="t"} 0',
    ]
    assert await metrics(api) == [*counts, "warren_shovel_messages_total 3"]
    assert await metrics(api, "/per-object") == [*counts, *one_by_one]
    assert await metrics(api, "/detailed?family=shovel_metrics") == one_by_one
    assert await metrics(api, "/detailed?family=shovel_metrics&vhost=absent") == []


async def test_the_count_of_all_messages_never_goes_down(api: Api) -> None:
    await api.publish(api.declare("a"), [b"1", b"2", b"3"])
    with Happenings(api.broker, MessageAcked) as happenings:
        await put(api, "s", WITHIN)
        await happenings.until(MessageAcked, 3)
    await api.delete("/api/shovels/vhost/%2F/s")
    assert (await metrics(api))[-1] == "warren_shovel_messages_total 3"
    await relays_of(api.broker).stop()
    assert relays_of(api.broker).carried == 3
