"""Everything that changes the topology, as small immutable commands.

A session checks that a client may do what it asks and then executes a command; configuration and the
embedding program execute the same ones. `apply` is the one place that carries them out, and what it does
depends on nothing but the node's state and the command.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from warren.amqp.table import Table
from warren.broker.access import Permissions, TopicPermissions, User
from warren.broker.binding import Binding
from warren.broker.events import (
    PolicyChanged,
    PolicyDeleted,
    TracingChanged,
    UserChanged,
    UserLimitsChanged,
    VhostLimitsChanged,
)
from warren.broker.firehose import Firehose
from warren.broker.limits import UserLimits, VhostLimits, read_limits
from warren.broker.passwords import PasswordHash
from warren.broker.policy import Policy

if TYPE_CHECKING:
    from warren.broker.node import Node
    from warren.broker.session.connection import Connection
    from warren.broker.vhost import Vhost


COMMAND_WORK = 200  # units of `Budget`: what it takes to carry one out, and to write it down


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


@dataclass(frozen=True, kw_only=True)
class DeclareQueue:
    """`owner` is the connection that an exclusive queue lives with."""

    vhost: str
    name: str
    durable: bool = False
    auto_delete: bool = False
    owner: Connection | None = None
    arguments: Table = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeleteQueue:
    vhost: str
    name: str


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


def apply(node: Node, command: Command) -> bool:
    """Carry it out; whether anything has changed that has to be kept."""
    return _APPLY[type(command)](node, command)


def _add_vhost(node: Node, command: AddVhost) -> bool:
    if command.name in node.vhosts:
        return False
    node.add_vhost(command.name)
    return True


def _delete_vhost(node: Node, command: DeleteVhost) -> bool:
    vhost = node.vhosts.get(command.name)
    if vhost is None:
        return False
    node.remove_vhost(vhost)
    return True


def _set_tracing(node: Node, command: SetTracing) -> bool:
    vhost = node.vhosts[command.vhost]
    if command.on is (vhost.firehose is None):
        vhost.firehose = Firehose(vhost, node.clock, node.cluster_name) if command.on else None
        node.events.firehose_switched(on=command.on)
        node.events.emit(TracingChanged(vhost.name, command.on))
    return False


def _put_user(node: Node, command: PutUser) -> bool:
    user = node.users.get(command.name)
    if user is None:
        node.users[command.name] = User(command.name, command.password, command.tags)
    else:
        user.password, user.tags = command.password, command.tags
        for vhost in user.permissions:
            node.permissions_changed(user.name, vhost)
    node.events.emit(UserChanged(command.name))
    return True


def _delete_user(node: Node, command: DeleteUser) -> bool:
    if node.users.pop(command.name, None) is None:
        return False
    node.events.emit(UserChanged(command.name))
    node.close_connections_of(command.name, f"user '{command.name}' was deleted")
    return True


def _set_permissions(node: Node, command: SetPermissions) -> bool:
    node.users[command.user].permissions[command.vhost] = command.permissions
    node.permissions_changed(command.user, command.vhost)
    return True


def _clear_permissions(node: Node, command: ClearPermissions) -> bool:
    if node.users[command.user].permissions.pop(command.vhost, None) is None:
        return False
    node.permissions_changed(command.user, command.vhost)
    return True


def _set_topic_permissions(node: Node, command: SetTopicPermissions) -> bool:
    node.users[command.user].topic_permissions[command.vhost, command.exchange] = command.permissions
    node.permissions_changed(command.user, command.vhost)
    return True


def _clear_topic_permissions(node: Node, command: ClearTopicPermissions) -> bool:
    granted = node.users[command.user].topic_permissions
    if granted.pop((command.vhost, command.exchange), None) is None:
        return False
    node.permissions_changed(command.user, command.vhost)
    return True


def _set_vhost_limits(node: Node, command: SetVhostLimits) -> bool:
    vhost, limits = node.vhosts[command.vhost], read_limits(VhostLimits, command)
    if limits == vhost.limits:
        return False
    vhost.limits = limits
    node.events.emit(VhostLimitsChanged(vhost.name))
    return True


def _set_user_limits(node: Node, command: SetUserLimits) -> bool:
    user, limits = node.users[command.user], read_limits(UserLimits, command)
    if limits == user.limits:
        return False
    user.set_limits(limits, node.world.now())
    node.rates_changed(user)
    node.events.emit(UserLimitsChanged(user.name))
    return True


def policy_of(command: PutPolicy) -> Policy:
    """406 if it makes no sense."""
    policy = Policy(
        name=command.name,
        pattern=command.pattern,
        definition=command.definition,
        priority=command.priority,
        apply_to=command.apply_to,
        operator=command.operator,
    )
    policy.check()
    return policy


def _put_policy(node: Node, command: PutPolicy) -> bool:
    vhost, policy = node.vhosts[command.vhost], policy_of(command)
    if not vhost.put_policy(policy):
        return False
    node.events.emit(PolicyChanged(vhost.name, policy.name, policy.operator))
    return True


def _delete_policy(node: Node, command: DeletePolicy) -> bool:
    vhost = node.vhosts[command.vhost]
    policy = vhost.policies.find(command.name, operator=command.operator)
    if policy is None:
        return False
    vhost.remove_policy(policy)
    node.events.emit(PolicyDeleted(vhost.name, policy.name, policy.operator))
    return True


def _declare_exchange(node: Node, command: DeclareExchange) -> bool:
    vhost = node.vhosts[command.vhost]
    if command.name in vhost.exchanges:
        return False
    node.add_exchange(command)
    return True


def _delete_exchange(node: Node, command: DeleteExchange) -> bool:
    vhost = node.vhosts[command.vhost]
    exchange = vhost.exchanges.get(command.name)
    if exchange is None:
        return False
    vhost.remove_exchange(exchange)
    return True


def _declare_queue(node: Node, command: DeclareQueue) -> bool:
    vhost = node.vhosts[command.vhost]
    if command.name in vhost.queues:
        return False
    vhost.add_queue(node.make_queue(command))
    return True


def _delete_queue(node: Node, command: DeleteQueue) -> bool:
    vhost = node.vhosts[command.vhost]
    queue = vhost.queues.get(command.name)
    if queue is None:
        return False
    vhost.remove_queue(queue)
    return True


def _binding(vhost: Vhost, command: BindingCommand) -> Binding:
    source = vhost.find_exchange(command.source)
    find = vhost.find_queue if command.to_queue else vhost.find_exchange
    return Binding(source, find(command.destination), command.routing_key, command.arguments)


def _bind(node: Node, command: Bind) -> bool:
    vhost = node.vhosts[command.vhost]
    vhost.bind(_binding(vhost, command))
    return True


def _unbind(node: Node, command: Unbind) -> bool:
    vhost = node.vhosts[command.vhost]
    vhost.unbind(_binding(vhost, command))
    return True


_APPLY: dict[type[Command], Callable[[Node, Any], bool]] = {
    AddVhost: _add_vhost,
    DeleteVhost: _delete_vhost,
    SetTracing: _set_tracing,
    SetVhostLimits: _set_vhost_limits,
    PutPolicy: _put_policy,
    DeletePolicy: _delete_policy,
    PutUser: _put_user,
    DeleteUser: _delete_user,
    SetUserLimits: _set_user_limits,
    SetPermissions: _set_permissions,
    ClearPermissions: _clear_permissions,
    SetTopicPermissions: _set_topic_permissions,
    ClearTopicPermissions: _clear_topic_permissions,
    DeclareExchange: _declare_exchange,
    DeleteExchange: _delete_exchange,
    DeclareQueue: _declare_queue,
    DeleteQueue: _delete_queue,
    Bind: _bind,
    Unbind: _unbind,
}
