"""Everything that changes the topology, as small immutable commands: plain data, and nothing that lives.

A session checks that a client may do what it asks, and then asks the node for the change; configuration, the
HTTP API and the embedding program ask for the same commands. `changes.py` checks and carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from warren.amqp.table import Table
from warren.broker.access import Permissions, TopicPermissions
from warren.broker.client import ClientId
from warren.broker.passwords import PasswordHash

COMMAND_WORK = 200  # units of `Budget`: what it takes to carry one out, and to write it down
OF_THE_MOMENT: Mapping[str, bool] = {"of the moment": True}
"""The metadata of fields that matter when a command is carried out, and are no part of what it defines."""


@dataclass(frozen=True, kw_only=True)
class AddVhost:
    name: str


@dataclass(frozen=True, kw_only=True)
class DeleteVhost:
    """With all that is in it; connections to it are closed."""

    name: str


@dataclass(frozen=True, kw_only=True)
class SetTracing:
    """Switch the firehose of a vhost. As in RabbitMQ, it is off after a restart."""

    vhost: str
    on: bool


@dataclass(frozen=True, kw_only=True)
class PutUser:
    """Make a user, or change its password and tags."""

    name: str
    password: PasswordHash | None
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class DeleteUser:
    name: str


@dataclass(frozen=True, kw_only=True)
class SetPermissions:
    user: str
    vhost: str
    permissions: Permissions


@dataclass(frozen=True, kw_only=True)
class ClearPermissions:
    """From now on the user may do nothing in this vhost."""

    user: str
    vhost: str


@dataclass(frozen=True, kw_only=True)
class SetTopicPermissions:
    user: str
    vhost: str
    exchange: str
    permissions: TopicPermissions


@dataclass(frozen=True, kw_only=True)
class ClearTopicPermissions:
    """From now on the user may use any routing key with this exchange."""

    user: str
    vhost: str
    exchange: str


@dataclass(frozen=True, kw_only=True)
class SetVhostLimits:
    """For both, None or -1 is no limit, and 0 is none allowed. What is there already stays."""

    vhost: str
    max_connections: int | None = None
    max_queues: int | None = None


@dataclass(frozen=True, kw_only=True)
class SetUserLimits:
    """None or -1 is no limit. Rates are a second's, of all connections of the user: messages, and bytes."""

    user: str
    max_connections: int | None = None
    max_channels: int | None = None
    max_publish_rate: int | None = None
    max_publish_bytes: int | None = None
    max_consume_rate: int | None = None
    max_consume_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class PutPolicy:
    """Make a policy, or change it. An operator's has a name of its own among those."""

    vhost: str
    name: str
    pattern: str
    definition: Table
    priority: int = 0
    apply_to: str = "all"
    operator: bool = False


@dataclass(frozen=True, kw_only=True)
class DeletePolicy:
    vhost: str
    name: str
    operator: bool = False


@dataclass(frozen=True, kw_only=True)
class DeclareExchange:
    vhost: str
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeleteExchange:
    vhost: str
    name: str
    if_unused: bool = field(default=False, metadata=OF_THE_MOMENT)


@dataclass(frozen=True, kw_only=True)
class DeclareQueue:
    vhost: str
    name: str
    durable: bool = False
    auto_delete: bool = False
    owner: ClientId | None = field(default=None, metadata=OF_THE_MOMENT)
    """The connection that an exclusive queue lives with."""
    arguments: Table = field(default_factory=dict)
    by_broker: bool = field(default=False, metadata=OF_THE_MOMENT)
    """Whether a broker chose the name, which may then begin with `amq.`."""


@dataclass(frozen=True, kw_only=True)
class DeleteQueue:
    vhost: str
    name: str
    if_unused: bool = field(default=False, metadata=OF_THE_MOMENT)
    if_empty: bool = field(default=False, metadata=OF_THE_MOMENT)


@dataclass(frozen=True, kw_only=True)
class BindingCommand:
    """Which binding it is about."""

    vhost: str
    source: str
    destination: str
    to_queue: bool
    routing_key: str = ""
    arguments: Table = field(default_factory=dict)


class Bind(BindingCommand):
    """Make it, if it is not there."""


class Unbind(BindingCommand):
    """Remove it, if it is there."""


Command: TypeAlias = (
    AddVhost | DeleteVhost | SetVhostLimits | SetTracing | PutPolicy | DeletePolicy | PutUser | DeleteUser
    | SetUserLimits | SetPermissions | ClearPermissions | SetTopicPermissions | ClearTopicPermissions
    | DeclareExchange | DeleteExchange | DeclareQueue | DeleteQueue | Bind | Unbind
)  # fmt: skip

NOT_KEPT: frozenset[type[Command]] = frozenset({SetTracing})  # what they change ends with the process
