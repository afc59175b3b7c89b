"""The settings of a cluster, checked. `Config` has them one by one, as `cluster_etcd` and so on."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Any

from warren.server.address import Address, address_of
from warren.server.cluster.advertised import Advertised, advertised
from warren.server.cluster.etcd_settings import EtcdSettings
from warren.server.config_error import ConfigError

LOCAL = "local"  # in place of endpoints: run an etcd here
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
URL = re.compile(r"https?://[^/\s]+/?")
SHARDS_MAX = 1024
REPLICAS_MAX = 9
SECONDS_MAX = 3_600.0
REPLACE_SECONDS_MAX = 365 * 24 * 3_600.0
GRACE_OVER_LEASE = 1.0  # seconds: what clocks and long turns may take
NOT_REPLICATED = "none"  # queues each live on one node
REPLICATE = ("durable", "quorum", NOT_REPLICATED)


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The cluster that a node is in."""

    name: str  # of the cluster: nodes with the same name and etcd are in one
    node: str  # the name of this node
    etcd: EtcdSettings | None  # None: an etcd runs here
    advertise: Advertised | None  # where clients connect to; None: where it listens
    http_advertise: Advertised | None
    peers_bind: Address | None  # where to listen for other nodes
    peers_advertise: Advertised | None  # where other nodes connect to
    secret_file: str  # has what nodes prove to each other that they know
    shards: int
    replicas: int
    min_in_sync: int
    lease_seconds: float
    grace_seconds: float
    replace_after_seconds: float
    replicate: str

    @property
    def prefix(self) -> str:
        """Of all its keys in etcd."""
        return f"/warren/{self.name}/"


def cluster_settings(config: Any) -> ClusterSettings | None:
    """Those of a `Config`; None for a broker that is alone, whose settings make sense all the same."""
    _check_sizes(config)
    if not config.cluster:
        return None
    node = config.cluster_node or socket.gethostname()
    for name, value in (("cluster", config.cluster), ("cluster_node", node)):
        _check(NAME.fullmatch(value), name, value, "letters, digits, . _ -")
    _check(not config.events_stream, "events_stream", True, "false in a cluster")
    return ClusterSettings(
        name=config.cluster,
        node=node,
        etcd=_etcd(config),
        advertise=_advertised(config, "cluster_advertise"),
        http_advertise=_advertised(config, "cluster_http_advertise"),
        peers_bind=_peers_bind(config.cluster_peers_bind),
        peers_advertise=_advertised(config, "cluster_peers_advertise"),
        secret_file=config.cluster_secret_file,
        shards=config.cluster_shards,
        replicas=config.cluster_replicas,
        min_in_sync=config.cluster_min_in_sync,
        lease_seconds=config.cluster_lease,
        grace_seconds=config.cluster_grace,
        replace_after_seconds=config.cluster_replace_after,
        replicate=config.cluster_replicate,
    )


def _advertised(config: Any, setting: str) -> Advertised | None:
    text = getattr(config, setting)
    return advertised(setting, text) if text else None


def _peers_bind(text: str) -> Address | None:
    return address_of("cluster_peers_bind", text) if text else None


def _check_sizes(config: Any) -> None:
    shards, replicas, least = config.cluster_shards, config.cluster_replicas, config.cluster_min_in_sync
    _check(1 <= shards <= SHARDS_MAX, "cluster_shards", shards, f"1 to {SHARDS_MAX}")
    _check(1 <= replicas <= REPLICAS_MAX, "cluster_replicas", replicas, f"1 to {REPLICAS_MAX}")
    _check(1 <= least <= replicas, "cluster_min_in_sync", least, "1 to cluster_replicas")
    lease, grace = config.cluster_lease, config.cluster_grace
    _check(0 < lease <= SECONDS_MAX, "cluster_lease", lease, f"seconds up to {SECONDS_MAX:.0f}")
    _check(
        lease + GRACE_OVER_LEASE <= grace <= SECONDS_MAX,
        "cluster_grace",
        grace,
        f"at least {GRACE_OVER_LEASE:.0f} second more than cluster_lease",
    )
    after = config.cluster_replace_after
    _check(0 <= after <= REPLACE_SECONDS_MAX, "cluster_replace_after", after, "seconds, up to a year")
    _check(
        config.cluster_replicate in REPLICATE,
        "cluster_replicate",
        config.cluster_replicate,
        ", ".join(REPLICATE),
    )


def _etcd(config: Any) -> EtcdSettings | None:
    endpoints = config.cluster_etcd
    if endpoints == (LOCAL,):
        return None
    _check(endpoints, "cluster_etcd", "", f"URLs of etcd, such as http://10.0.0.1:2379, or {LOCAL!r}")
    for endpoint in endpoints:
        _check(URL.fullmatch(endpoint), "cluster_etcd", endpoint, "a URL, such as http://10.0.0.1:2379")
    return EtcdSettings(
        endpoints=endpoints,
        user=config.cluster_etcd_user,
        password=config.cluster_etcd_password,
        ca=config.cluster_etcd_ca,
        cert=config.cluster_etcd_cert,
        key=config.cluster_etcd_key,
    )


def _check(right: object, name: str, value: object, expected: str) -> None:
    if not right:
        raise ConfigError(f"{name} = {value!r}: expected {expected}")
