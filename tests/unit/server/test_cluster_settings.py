"""The settings of a cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from warren.server.address import Address
from warren.server.cluster.advertised import Advertised
from warren.server.cluster.bootstrap import Membership, join, read_membership
from warren.server.cluster.endpoints import AVOIDED_SECONDS, Endpoints
from warren.server.cluster.settings import ClusterSettings
from warren.server.config import Config, load
from warren.server.config_error import ConfigError

ETCD = "http://10.0.0.1:2379"


def settings() -> ClusterSettings:
    found = Config(cluster="demo", cluster_node="a", cluster_etcd=(ETCD,)).clustering()
    assert found is not None
    return found


def test_a_broker_is_alone_by_default() -> None:
    assert Config().clustering() is None


def test_a_name_is_enough_on_a_machine_with_etcd() -> None:
    found = Config(cluster="demo").clustering()
    assert found is not None
    assert found.node == socket.gethostname()
    assert found.etcd is not None
    assert found.etcd.endpoints == ("http://127.0.0.1:2379",)


def test_the_table_of_the_file_and_flags_go_together(tmp_path: Path) -> None:
    file = tmp_path / "warren.toml"
    file.write_text(f'[cluster]\nname = "demo"\netcd = ["{ETCD}", "http://b:1"]\nlease = 2\ngrace = 4.0\n')
    found = load({"config": str(file), "cluster_node": "a"}, {}).clustering()
    assert found is not None
    assert (found.name, found.node, found.lease_seconds, found.prefix) == ("demo", "a", 2.0, "/warren/demo/")
    assert found.etcd is not None
    assert found.etcd.endpoints == (ETCD, "http://b:1")


def test_endpoints_may_have_commas_between_them() -> None:
    found = load({"cluster": "demo", "cluster_node": "a", "cluster_etcd": f"{ETCD},http://b:1"}, {})
    assert found.cluster_etcd == (ETCD, "http://b:1")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"cluster_etcd": ()}, "URLs of etcd"),
        ({"cluster_etcd": ("10.0.0.1:2379",)}, "a URL"),
        ({"cluster_node": "a/b"}, "cluster_node"),
        ({"cluster": "a b"}, "cluster"),
        ({"cluster_min_in_sync": 4}, "cluster_min_in_sync"),
        ({"cluster_shards": 0}, "cluster_shards"),
        ({"cluster_replicas": 10}, "cluster_replicas"),
        ({"cluster_grace": 2.0}, "cluster_grace"),
        ({"cluster_lease": 0.0}, "cluster_lease"),
        ({"cluster_replicate": "all"}, "cluster_replicate"),
        ({"cluster_replace_after": -1.0}, "cluster_replace_after"),
        ({"events_stream": True}, "events_stream"),
        ({"cluster_peers_bind": "10.0.0.5"}, "cluster_peers_bind: '10.0.0.5'"),
        ({"cluster_peers_bind": "127.0.0.1:x"}, "cluster_peers_bind"),
        ({"cluster_peers_bind": ":5680"}, "cluster_peers_bind"),
        ({"cluster_advertise": "0.0.0.0"}, "cluster_advertise"),
        ({"cluster_advertise": "broker-a:x"}, "cluster_advertise"),
        ({"cluster_http_advertise": "broker-a:70000"}, "cluster_http_advertise"),
        ({"cluster_peers_advertise": "[::]:5680"}, "cluster_peers_advertise"),
        ({"cluster_peers_advertise": "broker-a:0"}, "cluster_peers_advertise"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], text: str) -> None:
    right = {"cluster": "demo", "cluster_node": "a", "cluster_etcd": (ETCD,)}
    with pytest.raises(ConfigError, match=text):
        Config(**right | wrong)  # type: ignore[arg-type]


def test_addresses_are_read_with_and_without_brackets_and_ports() -> None:
    found = Config(
        cluster="demo",
        cluster_node="a",
        cluster_advertise="broker-a",
        cluster_http_advertise="broker-a:80",
        cluster_peers_bind="[::1]:0",
        cluster_peers_advertise="fe80::1",
    ).clustering()
    assert found is not None
    assert found.advertise == Advertised("broker-a", "")
    assert found.http_advertise == Advertised("broker-a", "80")
    assert found.peers_bind == Address("::1", 0)
    assert found.peers_advertise == Advertised("fe80::1", "")


def test_a_directory_keeps_its_cluster_and_its_node(tmp_path: Path) -> None:
    first = join(tmp_path, settings(), "id", has_definitions=False)
    assert read_membership(tmp_path) == first
    assert join(tmp_path, settings(), "id", has_definitions=True) == first
    assert (tmp_path / "cluster.json").stat().st_mode & 0o077 == 0


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    join(tmp_path, settings(), "id", has_definitions=False)
    other = Config(cluster="demo", cluster_node="b", cluster_etcd=(ETCD,)).clustering()
    assert other is not None
    with pytest.raises(ConfigError, match="is of node 'a'"):
        join(tmp_path, other, "id", has_definitions=True)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"cluster": 1')
    with pytest.raises(ConfigError, match="cannot be read"):
        read_membership(tmp_path)


def test_a_file_that_has_more_is_understood(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"cluster": "c", "store": "s", "node": "n"}')
    assert read_membership(tmp_path) == Membership("c", "n")


def test_an_endpoint_that_failed_is_left_for_a_while() -> None:
    now = [0.0]
    endpoints = Endpoints(("http://a/", "http://b"), lambda: now[0])
    assert endpoints.next() == "http://a"
    endpoints.avoid("http://a")
    assert endpoints.next() == "http://b"
    endpoints.avoid("http://b")
    assert endpoints.next() == "http://a", "if all have failed, the one that failed first"
    now[0] = AVOIDED_SECONDS
    endpoints.avoid("http://a")
    assert endpoints.next() == "http://b"
