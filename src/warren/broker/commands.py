"""Every change of the topology, as a small immutable command: plain data, no live objects.

A session checks the client's permissions, and then hands a command to the node. Configuration, the HTTP API
and embedding programs use the same commands. `changes.py` checks and carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from warren.amqp.table import Table
from warren.broker.access import Permissions, TopicPermissions
from warren.broker.client import ClientId
from warren.broker.parameters import Json
from warren.broker.passwords import PasswordHash
from warren.broker.vhost_metadata import VhostMetadata

COMMAND_WORK = 200  # units of `Budget` that it costs to carry out and record a command
OF_THE_MOMENT: Mapping[str, bool] = {"of the moment": True}
"""Metadata of a field that only matters while the command is carried out. Such a field is not recorded."""


@dataclass(frozen=True, kw_only=True)
class AddVhost:
    name: str


@dataclass(frozen=True, kw_only=True)
class DeleteVhost:
    """Delete a vhost with all that is in it, and close its connections."""

    name: str


@dataclass(frozen=True, kw_only=True)
class SetVhostMetadata:
    vhost: str
    metadata: VhostMetadata


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
    """None or -1 means no limit, 0 allows none. Connections and queues above a new limit stay."""

    vhost: str
    max_connections: int | None = None
    max_queues: int | None = None


@dataclass(frozen=True, kw_only=True)
class SetUserLimits:
    """None or -1 means no limit. Each limit is for all connections of the user together."""

    user: str
    max_connections: int | None = None
    max_channels: int | None = None
    max_publish_rate: int | None = None  # messages a second
    max_publish_bytes: int | None = None  # bytes a second
    max_consume_rate: int | None = None  # messages a second
    max_consume_bytes: int | None = None  # bytes a second


@dataclass(frozen=True, kw_only=True)
class PutPolicy:
    """Make a policy, or change it."""

    vhost: str
    name: str
    pattern: str
    """A regular expression that the names of queues or exchanges have to match."""
    definition: Table
    """The settings, as `policy_settings.py` knows them."""
    priority: int = 0
    """If several policies match, the one with the highest priority holds."""
    apply_to: str = "all"
    """Which kinds of queues or exchanges the policy is for."""
    operator: bool = False
    """Whether it is an operator policy. Those have names of their own, apart from other policies."""


@dataclass(frozen=True, kw_only=True)
class DeletePolicy:
    vhost: str
    name: str
    operator: bool = False


@dataclass(frozen=True, kw_only=True)
class SetParameter:
    """Make a parameter of a vhost, or change it."""

    vhost: str
    component: str
    """What the parameter is for, such as `shovel`."""
    name: str
    value: Json = field(repr=False)  # it may have secrets in it


@dataclass(frozen=True, kw_only=True)
class ClearParameter:
    vhost: str
    component: str
    name: str


@dataclass(frozen=True, kw_only=True)
class SetGlobalParameter:
    """Make a parameter of the whole broker, or change it. `cluster_name` renames the cluster."""

    name: str
    value: Json = field(repr=False)  # it may have secrets in it


@dataclass(frozen=True, kw_only=True)
class ClearGlobalParameter:
    name: str


@dataclass(frozen=True, kw_only=True)
class DeclareExchange:
    vhost: str
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    """Whether clients cannot publish to it: messages come from other exchanges only."""
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
    """For an exclusive queue, the connection that owns it; the queue goes with it."""
    arguments: Table = field(default_factory=dict)
    by_broker: bool = field(default=False, metadata=OF_THE_MOMENT)
    """Whether the broker chose the name, which may then begin with `amq.`."""
    home: str = field(default="", metadata=OF_THE_MOMENT)
    """For a queue that lives on another node of the cluster, the name of that node."""


@dataclass(frozen=True, kw_only=True)
class DeleteQueue:
    vhost: str
    name: str
    if_unused: bool = field(default=False, metadata=OF_THE_MOMENT)
    if_empty: bool = field(default=False, metadata=OF_THE_MOMENT)


@dataclass(frozen=True, kw_only=True)
class PauseQueue:
    """Have a queue take messages, and deliver none, until it is resumed."""

    vhost: str
    name: str


@dataclass(frozen=True, kw_only=True)
class ResumeQueue:
    """Have a paused queue deliver again."""

    vhost: str
    name: str


@dataclass(frozen=True, kw_only=True)
class BindingCommand:
    """Names a binding."""

    vhost: str
    source: str
    """The name of the exchange that messages come from."""
    destination: str
    """The name of the queue or exchange that messages go to."""
    to_queue: bool
    """Whether `destination` is a queue, and not an exchange."""
    routing_key: str = ""
    arguments: Table = field(default_factory=dict)


class Bind(BindingCommand):
    """Make the binding, if it is not there."""


class Unbind(BindingCommand):
    """Remove the binding, if it is there."""


Command: TypeAlias = (
    AddVhost | DeleteVhost | SetVhostMetadata | SetVhostLimits | SetTracing | SetParameter | ClearParameter
    | SetGlobalParameter | ClearGlobalParameter | PutPolicy | DeletePolicy | PutUser | DeleteUser
    | SetUserLimits | SetPermissions | ClearPermissions | SetTopicPermissions | ClearTopicPermissions
    | DeclareExchange | DeleteExchange | DeclareQueue | DeleteQueue | PauseQueue | ResumeQueue
    | Bind | Unbind
)  # fmt: skip

NOT_KEPT: frozenset[type[Command]] = frozenset({SetTracing})  # their changes end with the process
