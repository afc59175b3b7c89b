"""`/api/nodes`, and what the node's memory is used for."""

from __future__ import annotations

import asyncio

import pika
import pytest

from tests.support.http_api import Api
from warren.broker.history import TICK_SECONDS
from warren.broker.message import Message
from warren.management.node_stats import ALWAYS_0, AVERAGES, FIGURES
from warren.server.churn import Churn

NODE = "/api/nodes/warren"


async def test_the_node_tells_of_memory_and_disk(api: Api) -> None:
    (node,) = (await api.get("/api/nodes")).json
    again = (await api.get(NODE)).json
    assert node.keys() == again.keys()
    assert (node["name"], node["type"], node["running"]) == ("warren", "disc", True)
    assert 0 < node["mem_used"] < node["mem_limit"]
    assert node["disk_free"] > node["disk_free_limit"] > 0
    assert (node["mem_alarm"], node["disk_free_alarm"]) == (False, False)
    assert 0 < node["fd_used"] < node["fd_total"]


async def test_alarms_are_told(api: Api) -> None:
    api.broker.node.raise_alarm("memory")
    node = (await api.get(NODE)).json
    assert (node["mem_alarm"], node["disk_free_alarm"]) == (True, False)


async def test_kinds_of_memory_add_up_to_what_is_used(api: Api) -> None:
    memory = (await api.get(f"{NODE}/memory")).json["memory"]
    total = memory.pop("total")
    kept, strategy = memory.pop("allocated_unused"), memory.pop("strategy")
    assert strategy == "allocated"
    assert memory.pop("reserved_unallocated") == max(0, total["rss"] - total["allocated"])
    assert {"messages_ready", "messages_packed", "connection_writers", "storage", "other"} <= memory.keys()
    assert 0 < total["used"] == total["allocated"] - kept
    assert sum(memory.values()) == pytest.approx(total["used"], rel=0.1)


async def test_messages_that_wait_are_counted(api: Api) -> None:
    before = (await api.get(f"{NODE}/memory")).json["memory"]["messages_packed"]
    queue = api.declare("some")
    for _ in range(500):
        queue.publish(Message(b"\0", b"\0", b"\0\0", bytes(100), False))
    assert (await api.get(f"{NODE}/memory")).json["memory"]["messages_packed"] > before


async def test_memory_is_told_with_the_node_if_asked_for(api: Api) -> None:
    assert "memory" not in (await api.get(NODE)).json
    assert "total" in (await api.get(f"{NODE}?memory=true")).json["memory"]


async def test_memory_is_told_in_percent(api: Api) -> None:
    memory = (await api.get(f"{NODE}/memory/relative")).json["memory"]
    assert memory.pop("total") == 100
    assert {"messages_ready", "storage", "other"} <= memory.keys()
    assert 100 <= sum(memory.values()) < 100 + len(memory)  # each of them is rounded up


async def test_every_number_has_its_rate(api: Api) -> None:
    await api.broker.sampler.take()
    node = (await api.get(NODE)).json
    for name in (*FIGURES, *AVERAGES, *ALWAYS_0, *Churn.NAMES):
        assert node[name] >= 0
        assert node[f"{name}_details"].keys() == {"rate"}


async def test_node_counts_rounds_of_the_disk_with_samples(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"egg"])
    await api.broker.sampler.take()
    await api.publish(queue, [bytes(1000)])
    await api.publish(queue, [bytes(1000)])
    await api.broker.sampler.take()
    node = (await api.get(f"{NODE}?node_stats_age=5&node_stats_incr=5")).json
    now, before = (sample["sample"] for sample in node["io_sync_count_details"]["samples"])
    assert now == node["io_sync_count"] == node["io_write_count"] == before + 2
    assert node["io_sync_count_details"]["rate"] == 2 / TICK_SECONDS
    bytes_now, bytes_before = (sample["sample"] for sample in node["io_write_bytes_details"]["samples"])
    assert bytes_now - bytes_before > 2000
    times = node["io_sync_avg_time_details"]
    assert 0 < times["samples"][0]["sample"] == pytest.approx(node["io_sync_avg_time"])
    assert times["samples"][0]["timestamp"] - times["samples"][1]["timestamp"] == 1000 * TICK_SECONDS
    assert times["rate"] == pytest.approx(times["avg_rate"])
    assert times["avg"] > 0


async def test_node_counts_what_was_read_from_files(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [bytes(1000)] * 10)
    await api.restart()
    before = (await api.get(NODE)).json
    assert (before["io_read_count"], before["io_read_avg_time"]) == (0, 0.0)
    assert len((await api.get("/api/queues/%2F/q/messages")).json) == 10
    after = (await api.get(NODE)).json
    assert after["io_read_count"] > 0
    assert after["io_read_bytes"] > 10_000
    assert after["io_read_avg_time"] > 0


async def test_node_counts_clients_that_come_and_go_with_samples(api: Api) -> None:
    await asyncio.to_thread(lambda: pika.BlockingConnection(pika.URLParameters(api.broker.url)).close())
    await api.broker.sampler.take()
    node = (await api.get(f"{NODE}?node_stats_age=5&node_stats_incr=5")).json
    assert (node["connection_created"], node["connection_closed"]) == (1, 1)
    assert [sample["sample"] for sample in node["connection_closed_details"]["samples"]] == [1, 0]
    assert node["run_queue"] >= 0
    assert node["proc_total"] > node["proc_used"] > 0


@pytest.mark.parametrize("path", ["/api/nodes", NODE, f"{NODE}/memory", f"{NODE}/memory/relative"])
async def test_nodes_are_for_those_who_monitor(api: Api, path: str) -> None:
    assert (await api.get(path, user="monitor")).status == 200
    refused = await api.get(path, user="manager")
    assert (refused.status, refused.json["reason"]) == (401, "Not monitor user")


@pytest.mark.parametrize("path", ["", "/memory", "/memory/relative"])
async def test_there_is_no_other_node(api: Api, path: str) -> None:
    answer = await api.get(f"/api/nodes/other{path}")
    assert (answer.status, answer.json["error"]) == (404, "Object Not Found")
