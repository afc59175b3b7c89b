"""What a node knows of the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from tests.support.machine import Machine
from tests.unit.server.cluster.test_balancer import SETTINGS
from warren.cluster.transactions import Changed, KeyValue
from warren.server.cluster import definitions as definitions_module
from warren.server.cluster.definitions import ClusterDefinitions
from warren.server.cluster.etcd import Etcd, Loaded
from warren.server.log import get_logger

SECONDS_MAX = 60
NODES = SETTINGS.prefix + "nodes/"


class SilentEtcd:
    """Answers reads, as members that see each other do. Its watches are those of one that is cut off, which
    tell what was there before.
    """

    def __init__(self) -> None:
        self.revision = 1
        self.nodes: dict[str, KeyValue] = {}
        self.told: asyncio.Queue[list[Changed]] = asyncio.Queue()  # by the watch of the nodes

    def put(self, name: str, amqp: str) -> KeyValue:
        self.revision += 1
        value = json.dumps({"amqp": amqp, "run": "1"}).encode()
        self.nodes[name] = KeyValue(NODES + name, value, 1, self.revision, 1)
        return self.nodes[name]

    async def get(self, _key: str) -> KeyValue | None:
        return None

    async def load(self, prefix: str) -> Loaded:
        return Loaded(self.revision, list(self.nodes.values()) if prefix == NODES else [])

    async def watch(self, prefix: str, _revision: int) -> AsyncGenerator[list[Changed]]:
        while True:
            if prefix == NODES:
                yield await self.told.get()
            else:
                await asyncio.Event().wait()


class Scene:
    def __init__(self, machine: Machine) -> None:
        self.etcd = SilentEtcd()
        self.definitions = ClusterDefinitions(
            machine.node, cast("Etcd", self.etcd), SETTINGS, "1", get_logger()
        )
        self.definitions.on_node = self.node_is_at
        self.told: list[tuple[str, str]] = []
        self.more = asyncio.Event()
        self.fails_for = ""  # a node that nothing can be made of

    def node_is_at(self, name: str, facts: dict[str, str]) -> None:
        if name == self.fails_for:
            raise RuntimeError("it cannot be dealt with")
        self.told.append((name, facts["amqp"]))
        self.more.set()

    async def until(self, *what: tuple[str, str]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not set(what) <= set(self.told):
                self.more.clear()
                await self.more.wait()


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(definitions_module, "COUNT_SECONDS", 0.01)
    machine = Machine(tmp_path)
    scene = Scene(machine)
    yield scene
    await scene.definitions.stop()
    machine.node.proposer = None
    machine.world.errors.clear()
    machine.close()


async def test_nodes_are_known_though_a_watch_says_nothing(scene: Scene) -> None:
    scene.etcd.put("b", "here")
    await scene.definitions.start()
    await scene.until(("b", "here"))
    before = scene.etcd.put("b", "there")
    scene.etcd.put("c", "here")
    await scene.until(("b", "there"), ("c", "here"))
    # The watch is late: it must not take back what is known.
    after = scene.etcd.put("d", "here")
    scene.etcd.told.put_nowait([Changed(each.key, each.mod_revision, each) for each in (before, after)])
    await scene.until(("d", "here"))
    assert scene.told == [("b", "here"), ("b", "there"), ("c", "here"), ("d", "here")]


async def test_a_node_that_cannot_be_dealt_with_hides_no_other(scene: Scene) -> None:
    scene.fails_for = "b"
    scene.etcd.put("b", "here")
    scene.etcd.put("c", "here")
    await scene.definitions.start()
    await scene.until(("c", "here"))
