"""What the nodes of a cluster have to agree on. Each writes its settings into its record in etcd. A node that
starts compares them with those of the nodes that run (`presence.py`), and is refused if they do not go
together, or if a node of its name runs: before it registers, since nobody must count on it then, and once
more afterwards, since of two that start at the same time one sees the other at least. The record of a node
that does not run refuses nobody.

A node at a loopback address can be called on its own machine only. Machines are told apart by the names of
their hosts, which may change: whoever answers at a loopback address is on this machine, whatever its name is.

`cluster_lease` and `cluster_grace` may differ as long as the grace of each node is longer than the lease of
every other one by `GRACE_OVER_LEASE`: else a follower would stand while the leader still delivers. Nodes may
replicate different queues, but not none if others do. The rest is the same on all nodes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

from warren.cluster.known_stores import REMOVED
from warren.server.cluster.bootstrap import facts_in
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.peers import NodeCredentials
from warren.server.cluster.presence import can_be_called, runs
from warren.server.cluster.settings import GRACE_OVER_LEASE, NOT_REPLICATED, ClusterSettings
from warren.server.cluster.whereabouts import at_loopback
from warren.server.config_error import ConfigError

SAME = ("replicas", "min_in_sync")

Facts = Mapping[str, str]


def settings_told(settings: ClusterSettings) -> dict[str, str]:
    """What a node's record says of its settings."""
    return {
        "machine": socket.gethostname(),
        "replicas": str(settings.replicas),
        "min_in_sync": str(settings.min_in_sync),
        "lease": str(settings.lease_seconds),
        "grace": str(settings.grace_seconds),
        "replicate": settings.replicate,
    }


async def check_agreement(
    etcd: Etcd, settings: ClusterSettings, mine: Facts, credentials: NodeCredentials
) -> None:
    """ConfigError if this node, of which `mine` is the record, and one that runs cannot be in one cluster."""
    loaded = await etcd.load(f"{settings.prefix}nodes/")
    told = {kv.key.rpartition("/")[2]: facts_in(kv) for kv in loaded.kvs}
    nodes = {name: facts for name, facts in told.items() if facts.get("state") != REMOVED}

    async def conflict(name: str, theirs: Facts) -> str:
        """Why this node cannot run beside that one, if that one runs; else empty."""
        why = same_name(mine, theirs) if name == settings.node else disagreement(name, mine, theirs)
        if not why and name != settings.node and settings.peers_bind is None:
            why = out_of_reach(name, mine, theirs)
            if why and at_loopback(theirs.get("peers", "")) and await can_be_called(theirs, credentials):
                return ""
        return why if why and await runs(etcd, settings.prefix, name, theirs, credentials) else ""

    for why in await asyncio.gather(*(conflict(name, theirs) for name, theirs in nodes.items())):
        if why:
            raise ConfigError(why)


def same_name(mine: Facts, theirs: Facts) -> str:
    """Why this node cannot run beside the one that has registered with its name: all others would take the
    store of that one for lost, and replace its copies.
    """
    if theirs.get("store", mine["store"]) == mine["store"]:
        return ""
    return "another process, with another data directory, runs as this node: each needs its own cluster_node"


def out_of_reach(name: str, mine: Facts, theirs: Facts) -> str:
    """Why another node cannot call this one; empty if it can: this one can be called on its own machine only,
    and the other one is on another machine.
    """
    if not at_loopback(mine["peers"]) or theirs.get("machine", mine["machine"]) == mine["machine"]:
        return ""
    return (
        f"cluster_peers_bind has to say where other nodes connect to: node '{name}' is on machine "
        f"'{theirs['machine']}', and cannot call {mine['peers']}"
    )


def disagreement(name: str, mine: Facts, theirs: Facts) -> str:
    """Why this node and another one cannot run at the same time; empty if they can. Versions before this one
    told nothing of their settings.
    """
    if "lease" not in theirs:
        return ""
    for fact in SAME:
        if mine[fact] != theirs[fact]:
            return _differs(name, fact, mine, theirs)
    if (mine["replicate"] == NOT_REPLICATED) != (theirs["replicate"] == NOT_REPLICATED):
        return _differs(name, "replicate", mine, theirs)
    for fact, other, lease, grace in (("lease", "grace", mine, theirs), ("grace", "lease", theirs, mine)):
        if float(lease["lease"]) + GRACE_OVER_LEASE > float(grace["grace"]):
            return (
                f"cluster_{fact} = {mine[fact]}: node '{name}' runs with cluster_{other} = {theirs[other]}; "
                f"the grace of each node has to be {GRACE_OVER_LEASE:.0f} second more than the lease of all "
                "others"
            )
    return ""


def _differs(name: str, fact: str, mine: Facts, theirs: Facts) -> str:
    return (
        f"cluster_{fact} = {mine[fact]}: node '{name}' runs with {theirs[fact]}; to change it, stop all "
        "nodes first"
    )
