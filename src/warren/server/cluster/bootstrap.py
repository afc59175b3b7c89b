"""How a node gets into its cluster: whoever has the same etcd and the same name is in.

    <prefix>format           {"version": 1, "shards": 64, "id": "…"}    written once, by the first node
    <prefix>secret           what nodes prove to each other that they know, unless a file has it
    <prefix>nodes/<name>     {"store": "…", "run": "…", "amqp": "…", …}  written by each node when it listens
    data_dir/cluster.json    {"cluster": "…", "node": "…", "runs": […]}   which cluster a data directory is of

A data directory belongs to one cluster for ever, and a cluster to one etcd: a node whose directory is of
another cluster, or of a broker that was alone, is refused, before it could take that for what was deleted.
`store` is the id of a node's store (`storage/shards_file.py`); a node that keeps no shards has none.

A node whose disk was wiped registers with another store than before. Its record says which stores it had, so
that everybody knows that these never come back. A directory that was restored from a copy is older than what
its store has promised to keep; it does not know the run that was registered last, and is refused.

All of these read before they write. So if etcd does not do what they ask, or does not say so, which they tell
by an `EtcdError`, they can be asked again.
"""

from __future__ import annotations

import json
import os
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warren.cluster.handshake import SECRET_BYTES_MIN
from warren.cluster.transactions import ABSENT, Compare, KeyValue, Outcome, Put, Transaction
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.settings import ClusterSettings
from warren.server.config_error import ConfigError

FORMAT_VERSION = 1
FILE = "cluster.json"
FILE_MODE = 0o600
SECRET_BYTES = 32
TRIES_MAX = 20  # to write a key that others write as well
FORMER_MAX = 32  # stores that a node had, as its record keeps them
RUNS_MAX = 64  # that a directory remembers, besides the one that was registered last


@dataclass(frozen=True)
class Membership:
    """What a data directory knows of its cluster."""

    cluster: str  # the cluster's id
    node: str  # the node's name
    runs: tuple[str, ...] = ()  # the last ones of its node; the first versions noted none


def read_membership(data_dir: Path) -> Membership | None:
    """None for a directory that was never in a cluster."""
    path = data_dir / FILE
    try:
        content = json.loads(path.read_text())
        runs = tuple(str(run) for run in content.get("runs", ()))
        return Membership(str(content["cluster"]), str(content["node"]), runs)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be read: {error!r}") from error


def write_membership(data_dir: Path, membership: Membership) -> None:
    path = data_dir / FILE
    new = path.with_suffix(".new")
    new.touch(FILE_MODE)
    with new.open("w") as file:
        file.write(json.dumps(membership.__dict__) + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    directory = os.open(data_dir, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


async def agree_on_format(etcd: Etcd, settings: ClusterSettings) -> str:
    """The cluster's id, which the first of its nodes has chosen."""
    key = settings.prefix + "format"
    wanted = {"version": FORMAT_VERSION, "shards": settings.shards, "id": uuid.uuid4().hex}
    for _ in range(TRIES_MAX):
        found = await etcd.get(key)
        if found is not None:
            return _check_format(settings, found)
        await etcd.write(Transaction((Compare(key, ABSENT),), (Put(key, json.dumps(wanted).encode()),)))
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


async def agree_on_secret(etcd: Etcd, settings: ClusterSettings) -> bytes:
    """What the nodes prove to each other that they know. The first of them makes it, unless a file has it."""
    if settings.secret_file:
        return _read_secret(Path(settings.secret_file))
    key = settings.prefix + "secret"
    made = Put(key, secrets.token_hex(SECRET_BYTES).encode())
    for _ in range(TRIES_MAX):
        found = await etcd.get(key)
        if found is not None:
            return found.value
        await etcd.write(Transaction((Compare(key, ABSENT),), (made,)))
    raise ConfigError(f"etcd does not keep {key}")


def _read_secret(path: Path) -> bytes:
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cluster_secret_file: {error}") from error
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(f"cluster_secret_file: at least {SECRET_BYTES_MIN} bytes are needed")
    return secret


def join(data_dir: Path, settings: ClusterSettings, cluster: str, *, has_definitions: bool) -> Membership:
    """Make the data directory one of this cluster; ConfigError if it is another's."""
    known = read_membership(data_dir)
    if known is None:
        if has_definitions:
            raise ConfigError(
                f"{data_dir} is of a broker that was alone; in a cluster its queues would be taken for "
                "deleted. Export its definitions, start with an empty directory, and import them there"
            )
        known = Membership(cluster, settings.node)
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


async def registered_run(etcd: Etcd, settings: ClusterSettings) -> str:
    """The run of this node that was registered last; empty if none was."""
    return (await facts_of(etcd, settings.prefix, settings.node)).get("run", "")


def begin_run(data_dir: Path, known: Membership, run: str, *, registered: str) -> Membership:
    """Note a run in the data directory, before anybody else hears of it. However many runs could not be
    registered, the last one that was is not forgotten: it tells that the directory is no copy.
    """
    older, last = known.runs[: 1 - RUNS_MAX], known.runs[1 - RUNS_MAX :]
    begun = replace(known, runs=(*(each for each in older if each == registered), *last, run))
    write_membership(data_dir, begun)
    return begun


async def register(
    etcd: Etcd, settings: ClusterSettings, facts: dict[str, str], runs: tuple[str, ...] = ()
) -> None:
    """Write down where a node is, and which run of it that is. `runs` are those that its directory knows,
    with this one; ConfigError if the last run of this store is none of them.
    """
    key = f"{settings.prefix}nodes/{settings.node}"
    for _ in range(TRIES_MAX):
        found = await etcd.get(key)
        before = {} if found is None else facts_in(found)
        if len(runs) > 1 and before.get("store") == facts["store"] and before.get("run") not in runs:
            raise ConfigError(
                f"the data directory of node '{settings.node}' is a copy, or was restored from one: another "
                "process has used the same store since. Start this node with an empty directory: it gets "
                "everything from the other nodes"
            )
        value = json.dumps({**facts, "former": _former(before, facts["store"])}).encode()
        if found is not None and found.value == value:
            return
        seen = ABSENT if found is None else found.mod_revision
        await etcd.write(Transaction((Compare(key, seen),), (Put(key, value),)))
    raise ConfigError(f"etcd does not keep {key}: is there another node '{settings.node}'?")


def _former(before: dict[str, str], store: str) -> str:
    """The stores that a node had and that never come back, with blanks between them."""
    stores = before.get("former", "").split()
    last = before.get("store", "")
    if last:
        stores.append(last)
    return " ".join(list(dict.fromkeys(each for each in stores if each != store))[-FORMER_MAX:])


async def set_state(etcd: Etcd, prefix: str, node: str, state: str) -> bool:
    """Change the state of a node in its record. False as of `change_record`."""
    return await change_record(etcd, prefix, node, lambda facts: {**facts, "state": state})


async def change_record(
    etcd: Etcd, prefix: str, node: str, change: Callable[[dict[str, str]], dict[str, str]]
) -> bool:
    """Change what the record of a node says. False if there is no such node, or others change it all the
    time.
    """
    key = f"{prefix}nodes/{node}"
    for _ in range(TRIES_MAX):
        found = await etcd.get(key)
        if found is None:
            return False
        before = facts_in(found)
        facts = change(before)
        if facts == before:
            return True
        put = Put(key, json.dumps(facts).encode())
        wrote = await etcd.write(Transaction((Compare(key, found.mod_revision),), (put,)))
        if wrote.outcome is Outcome.SUCCEEDED:
            return True
    return False


async def facts_of(etcd: Etcd, prefix: str, node: str) -> dict[str, str]:
    """What the record of a node says now; nothing if there is none."""
    found = await etcd.get(f"{prefix}nodes/{node}")
    return {} if found is None else facts_in(found)


def facts_in(found: KeyValue) -> dict[str, str]:
    """What a node's record says; nothing if it is not understood."""
    try:
        facts = json.loads(found.value)
        return {str(name): str(value) for name, value in facts.items()}
    except (ValueError, AttributeError):
        return {}
