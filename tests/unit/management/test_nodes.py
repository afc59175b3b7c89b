"""`/api/nodes`, and what the node's memory is used for."""

from __future__ import annotations

import pytest

from tests.support.http_api import Api
from warren.broker.message import Message

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
    kept = memory.pop("allocated_unused")
    assert {"messages_ready", "messages_packed", "connection_writers", "storage", "other"} <= memory.keys()
    assert 0 < total["used"] == total["allocated"] - kept
    assert sum(memory.values()) == pytest.approx(total["used"], rel=0.1)


async def test_messages_that_wait_are_counted(api: Api) -> None:
    before = (await api.get(f"{NODE}/memory")).json["memory"]["messages_packed"]
    queue = api.declare("some")
    for _ in range(500):
        queue.publish(Message(b"\0", b"\0", b"\0\0", bytes(100), False))
    assert (await api.get(f"{NODE}/memory")).json["memory"]["messages_packed"] > before


@pytest.mark.parametrize("path", ["/api/nodes", NODE, f"{NODE}/memory"])
async def test_nodes_are_for_those_who_monitor(api: Api, path: str) -> None:
    assert (await api.get(path, user="monitor")).status == 200
    refused = await api.get(path, user="manager")
    assert (refused.status, refused.json["reason"]) == (401, "Not monitor user")


@pytest.mark.parametrize("path", ["/api/nodes/other", "/api/nodes/other/memory"])
async def test_there_is_no_other_node(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.json["error"]) == (404, "Object Not Found")
