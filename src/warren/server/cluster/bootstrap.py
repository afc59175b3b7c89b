"""How a node gets into its cluster: whoever has the same etcd and the same name is in.

    <prefix>format           {"version": 1, "shards": 64, "id": "…"}    written once, by the first node
    <prefix>nodes/<name>     {"store": "…", "run": "…", "amqp": "…", …}  written by each node when it listens
    data_dir/cluster.json    {"cluster": "…", "store": "…", "node": "…"} which cluster a data directory is of

A data directory belongs to one cluster for ever, and a cluster to one etcd: a node whose directory is of
another cluster, or of a broker that was alone, is refused, before it could take that for what was deleted.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warren.cluster.transactions import ABSENT, Answer, Compare, KeyValue, Outcome, Put, Transaction
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_errors import Unreachable
from warren.server.cluster.settings import ClusterSettings
from warren.server.config_error import ConfigError

FORMAT_VERSION = 1
FILE = "cluster.json"
FILE_MODE = 0o600
TRIES_MAX = 20  # to write a key that others write as well


@dataclass(frozen=True)
class Membership:
    """What a data directory knows of its cluster."""

    cluster: str  # the cluster's id
    store: str  # the directory's own id, made once: a wiped disk is another store
    node: str  # the node's name


def read_membership(data_dir: Path) -> Membership | None:
    """None for a directory that was never in a cluster."""
    path = data_dir / FILE
    try:
        return Membership(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def write_membership(data_dir: Path, membership: Membership) -> None:
    path = data_dir / FILE
    new = path.with_suffix(".new")
    new.touch(FILE_MODE)
    new.write_text(json.dumps(membership.__dict__) + "\n")
    new.rename(path)


async def agree_on_format(etcd: Etcd, settings: ClusterSettings) -> str:
    """The cluster's id, which the first of its nodes has chosen."""
    key = settings.prefix + "format"
    wanted = {"version": FORMAT_VERSION, "shards": settings.shards, "id": uuid.uuid4().hex}
    for _ in range(TRIES_MAX):
        found = await etcd.get(key)
        if found is not None:
            return _check_format(settings, found)
        wrote = await etcd.txn(Transaction((Compare(key, ABSENT),), (Put(key, json.dumps(wanted).encode()),)))
        _check_sent(wrote)
    raise ConfigError(f"etcd does not keep {key}")


def _check_format(settings: ClusterSettings, found: KeyValue) -> str:
    try:
        known: dict[str, Any] = json.loads(found.value)
        version, shards, cluster = int(known["version"]), int(known["shards"]), str(known["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{found.key} in etcd is not that of a cluster: {error!r}") from error
    if version > FORMAT_VERSION:
        raise ConfigError(
            f"cluster '{settings.name}' has format {version}, and this version of WarrenMQ knows "
            f"{FORMAT_VERSION}: upgrade this node"
        )
    if shards != settings.shards:
        raise ConfigError(
            f"cluster_shards = {settings.shards}: cluster '{settings.name}' was made with {shards}, for good"
        )
    return cluster


def _check_sent(answer: Answer) -> None:
    if answer.outcome is Outcome.NOT_SENT:
        raise Unreachable(answer.reason, was_sent=False)


def join(data_dir: Path, settings: ClusterSettings, cluster: str, *, has_definitions: bool) -> Membership:
    """Make the data directory one of this cluster; ConfigError if it is another's."""
    known = read_membership(data_dir)
    if known is None:
        if has_definitions:
            raise ConfigError(
                f"{data_dir} is of a broker that was alone; in a cluster its queues would be taken for "
                "deleted. Export its definitions, start with an empty directory, and import them there"
            )
        known = Membership(cluster, uuid.uuid4().hex, settings.node)
        write_membership(data_dir, known)
    if known.cluster != cluster:
        raise ConfigError(
            f"{data_dir} is of another cluster than '{settings.name}' in this etcd: its id is "
            f"{known.cluster}, etcd's is {cluster}. Is the etcd another one, or was it wiped?"
        )
    if known.node != settings.node:
        raise ConfigError(
            f"{data_dir} is of node '{known.node}', and not of '{settings.node}': a node keeps its name"
        )
    return known


async def register(etcd: Etcd, settings: ClusterSettings, facts: dict[str, str]) -> None:
    """Write down where a node is, and which run of it that is."""
    key = f"{settings.prefix}nodes/{settings.node}"
    value = json.dumps(facts).encode()
    for _ in range(TRIES_MAX):
        found = await etcd.get(key)
        if found is not None and found.value == value:
            return
        seen = ABSENT if found is None else found.mod_revision
        _check_sent(await etcd.txn(Transaction((Compare(key, seen),), (Put(key, value),))))
    raise ConfigError(f"etcd does not keep {key}: is there another node '{settings.node}'?")
