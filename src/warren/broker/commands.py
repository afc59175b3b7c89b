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
from warren.broker.events import UserChanged
from warren.broker.passwords import PasswordHash

if TYPE_CHECKING:
    from warren.broker.node import Node
    from warren.broker.session.connection import Connection
    from warren.broker.vhost import Vhost


@dataclass(frozen=True, kw_only=True)
class AddVhost:
    name: str


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
class SetTopicPermissions:
    user: str
    vhost: str
    exchange: str
    permissions: TopicPermissions


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
    AddVhost | PutUser | DeleteUser | SetPermissions | SetTopicPermissions | DeclareExchange
    | DeleteExchange | DeclareQueue | DeleteQueue | Bind | Unbind
)  # fmt: skip


def apply(node: Node, command: Command) -> bool:
    """Carry it out; whether there was anything to do."""
    return _APPLY[type(command)](node, command)


def _add_vhost(node: Node, command: AddVhost) -> bool:
    if command.name in node.vhosts:
        return False
    node.add_vhost(command.name)
    return True


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


def _set_topic_permissions(node: Node, command: SetTopicPermissions) -> bool:
    node.users[command.user].topic_permissions[command.vhost, command.exchange] = command.permissions
    node.permissions_changed(command.user, command.vhost)
    return True


def _declare_exchange(node: Node, command: DeclareExchange) -> bool:
    vhost = node.vhosts[command.vhost]
    if command.name in vhost.exchanges:
        return False
    vhost.add_exchange(node.make_exchange(command))
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
    PutUser: _put_user,
    DeleteUser: _delete_user,
    SetPermissions: _set_permissions,
    SetTopicPermissions: _set_topic_permissions,
    DeclareExchange: _declare_exchange,
    DeleteExchange: _delete_exchange,
    DeclareQueue: _declare_queue,
    DeleteQueue: _delete_queue,
    Bind: _bind,
    Unbind: _unbind,
}
