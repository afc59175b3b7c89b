"""How a node gets into its cluster, with a real etcd."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import warren
from tests.cluster.real.etcd_space import fill, make_space
from tests.cluster.real.shard_node import CLUSTER
from warren.cluster.known_stores import DRAINING
from warren.server.address import split_address
from warren.server.cluster import node as node_module
from warren.server.cluster.agreement import Facts
from warren.server.cluster.bootstrap import (
    FILE,
    RUNS_MAX,
    agree_on_format,
    agree_on_secret,
    begin_run,
    join,
    read_membership,
    register,
    registered_run,
    set_state,
)
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_errors import Failed
from warren.server.cluster.local_etcd import LocalEtcd
from warren.server.cluster.settings import ClusterSettings
from warren.server.config_error import ConfigError

SETTINGS = replace(CLUSTER, node="a")


async def start(etcd: Etcd, data_dir: Path, run: str, *, may_write: bool = True) -> None:
    """A node starts. Its etcd may answer reads, and refuse writes."""
    membership = join(data_dir, SETTINGS, await agree_on_format(etcd, SETTINGS), has_definitions=False)
    registered = await registered_run(etcd, SETTINGS)
    runs = begin_run(data_dir, membership, run, registered=registered).runs
    assert len(runs) <= RUNS_MAX + 1
    if may_write:
        await register(etcd, SETTINGS, {"store": "s", "run": run}, runs)


async def test_a_node_is_no_copy_however_often_it_could_not_be_registered(tmp_path: Path, etcd: Etcd) -> None:
    await start(etcd, tmp_path, "0")
    await start(etcd, tmp_path, "registered")
    for number in range(RUNS_MAX + 10):
        await start(etcd, tmp_path, str(number), may_write=False)
    await start(etcd, tmp_path, "at last")
    assert await registered_run(etcd, SETTINGS) == "at last"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cluster": "c", "node": "a", "runs": 1}'])
def test_a_file_that_makes_no_sense_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_membership(tmp_path)


async def test_a_copy_is_refused(tmp_path: Path, etcd: Etcd) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy"
    for directory in (first, copy):
        directory.mkdir()
        await start(etcd, directory, f"before {directory.name}", may_write=False)
    await start(etcd, first, "1")
    with pytest.raises(ConfigError, match="is a copy"):
        await start(etcd, copy, "2")


async def test_a_node_that_is_refused_listens_no_more(
    tmp_path: Path, local_etcd: LocalEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others know it from a run before, and call it already."""
    told: list[str] = []

    async def refuse(_etcd: Etcd, _settings: ClusterSettings, facts: Facts, *_: object) -> None:
        told.append(facts["peers"])
        raise ConfigError("its settings differ")

    monkeypatch.setattr(node_module, "check_agreement", refuse)
    settings: dict[str, Any] = {
        "cluster": "test",
        "cluster_node": "a",
        "cluster_etcd": (local_etcd.endpoint,),
    }
    tasks = asyncio.all_tasks()
    with pytest.raises(ConfigError, match="its settings differ"):
        await warren.Broker(port=0, data_dir=tmp_path / "data", **settings).start()
    (peers,) = told
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*split_address(peers))
    assert asyncio.all_tasks() == tasks


@pytest.mark.usefixtures("small_quota")
async def test_an_etcd_without_space_is_no_reason_to_give_up(etcd: Etcd) -> None:
    facts = {"store": "s", "run": "1"}
    await fill(etcd)
    with pytest.raises(Failed, match="disarm its alarm"):
        await agree_on_format(etcd, SETTINGS)
    with pytest.raises(Failed, match="disarm its alarm"):
        await agree_on_secret(etcd, SETTINGS)
    with pytest.raises(Failed, match="disarm its alarm"):
        await register(etcd, SETTINGS, facts)
    await make_space(etcd)
    await agree_on_format(etcd, SETTINGS)
    assert await agree_on_secret(etcd, SETTINGS) == await agree_on_secret(etcd, SETTINGS)
    await register(etcd, SETTINGS, facts)
    await fill(etcd)
    with pytest.raises(Failed, match="disarm its alarm"):
        await set_state(etcd, SETTINGS.prefix, SETTINGS.node, DRAINING)
    await make_space(etcd)
    assert await set_state(etcd, SETTINGS.prefix, SETTINGS.node, DRAINING)
