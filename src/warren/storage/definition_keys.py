"""What a command is about, as a key, and what that hangs on.

    vhost
      limits, metadata, parameter, policy, exchange, queue
        pause             of a queue
        binding           hangs on both its ends
    user
      limits, permissions, topic permissions

    global parameter

What hangs on something goes with it. A key says by itself what it hangs on, so that nothing else has to be
remembered to find that out. The exchanges that every vhost has are always there and have no keys.

Keys are tuples, since every command looks for some, and `kind` is what keeps a queue's from being equal to
that of an exchange with its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, Union

from warren.amqp.table import encode_table
from warren.broker import commands
from warren.broker.commands import BindingCommand, Command
from warren.broker.vhost import PREDECLARED


class VhostKey(NamedTuple):
    name: str
    kind: str = "vhost"

    @property
    def needs(self) -> tuple[Key, ...]:
        return ()


class VhostLimitsKey(NamedTuple):
    vhost: str
    kind: str = "vhost limits"

    @property
    def needs(self) -> tuple[Key, ...]:
        return (VhostKey(self.vhost),)


class VhostMetadataKey(NamedTuple):
    vhost: str
    kind: str = "vhost metadata"

    @property
    def needs(self) -> tuple[Key, ...]:
        return (VhostKey(self.vhost),)


class ParameterKey(NamedTuple):
    vhost: str
    component: str
    name: str
    kind: str = "parameter"

    @property
    def needs(self) -> tuple[Key, ...]:
        return (VhostKey(self.vhost),)


class GlobalParameterKey(NamedTuple):
    name: str
    kind: str = "global parameter"

    @property
    def needs(self) -> tuple[Key, ...]:
        return ()


class PolicyKey(NamedTuple):
    vhost: str
    name: str
    operator: bool
    kind: str = "policy"

    @property
    def needs(self) -> tuple[Key, ...]:
        return (VhostKey(self.vhost),)


class UserKey(NamedTuple):
    name: str
    kind: str = "user"

    @property
    def needs(self) -> tuple[Key, ...]:
        return ()

    def __str__(self) -> str:
        return f"user '{self.name}'"


class UserLimitsKey(NamedTuple):
    user: str
    kind: str = "user limits"

    @property
    def needs(self) -> tuple[Key, ...]:
        return (UserKey(self.user),)


class PermissionsKey(NamedTuple):
    """It does not hang on its vhost: permissions may be set before there is one."""

    user: str
    vhost: str
    kind: str = "permissions"

    @property
    def needs(self) -> tuple[Key, ...]:
        return (UserKey(self.user),)


class TopicPermissionsKey(NamedTuple):
    user: str
    vhost: str
    exchange: str
    kind: str = "topic permissions"

    @property
    def needs(self) -> tuple[Key, ...]:
        return (UserKey(self.user),)


class ExchangeKey(NamedTuple):
    vhost: str
    name: str
    kind: str = "exchange"

    @property
    def needs(self) -> tuple[Key, ...]:
        return (VhostKey(self.vhost),)

    def __str__(self) -> str:
        return f"exchange '{self.name}' in vhost '{self.vhost}'"


class QueueKey(NamedTuple):
    vhost: str
    name: str
    kind: str = "queue"

    @property
    def needs(self) -> tuple[Key, ...]:
        return (VhostKey(self.vhost),)

    def __str__(self) -> str:
        return f"queue '{self.name}' in vhost '{self.vhost}'"


class PauseKey(NamedTuple):
    vhost: str
    queue: str
    kind: str = "pause"

    @property
    def needs(self) -> tuple[Key, ...]:
        return (QueueKey(self.vhost, self.queue),)


class BindingKey(NamedTuple):
    """As for the model, arguments are the same if their bytes on the wire are."""

    vhost: str
    source: str
    to_queue: bool
    destination: str
    routing_key: str
    arguments: bytes
    kind: str = "binding"

    @property
    def needs(self) -> tuple[Key, ...]:
        """Its vhost only if it hangs on nothing that hangs on it: there may be very many bindings."""
        source = _exchange(self.vhost, self.source)
        if self.to_queue:
            return (*source, QueueKey(self.vhost, self.destination))
        return (*source, *_exchange(self.vhost, self.destination)) or (VhostKey(self.vhost),)


Key: TypeAlias = Union[  # noqa: UP007 - quoted above, so that one name serves both
    VhostKey,
    VhostLimitsKey,
    VhostMetadataKey,
    ParameterKey,
    GlobalParameterKey,
    PolicyKey,
    UserKey,
    UserLimitsKey,
    PermissionsKey,
    TopicPermissionsKey,
    ExchangeKey,
    QueueKey,
    PauseKey,
    BindingKey,
]
Needs: TypeAlias = tuple[Key, ...]
REPLAY_ORDER: tuple[type[Key], ...] = (  # policies come before what they are for
    VhostKey, VhostLimitsKey, VhostMetadataKey, ParameterKey, GlobalParameterKey, PolicyKey, UserKey,
    UserLimitsKey, PermissionsKey, TopicPermissionsKey, ExchangeKey, QueueKey, PauseKey, BindingKey,
)  # fmt: skip
REMOVING = frozenset({
    commands.DeleteVhost, commands.ClearParameter, commands.ClearGlobalParameter, commands.DeletePolicy,
    commands.DeleteUser, commands.ClearPermissions, commands.ClearTopicPermissions,
    commands.DeleteExchange, commands.DeleteQueue, commands.ResumeQueue, commands.Unbind,
})  # fmt: skip
REPLACING = frozenset({
    commands.SetVhostLimits, commands.SetVhostMetadata, commands.SetParameter, commands.SetGlobalParameter,
    commands.PutPolicy, commands.PutUser, commands.SetUserLimits, commands.SetPermissions,
    commands.SetTopicPermissions,
})  # fmt: skip


def key_of(command: Command) -> Key:
    return _KEYS[type(command)](command)


def survives(command: Command) -> bool:
    """Whether what it makes is there after a restart, if what it hangs on is."""
    if isinstance(command, commands.DeclareQueue):
        return command.durable and command.owner is None
    if isinstance(command, commands.DeclareExchange):
        return command.durable and not _is_predeclared(command.name)
    return True


def _is_predeclared(exchange: str) -> bool:
    return not exchange or exchange in PREDECLARED


def _exchange(vhost: str, name: str) -> tuple[Key, ...]:
    return () if _is_predeclared(name) else (ExchangeKey(vhost, name),)


def _binding_key(command: BindingCommand) -> BindingKey:
    return BindingKey(
        command.vhost,
        command.source,
        command.to_queue,
        command.destination,
        command.routing_key,
        encode_table(command.arguments),
    )


_KEYS: dict[type[Command], Callable[[Any], Key]] = {
    commands.AddVhost: lambda c: VhostKey(c.name),
    commands.DeleteVhost: lambda c: VhostKey(c.name),
    commands.SetVhostLimits: lambda c: VhostLimitsKey(c.vhost),
    commands.SetVhostMetadata: lambda c: VhostMetadataKey(c.vhost),
    commands.SetParameter: lambda c: ParameterKey(c.vhost, c.component, c.name),
    commands.ClearParameter: lambda c: ParameterKey(c.vhost, c.component, c.name),
    commands.SetGlobalParameter: lambda c: GlobalParameterKey(c.name),
    commands.ClearGlobalParameter: lambda c: GlobalParameterKey(c.name),
    commands.PutPolicy: lambda c: PolicyKey(c.vhost, c.name, c.operator),
    commands.DeletePolicy: lambda c: PolicyKey(c.vhost, c.name, c.operator),
    commands.PutUser: lambda c: UserKey(c.name),
    commands.DeleteUser: lambda c: UserKey(c.name),
    commands.SetUserLimits: lambda c: UserLimitsKey(c.user),
    commands.SetPermissions: lambda c: PermissionsKey(c.user, c.vhost),
    commands.ClearPermissions: lambda c: PermissionsKey(c.user, c.vhost),
    commands.SetTopicPermissions: lambda c: TopicPermissionsKey(c.user, c.vhost, c.exchange),
    commands.ClearTopicPermissions: lambda c: TopicPermissionsKey(c.user, c.vhost, c.exchange),
    commands.DeclareExchange: lambda c: ExchangeKey(c.vhost, c.name),
    commands.DeleteExchange: lambda c: ExchangeKey(c.vhost, c.name),
    commands.DeclareQueue: lambda c: QueueKey(c.vhost, c.name),
    commands.DeleteQueue: lambda c: QueueKey(c.vhost, c.name),
    commands.PauseQueue: lambda c: PauseKey(c.vhost, c.name),
    commands.ResumeQueue: lambda c: PauseKey(c.vhost, c.name),
    commands.Bind: _binding_key,
    commands.Unbind: _binding_key,
}
