"""Queues and the overview, as RabbitMQ describes them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.http_api import Api
from warren import commands
from warren.amqp.table import Table
from warren.broker.making import make_queue
from warren.broker.queue_elsewhere import QueueElsewhere
from warren.broker.queue_figures import QueueFigures
from warren.management.json_text import ROWS_A_TURN


def without_stats(row: dict[str, Any]) -> dict[str, Any]:
    """The row without what `test_message_stats.py` looks at."""
    return {name: row[name] for name in row if name != "message_stats" and not name.endswith("_details")}


def move_away(api: Api, name: str) -> QueueElsewhere:
    """From now on the queue lives on another node of a cluster."""
    wanted = commands.DeclareQueue(vhost="/", name=name, durable=True, home="other")
    node = api.broker.node
    queue = api.vhost.replace_queue(api.vhost.find_queue(name), lambda: make_queue(node, wanted))
    assert isinstance(queue, QueueElsewhere)
    return queue


async def test_figures_of_a_queue_on_another_node_are_those_that_it_has_told(api: Api) -> None:
    api.declare("q")
    elsewhere = move_away(api, "q")
    (row,) = (await api.get("/api/queues")).json
    assert row["node"] == "other"
    assert not {"messages", "message_bytes", "consumers"} & set(row)
    numbers = dict.fromkeys(QueueFigures._fields, 0) | {"ready": 4, "unacked": 2, "ready_bytes": 40}
    elsewhere.take_figures(QueueFigures(**numbers | {"unacked_bytes": 20, "consumers": 3, "published": 6}))
    told = (await api.get("/api/queues/%2F/q")).json
    assert (told["messages"], told["messages_ready"], told["messages_unacknowledged"]) == (6, 4, 2)
    assert (told["message_bytes"], told["consumers"]) == (60, 3)
    assert told["message_stats"]["publish"] == 6
    (row,) = (await api.get("/api/queues?sort=messages&columns=name,messages,consumers")).json
    assert row == {"name": "q", "messages": 6, "consumers": 3}
    overview = (await api.get("/api/overview")).json
    assert overview["queue_totals"]["messages"] == 6
    assert overview["object_totals"]["consumers"] == 3
    # Metrics are added up over the nodes, so each tells of its own queues.
    metrics = (await api.get("/metrics/per-object")).body.decode() + (await api.get("/metrics")).body.decode()
    assert 'queue="q"' not in metrics
    assert "rabbitmq_queue_messages 0.0" in metrics or "rabbitmq_queue_messages 0\n" in metrics


async def test_queue_is_described(api: Api) -> None:
    queue = api.declare("q", max_length=10)
    api.broker.execute(commands.PutPolicy(vhost="/", name="p", pattern="^q", definition={"expires": 60000}))
    await api.publish(queue, [b"1", b"22", b"333"])
    assert queue.get(no_ack=False) is not None
    found = without_stats((await api.get("/api/queues/%2F/q")).json)
    assert found == {
        "name": "q",
        "vhost": "/",
        "type": "classic",
        "node": "warren",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "internal": False,
        "arguments": {"x-max-length": 10},
        "messages": 3,
        "messages_ready": 2,
        "messages_unacknowledged": 1,
        "messages_ram": 3,
        "messages_ready_ram": 2,
        "messages_unacknowledged_ram": 1,
        "message_bytes": 5,
        "message_bytes_ready": 5,
        "message_bytes_unacknowledged": 0,
        "message_bytes_ram": 5,
        "message_bytes_paged_out": 0,
        "messages_paged_out": 0,
        "memory": found["memory"],
        "head_message_timestamp": None,
        "consumers": 0,
        "consumer_capacity": 0.0,
        "consumer_utilisation": 0.0,
        "exclusive_consumer_tag": None,
        "single_active_consumer_tag": None,
        "policy": "p",
        "operator_policy": None,
        "effective_policy_definition": {"expires": 60000},
        "state": "running",
        "incoming": [],
        "deliveries": [],
        "messages_persistent": 3,
        "message_bytes_persistent": 5,
    }
    assert found["memory"] > found["message_bytes_ram"]


async def test_operator_policy_lowers_limits_of_the_policy(api: Api) -> None:
    lenient: Table = {"max-length": 10, "message-ttl": 5000, "overflow": "reject-publish"}
    strict: Table = {"max-length": 20, "message-ttl": 1000, "expires": 9000}
    for name, operator, definition in (("p", False, lenient), ("o", True, strict)):
        policy = commands.PutPolicy(
            vhost="/", name=name, pattern="", definition=definition, operator=operator, apply_to="queues"
        )
        api.broker.execute(policy)
    api.declare("q")
    found = (await api.get("/api/queues/%2F/q")).json
    assert (found["policy"], found["operator_policy"]) == ("p", "o")
    assert found["effective_policy_definition"] == {
        "max-length": 10,
        "message-ttl": 1000,
        "overflow": "reject-publish",
        "expires": 9000,
    }


async def test_figures_can_be_left_out(api: Api) -> None:
    await api.publish(api.declare("q"), [b"1"])
    [row] = (await api.get("/api/queues?disable_stats=true")).json
    assert "messages" not in row
    assert (row["name"], row["node"], row["state"], row["arguments"]) == ("q", "warren", "running", {})
    [row] = (await api.get("/api/queues/%2F?disable_stats=true&enable_queue_totals=true")).json
    assert (row["messages"], row["messages_ready"], "memory" in row) == (1, 1, False)
    [row] = (await api.get("/api/queues?disable_stats=perhaps")).json
    assert row["messages"] == 1


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
async def test_a_column_alone_is_as_in_the_whole_row(api: Api, kind: str) -> None:
    """A list that is asked for some columns makes only the parts of a row that have these."""
    await api.publish(api.declare("q", queue_type=kind), [b"1", b"22"])
    await api.broker.sampler.take()
    [row] = (await api.get("/api/queues")).json
    assert {"messages", "memory", "consumers", "message_stats", "messages_details", "arguments"} <= row.keys()
    for column, value in row.items():
        assert (await api.get(f"/api/queues?columns={column}")).json == [{column: value}]
    chosen = (await api.get("/api/queues?columns=name,message_stats.publish,memory")).json
    assert chosen == [{"name": "q", "message_stats": {"publish": 2}, "memory": row["memory"]}]


async def test_queues_can_be_sorted_by_any_column(api: Api) -> None:
    for name, count in (("a", 2), ("b", 3), ("c", 1)):
        await api.publish(api.declare(name), [b"1"] * count)
    await api.broker.sampler.take()
    [row, *_] = (await api.get("/api/queues")).json
    query = "sort_reverse=true&page=1&page_size=2"
    for column in row:
        rows = (await api.get(f"/api/queues?sort={column}&{query}")).json["items"]
        assert len(rows) == 2, column
    for column in ("messages", "memory", "message_stats.publish", "messages_details.rate"):
        rows = (await api.get(f"/api/queues?sort={column}&{query}")).json["items"]
        assert [row["name"] for row in rows] == ["b", "a"], column


@pytest.mark.parametrize("kind", ["quorum", "stream"])
async def test_replicated_queue_names_its_members(api: Api, kind: str) -> None:
    api.declare("q", queue_type=kind)
    found = (await api.get("/api/queues/%2F/q")).json
    assert (found["leader"], found["members"], found["online"]) == ("warren", ["warren"], ["warren"])


@pytest.mark.parametrize("name", ["a/b", "50%", "a%2Fb", "spaces and ?#&", "ü€", "{x}", "日本"])
async def test_names_go_through_the_path_whatever_is_in_them(api: Api, name: str) -> None:
    api.declare(name)
    answer = await api.get(f"/api/queues/%2F/{quote(name, safe='')}")
    assert answer.json["name"] == name


async def test_queue_that_is_not_there_is_404(api: Api) -> None:
    answer = await api.get("/api/queues/%2F/absent")
    assert answer.status == 404
    assert answer.json == {"error": "Object Not Found", "reason": "no queue 'absent' in vhost '/'"}


@pytest.mark.parametrize("count", [0, 1, ROWS_A_TURN, ROWS_A_TURN + 1, 3 * ROWS_A_TURN])
async def test_all_queues_are_listed_however_many(api: Api, count: int) -> None:
    names = {f"q{i}" for i in range(count)}
    for name in names:
        api.broker.execute(commands.DeclareQueue(vhost="/", name=name))
    for path in ("/api/queues", "/api/queues/%2F"):
        rows = (await api.get(path)).json
        assert len(rows) == count
        assert {row["name"] for row in rows} == names


async def test_arguments_that_json_does_not_know_are_told_as_it_can(api: Api) -> None:
    arguments: Table = {
        "x-a": b"\xff",
        "x-b": bytearray(b"abc"),
        "x-c": Decimal("1.5"),
        "x-d": {"x": [1, None]},
    }
    api.broker.execute(commands.DeclareQueue(vhost="/", name="q", arguments=arguments))
    found = (await api.get("/api/queues/%2F/q")).json["arguments"]
    assert found == {"x-a": "\N{REPLACEMENT CHARACTER}", "x-b": "abc", "x-c": 1.5, "x-d": {"x": [1, None]}}


async def test_overview_counts_what_there_is(api: Api) -> None:
    await api.publish(api.declare("q"), [b"1", b"2"])
    found = (await api.get("/api/overview")).json
    assert without_stats(found["queue_totals"]) == {
        "messages": 2,
        "messages_ready": 2,
        "messages_unacknowledged": 0,
    }
    totals = found["object_totals"]
    assert (totals["queues"], totals["connections"], totals["channels"], totals["consumers"]) == (1, 0, 0, 0)
    ports = {listener["protocol"]: listener["port"] for listener in found["listeners"]}
    assert ports["amqp"] == api.broker.port
    assert f":{ports['http']}" in api.broker.services["http"].address
    topic = "AMQP topic exchange, as per the AMQP specification"
    assert {"name": "topic", "description": topic, "enabled": True} in found["exchange_types"]
    assert found["contexts"][0]["port"] == str(ports["http"])


async def test_only_monitors_see_where_the_broker_listens(api: Api) -> None:
    found = (await api.get("/api/overview", user="manager")).json
    assert found.keys().isdisjoint({"listeners", "contexts", "node"})
