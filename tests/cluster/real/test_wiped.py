"""Data directories of real brokers that are wiped, or restored from a copy."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
from typing import Any

import pytest

from tests.cluster.real.broker_nodes import (
    REPLICATING,
    WAIT_SECONDS,
    Nodes,
    eventually,
    leader,
    start_replicating,
)
from tests.cluster.real.test_replicated import publish, take
from tests.support.process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAMES = "abc"


def in_etcd(nodes: Nodes, key: str) -> dict[str, Any]:
    """What etcd has under a key of the cluster."""
    encoded = base64.b64encode(f"/warren/demo/{key}".encode()).decode()
    connection = http.client.HTTPConnection(nodes.etcd.endpoint.removeprefix("http://"), timeout=WAIT_SECONDS)
    try:
        connection.request("POST", "/v3/kv/range", json.dumps({"key": encoded}))
        (found,) = json.loads(connection.getresponse().read())["kvs"]
    finally:
        connection.close()
    value: dict[str, Any] = json.loads(base64.b64decode(found["value"]))
    return value


@pytest.fixture
def cluster(nodes: Nodes) -> Nodes:
    """Three brokers that replicate a queue with messages."""
    for name in NAMES:
        start_replicating(nodes, name)
    nodes.declare_replicated("a", "q")
    _, channel = leader(nodes, "q")
    publish(channel, "q", 0, 100)
    return nodes


def test_a_broker_whose_disk_was_wiped_comes_back_and_has_everything(cluster: Nodes) -> None:
    cluster.running.pop("c").kill()
    shutil.rmtree(cluster.path / "c")
    start_replicating(cluster, "c")
    stores = {name: in_etcd(cluster, f"nodes/{name}")["store"] for name in NAMES}

    def all_in_sync() -> bool:
        records = [in_etcd(cluster, f"shards/{number}") for number in range(4)]
        return all(set(record["isr"]) == set(stores.values()) for record in records)

    eventually(all_in_sync)
    cluster.running.pop("a").kill()
    _, channel = leader(cluster, "q")
    assert take(channel, "q", 100) == list(range(100))


def test_a_directory_that_was_restored_from_a_copy_is_refused(cluster: Nodes) -> None:
    cluster.running.pop("c").kill()
    shutil.copytree(cluster.path / "c", cluster.path / "copy")
    start_replicating(cluster, "c")  # it keeps more by now than the copy has
    cluster.running.pop("c").kill()
    shutil.rmtree(cluster.path / "c")
    (cluster.path / "copy").rename(cluster.path / "c")
    config = cluster.path / "warren.toml"
    config.write_text(REPLICATING)
    flags = ("--cluster", "demo", "--etcd", cluster.etcd.endpoint, "--node", "c", "--config", str(config))
    refused = BrokerProcess(cluster.path / "c", *flags)
    refused.launch()
    refused.process.communicate(timeout=WAIT_SECONDS)
    assert refused.process.returncode == 2
    assert "was restored from one" in refused.log()
