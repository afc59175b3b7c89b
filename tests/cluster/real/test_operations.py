"""What operators see of a real cluster, and do with it, by the commands and over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.real.broker_nodes import Nodes, eventually, start_replicating
from tests.cluster.real.http_client import HttpClient
from warren.cli.main import main

pytestmark = pytest.mark.slow

SHARDS = 4


@pytest.fixture
def cluster(nodes: Nodes) -> Nodes:
    """Three brokers that replicate durable queues, each of which knows that all copies are in sync."""
    for name in "abc":
        start_replicating(nodes, name)
    eventually(lambda: all(is_whole(nodes, name) for name in "abc"))
    return nodes


def http(nodes: Nodes, name: str) -> HttpClient:
    return HttpClient(nodes.running[name].http_url)


def shards(nodes: Nodes, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http(nodes, name).get("cluster/shards")
    return found


def is_whole(nodes: Nodes, name: str) -> bool:
    found = shards(nodes, name)
    return len(found) == SHARDS and all(shard["leader"] and len(shard["in_sync"]) == 3 for shard in found)


def of_node(nodes: Nodes, asked: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in http(nodes, asked).get("nodes") if each["name"] == name]
    return dict(found)


def leader_of(nodes: Nodes, shard: int) -> str:
    """The node that says itself that it leads a shard, as soon as there is one."""
    found: list[str] = []

    def is_found() -> bool:
        found.extend(name for name in nodes.running if shards(nodes, name)[shard]["role"] == "open")
        return bool(found)

    eventually(is_found)
    return found[0]


def command(nodes: Nodes, asked: str, *words: str) -> int:
    return main(["cluster", *words, "--url", nodes.running[asked].http_url])


def test_all_nodes_tell_the_same_of_nodes_shards_and_queues(
    cluster: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.declare_replicated("a", "q")

    def tell_the_same(ask: Callable[[str], object]) -> None:
        eventually(lambda: ask("a") == ask("b") == ask("c"))

    columns = "columns=name,running,leads,keeps,in_sync,amqp_address"
    tell_the_same(lambda name: http(cluster, name).get(f"nodes?{columns}"))
    tell_the_same(lambda name: http(cluster, name).get("cluster/shards?columns=number,epoch,leader,in_sync"))
    tell_the_same(lambda name: http(cluster, name).get("queues?columns=name,node,leader,members,online"))
    (queue,) = http(cluster, "b").get("queues")
    assert sorted(queue["members"]) == ["a", "b", "c"]
    assert queue["type"] == "classic"
    assert queue["shard"] in range(SHARDS)
    publish = {"routing_key": "q", "payload": "x", "payload_encoding": "string", "properties": {}}
    http(cluster, queue["leader"]).post("exchanges/%2F/amq.default/publish", publish)
    eventually(lambda: all(http(cluster, name).get("queues/%2F/q").get("messages") == 1 for name in "abc"))
    assert command(cluster, "b", "status", "--no-header") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert rows[0][6] == cluster.running["a"].told["amqp"]


def test_a_shard_is_moved_by_its_leader_to_a_node_that_is_in_sync(
    cluster: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    new = next(name for name in "abc" if name != leader_of(cluster, 0))

    def is_refused_elsewhere() -> bool:
        old = leader_of(cluster, 0)  # which may be another one the next time, on a busy machine
        code = command(cluster, next(name for name in "abc" if name != old), "move", "0", new)
        return code == 1 and f"is led by node '{old}': ask there" in capsys.readouterr().err

    def is_moved() -> bool:
        command(cluster, leader_of(cluster, 0), "move", "0", new)
        told = [shards(cluster, name)[0] for name in "abc"]
        return all(shard["leader"] == new == shard["replicas"][0] for shard in told)

    eventually(is_refused_elsewhere)
    eventually(is_moved)


def test_a_node_that_is_drained_leads_nothing_until_it_is_undrained(cluster: Nodes) -> None:
    eventually(lambda: command(cluster, "b", "drain") == 0)
    for asked in "abc":
        eventually(lambda asked=asked: of_node(cluster, asked, "b")["being_drained"])  # type: ignore[misc]
        eventually(lambda asked=asked: is_whole(cluster, asked))  # type: ignore[misc]
        eventually(lambda asked=asked: of_node(cluster, asked, "b")["leads"] == 0)  # type: ignore[misc]
    assert command(cluster, "b", "undrain") == 0
    for asked in "abc":
        eventually(lambda asked=asked: not of_node(cluster, asked, "b")["being_drained"])  # type: ignore[misc]
    eventually(lambda: command(cluster, leader_of(cluster, 1), "move", "1", "b") == 0)


def test_the_loss_of_a_node_is_told_and_makes_others_critical(cluster: Nodes) -> None:
    cluster.declare_replicated("a", "q")
    check = "health/checks/node-is-quorum-critical"
    eventually(lambda: '"ok"' in _health(cluster, "a", check))
    cluster.running.pop("c").kill()
    eventually(lambda: of_node(cluster, "a", "c")["running"] is False)
    eventually(lambda: all(shard["leader"] in {"a", "b"} for shard in shards(cluster, "a")))
    eventually(lambda: all(len(shard["in_sync"]) == 2 for shard in shards(cluster, "a")))
    eventually(lambda: '"q"' in _health(cluster, "a", check))
    eventually(lambda: "\nrabbitmq_unreachable_cluster_peers_count 1\n" in _metrics(cluster, "a"))
    eventually(lambda: "\nwarren_cluster_shards_without_leader 0\n" in _metrics(cluster, "a"))
    start_replicating(cluster, "c")
    eventually(lambda: all(is_whole(cluster, name) for name in "abc"))
    eventually(lambda: '"ok"' in _health(cluster, "a", check))


def _health(nodes: Nodes, name: str, check: str) -> str:
    return http(nodes, name).text(f"/api/{check}").decode()


def _metrics(nodes: Nodes, name: str) -> str:
    return http(nodes, name).text("/metrics").decode()
