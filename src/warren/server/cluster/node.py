"""A broker's part in its cluster: etcd, the node's place among the others, and the definitions they share."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from structlog.stdlib import BoundLogger

from warren.broker.commands import Command, DeclareQueue
from warren.broker.node import Node
from warren.cluster.known_stores import IN
from warren.server.cluster.agreement import check_agreement, settings_told
from warren.server.cluster.bootstrap import (
    Membership,
    agree_on_format,
    agree_on_secret,
    begin_run,
    join,
    register,
    registered_run,
    set_state,
)
from warren.server.cluster.definitions import ClusterDefinitions
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_errors import EtcdError, Refused
from warren.server.cluster.etcd_settings import EtcdSettings
from warren.server.cluster.letter_service import PostToCome
from warren.server.cluster.local_etcd import LocalEtcd
from warren.server.cluster.operations import Operations
from warren.server.cluster.settings import NOT_REPLICATED, ClusterSettings
from warren.server.cluster.shard_service import ShardService
from warren.server.cluster.whereabouts import Whereabouts, at_loopback, own_host
from warren.server.config_error import ConfigError
from warren.storage.store import DiskStore

T = TypeVar("T")

RETRY_SECONDS = 1.0
TOLD_EVERY = 10  # attempts to reach etcd
STOP_SECONDS_MAX = 2.0  # for changes that the end of connections asks for


class ClusterNode:
    def __init__(self, node: Node, settings: ClusterSettings, data_dir: Path, log: BoundLogger) -> None:
        self.node = node
        self.settings = settings
        self.data_dir = data_dir
        self.log = log
        self.run = uuid.uuid4().hex  # of this life of the process
        self.local = LocalEtcd(data_dir / "etcd", log) if settings.etcd is None else None
        where = settings.etcd or EtcdSettings(endpoints=(self.local.endpoint if self.local else "",))
        self.etcd = Etcd(where, node.world.now)
        self.definitions = ClusterDefinitions(node, self.etcd, settings, self.run, log)
        self.membership: Membership | None = None  # None until the node is known to belong here
        self.shards: ShardService | None = None  # None until the node has started
        self.operations = Operations(
            settings, self.definitions.nodes, partial(set_state, self.etcd, settings.prefix)
        )
        node.post = PostToCome()

    async def start(self, recovered: list[Command], store: DiskStore) -> None:
        """Get into the cluster, and let the model, which has what was `recovered` from disk, follow its
        definitions. ConfigError if this node does not belong there.
        """
        if self.local is not None:
            await self.local.start(self.etcd)
            self.log.info("etcd runs here", endpoint=self.local.endpoint)
        cluster = await self._until_reached(lambda: agree_on_format(self.etcd, self.settings))
        self.membership = join(self.data_dir, self.settings, cluster, has_definitions=bool(recovered))
        numbers = store.file.definitions.queue_number
        self.definitions.metadata.assume(
            (command, numbers(command.vhost, command.name) if isinstance(command, DeclareQueue) else 0)
            for command in recovered
        )
        is_replicated = self.settings.replicate != NOT_REPLICATED
        settings = self.settings if is_replicated else replace(self.settings, shards=0)
        self.shards = ShardService(
            self.node, self.definitions, self.etcd, settings, cluster, self.run, store, self.log
        )
        await self.shards.recover()
        if is_replicated:
            self.operations.service = self.shards
        await self.definitions.start()
        self.node.post = self.shards.letters

    def first_node(self) -> str:
        return "" if self.shards is None else self.shards.first_node()

    async def listens(self, addresses: dict[str, str], version: str) -> None:
        """Tell the others where clients find this node."""
        assert self.shards is not None, "a node starts before it listens"
        assert self.membership is not None, "a node starts before it listens"
        where = Whereabouts(self.settings, await own_host(self.etcd.settings.endpoints))
        secret = await self._until_reached(lambda: agree_on_secret(self.etcd, self.settings))
        credentials = self.shards.credentials(secret)
        facts = {
            "store": self.shards.store_id,
            "run": self.run,
            "amqp": where.amqp(addresses.get("amqp") or addresses.get("amqps", "")),
            "http": where.http(addresses.get("http") or addresses.get("https", "")),
            "peers": where.peers(await self.shards.listen(where.peers_bind(), credentials)),
            "version": version,
            "state": IN,
            **settings_told(self.settings),
        }
        if at_loopback(facts["amqp"]) and not at_loopback(facts["peers"]):
            self.log.warning("clients on other machines cannot connect: set bind", amqp=facts["amqp"])
        await self._until_reached(lambda: check_agreement(self.etcd, self.settings, facts, credentials))
        registered = await self._until_reached(lambda: registered_run(self.etcd, self.settings))
        runs = begin_run(self.data_dir, self.membership, self.run, registered=registered).runs
        await self._until_reached(lambda: register(self.etcd, self.settings, facts, runs))
        await self._until_reached(lambda: check_agreement(self.etcd, self.settings, facts, credentials))
        self.definitions.is_registered = True
        self.shards.start()

    async def _until_reached(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask etcd, which may be away or full, until it does what is asked; ConfigError if it never will."""
        attempt = 0
        while True:
            try:
                return await ask()
            except Refused as error:
                raise ConfigError(str(error)) from error
            except EtcdError as error:
                if attempt % TOLD_EVERY == 0:
                    self.log.warning("waiting for etcd", reason=str(error))
            attempt += 1
            await asyncio.sleep(RETRY_SECONDS)

    async def hand_over(self) -> None:
        """Have other nodes lead what this one leads, before its clients are sent away, so that these find the
        next leader at once.
        """
        if self.shards is not None:
            await self.shards.hand_over()

    async def stop(self) -> None:
        """What belongs to connections that have ended should go from all nodes before this one is gone."""
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self.definitions.settled()
        except TimeoutError:
            self.log.info("what this run leaves in etcd is removed by its next one")
        if self.shards is not None:
            await self.shards.stop()
        await self.definitions.stop()
        await self.etcd.close()
        if self.local is not None:
            await self.local.stop()
