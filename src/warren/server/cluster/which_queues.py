"""Which queues are replicated, and where their leaders should be. It is decided when a queue is declared, by
the setting `cluster_replicate`, by the queue's arguments, and by the policies that match it then.

A size of 1, by argument or policy, is a queue that lives on one node. Any other size stands for as many
copies as shards have.
"""

from __future__ import annotations

from collections.abc import Mapping

from warren.amqp.table import Table, Value
from warren.broker.commands import DeclareQueue
from warren.broker.internal_queue import exchange_of
from warren.broker.rules import QUORUM, STREAM, queue_type
from warren.cluster.placement import Locator

ALL_DURABLE, ONLY_QUORUM, NONE = "durable", "quorum", "none"  # which queues are in shards, by the setting
SIZES = {QUORUM: "x-quorum-initial-group-size", STREAM: "x-initial-cluster-size"}  # arguments, by type
POLICY_SIZES = ("replicas", "initial-cluster-size")  # settings of policies; the first that is there holds
LOCATORS = ("queue-leader-locator", "queue-master-locator")  # settings of policies; arguments with x- before


def is_replicated(command: DeclareQueue, policy: Table, replicate: str) -> bool:
    """Whether a queue is to be in a shard. `policy` has the settings that match it."""
    if replicate == NONE or not command.durable or command.owner is not None:
        return False
    kind = queue_type(command.arguments)
    size = _size(command.arguments, policy, kind)
    if size is not None:
        return size > 1
    return replicate == ALL_DURABLE or kind in SIZES or exchange_of(command.name) is not None


def _size(arguments: Table, policy: Table, kind: str) -> int | None:
    """How many copies are asked for; None if nobody has asked."""
    said: list[Value] = [arguments.get(SIZES[kind])] if kind in SIZES else []
    said += [policy.get(name) for name in POLICY_SIZES if kind == STREAM or name != "initial-cluster-size"]
    return next((value for value in said if isinstance(value, int)), None)


def locator_of(arguments: Mapping[str, Value], policy: Mapping[str, Value]) -> Locator:
    """Where the leader of a queue should be. All other ways of RabbitMQ to spread leaders mean `balanced`."""
    said = [arguments.get("x-" + name) for name in LOCATORS] + [policy.get(name) for name in LOCATORS]
    wanted = next((value for value in said if value is not None), Locator.CLIENT_LOCAL.value)
    return Locator.CLIENT_LOCAL if wanted == Locator.CLIENT_LOCAL.value else Locator.BALANCED
