"""Carries out on a node's model what has changed among the definitions in etcd."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from warren.amqp.errors import AmqpError, InternalError
from warren.broker.changes import Applied
from warren.broker.client import ClientId
from warren.broker.commands import Command, DeclareQueue
from warren.broker.node import Node
from warren.broker.store import Store
from warren.cluster.definitions.definition import Home, removal_of
from warren.cluster.definitions.definition_copy import Difference, Record, is_permission

SHARD = "#"  # begins the home of a queue that is in a shard; no node has such a name
ELSEWHERE = ClientId(0)  # owns exclusive queues that live on other nodes; no connection has this id


def shard_home(shard: int) -> str:
    """The home of queues whose shard another node leads."""
    return f"{SHARD}{shard}"


class LedShards(Protocol):
    """The shards that this node leads."""

    def home_of(self, shard: int, number: int) -> str:
        """Where the queue of this number, in this shard, lives, for `Proposer.where_is`; empty if that is
        here.
        """

    def store_of(self, shard: int, number: int) -> Store:
        """What opens the logs of the queue of this number, whose shard this node leads."""


class ModelChanges:
    def __init__(self, node: Node, me: Home) -> None:
        self.node = node
        self.me = me  # this node, and its run
        self.shards: LedShards | None = None  # None if this node keeps no shards

    def apply(self, difference: Difference) -> dict[str, Applied]:
        """The results by path. What dies with something goes with it in the model, too; only permissions do
        not know of the end of their vhost.
        """
        results = {}
        for record in difference.died:
            if is_permission(record) and record.key[0] in self.node.users:
                self._carry_out(removal_of(record.definition.command))
        for record in difference.removed:
            results[record.path] = self._carry_out(removal_of(record.definition.command))
        for record in difference.put:
            command = self.command_of(record)
            number = record.number if isinstance(command, DeclareQueue) else 0
            results[record.path] = self._carry_out(command, number, self._store_of(record, command))
        return results

    def _store_of(self, record: Record, command: Command) -> Store | None:
        shard = record.definition.shard
        if shard is None or self.shards is None or not isinstance(command, DeclareQueue) or command.home:
            return None
        return self.shards.store_of(shard, record.number)

    def _carry_out(self, command: Command, number: int = 0, store: Store | None = None) -> Applied:
        try:
            return self.node.apply(command, number, store)
        except AmqpError as error:  # such as an exchange type that only other nodes have
            self.node.world.report(error)
            return Applied(changed=False, error=error)
        except Exception as error:  # noqa: BLE001 - the other changes of the revision do not come again
            self.node.world.report(error)
            return Applied(changed=False, error=InternalError("the node failed; its log says why"))

    def command_of(self, record: Record) -> Command:
        """The command that makes a definition on this node."""
        command = record.definition.command
        home, shard = record.definition.home, record.definition.shard
        if isinstance(command, DeclareQueue) and shard is not None:
            shards = self.shards
            home_of_it = shard_home(shard) if shards is None else shards.home_of(shard, record.number)
            return replace(command, home=home_of_it)
        if not isinstance(command, DeclareQueue) or home is None:
            return command
        if self.is_here(home):
            return replace(command, owner=ClientId(home.client) if home.client else None)
        return replace(command, home=home.node, owner=ELSEWHERE if home.client else None)

    def is_here(self, home: Home) -> bool:
        return home.node == self.me.node and home.run in {"", self.me.run}

    def is_ownerless(self, record: Record) -> bool:
        """Whether it is an exclusive queue of this node, whose connection is not there any more."""
        home = record.definition.home
        return (
            home is not None
            and self.is_here(home)
            and bool(home.client)
            and ClientId(home.client) not in self.node.clients
        )
