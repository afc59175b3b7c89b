"""Applies commands to a node: the only place that checks them and carries them out.

    check       raises if the command cannot be carried out: names, arguments, equality on redeclaring, limits
    carry_out   makes the change, and returns the result (`Applied`)

Both depend only on the node's state and the command. So AMQP, HTTP, configuration and the recovery of
recorded commands share them. Recovery carries out recorded commands without `check`: they were checked when
they were new, perhaps by an older version that allowed more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from warren.amqp.errors import AmqpError, NotFound, PreconditionFailed
from warren.broker import commands
from warren.broker.access import User
from warren.broker.binding import Binding
from warren.broker.commands import Command
from warren.broker.declarations import (
    check_exchange,
    check_exchange_goes,
    check_queue,
    check_queue_goes,
    with_default_type,
)
from warren.broker.events import (
    GlobalParameterCleared,
    GlobalParameterSet,
    ParameterCleared,
    ParameterSet,
    PolicyChanged,
    PolicyDeleted,
    QueuePaused,
    TracingChanged,
    UserChanged,
    UserLimitsChanged,
    VhostCreated,
    VhostDeleted,
    VhostLimitsChanged,
    VhostMetadataChanged,
)
from warren.broker.exchange.exchange import Exchange
from warren.broker.firehose import Firehose
from warren.broker.limits import UserLimits, VhostLimits, read_limits
from warren.broker.making import Workshop, check_store, make_exchange, make_queue, make_vhost
from warren.broker.parameters import CLUSTER_NAME, Parameters, is_same
from warren.broker.policy import Policy
from warren.broker.tally import VhostTally
from warren.broker.timers import Timers
from warren.broker.turns import Turns
from warren.broker.vhost import Vhost


class Applied(NamedTuple):
    """The result of a command."""

    changed: bool
    """Whether the command changed anything, and so has to be recorded."""
    made: Any = None
    """For a declaration, the queue or exchange; for a deleted queue, how many messages it had."""
    follow_up: tuple[Command, ...] = ()
    """Commands to carry out next, because of this one. Each is recorded by itself."""
    error: AmqpError | None = None
    """Why the command could not be carried out."""


UNCHANGED, CHANGED = Applied(changed=False), Applied(changed=True)


class Changeable(Workshop, Protocol):
    """What commands need of the node that they change."""

    cluster_name: str
    name: str
    users: dict[str, User]
    parameters: Parameters
    turns: Turns

    @property
    def world(self) -> Timers: ...
    @property
    def gone(self) -> VhostTally: ...
    def change(self, command: Command, then: Callable[[Applied], None] | None = None) -> None: ...
    def permissions_changed(self, user: str, vhost: str) -> None: ...
    def rates_changed(self, user: User) -> None: ...
    def close_connections_of(self, user: str, reason: str) -> None: ...
    def close_connections_to(self, vhost: str, reason: str, then: Callable[[], None]) -> None: ...


def completed(node: Changeable, command: Command) -> Command:
    """The command as it will be checked and recorded: a queue gets the default type of its vhost."""
    if type(command) is commands.DeclareQueue and command.vhost in node.vhosts:
        return with_default_type(node.vhosts[command.vhost], command)
    return command


def check(node: Changeable, command: Command) -> None:
    """Raise if the command cannot be carried out, with the reply code that a client would get."""
    checking = _CHECKS.get(type(command))
    if checking is not None:
        checking(node, command)


def carry_out(node: Changeable, command: Command) -> Applied:
    return _CARRY_OUT[type(command)](node, command)


def foresee(node: Changeable, command: Command) -> tuple[Command, ...]:
    """For a change that is first agreed on with other nodes, and was checked: raise what carrying it out
    would raise, and return the follow-ups that belong to the same change. Those of a deleted vhost do not:
    its permissions end with it by themselves.
    """
    foreseeing = _FORESEEN.get(type(command))
    return () if foreseeing is None else foreseeing(node, command)


def find_vhost(node: Changeable, name: str) -> Vhost:
    vhost = node.vhosts.get(name)
    if vhost is None:
        raise NotFound(f"no vhost '{name}'")
    return vhost


def find_user(node: Changeable, name: str) -> User:
    user = node.users.get(name)
    if user is None:
        raise NotFound(f"no user '{name}'")
    return user


# --- vhosts ---


def _add_vhost(node: Changeable, command: commands.AddVhost) -> Applied:
    if command.name in node.vhosts:
        return UNCHANGED
    node.vhosts[command.name] = make_vhost(node, command.name, node.change)
    node.events.emit(VhostCreated(command.name))
    return CHANGED


def _delete_vhost(node: Changeable, command: commands.DeleteVhost) -> Applied:
    """Delete a vhost with all that is in it, close its connections, and have its permissions revoked."""
    vhost = node.vhosts.get(command.name)
    if vhost is None:
        return UNCHANGED
    vhost.ended = True
    if vhost.firehose is not None:
        _switch_firehose(node, vhost, on=False)
    del node.vhosts[vhost.name]
    node.parameters.forget_vhost(vhost.name)
    node.gone.add(vhost.tally)
    node.close_connections_to(vhost.name, f"vhost '{vhost.name}' is deleted", vhost.end)
    node.events.emit(VhostDeleted(vhost.name))
    return Applied(changed=True, follow_up=_revocations(node, vhost.name))


def _revocations(node: Changeable, vhost: str) -> tuple[Command, ...]:
    """The commands that revoke all permissions in a vhost, of all users."""
    found: list[Command] = []
    for user in node.users.values():
        if vhost in user.permissions:
            found.append(commands.ClearPermissions(user=user.name, vhost=vhost))
        for named, exchange in user.topic_permissions:
            if named == vhost:
                found.append(commands.ClearTopicPermissions(user=user.name, vhost=vhost, exchange=exchange))
    return tuple(found)


def _check_vhost_metadata(node: Changeable, command: commands.SetVhostMetadata) -> None:
    find_vhost(node, command.vhost)
    command.metadata.check()


def _set_vhost_metadata(node: Changeable, command: commands.SetVhostMetadata) -> Applied:
    vhost = find_vhost(node, command.vhost)
    if vhost.metadata == command.metadata:
        return UNCHANGED
    vhost.metadata = command.metadata
    node.events.emit(VhostMetadataChanged(vhost.name))
    return CHANGED


def _set_tracing(node: Changeable, command: commands.SetTracing) -> Applied:
    vhost = find_vhost(node, command.vhost)
    if command.on is not (vhost.firehose is None):
        return UNCHANGED
    _switch_firehose(node, vhost, on=command.on)
    return CHANGED


def _switch_firehose(node: Changeable, vhost: Vhost, *, on: bool) -> None:
    firehose = Firehose(vhost.name, vhost.trace_route, node.clock, node.name, node.turns.budget)
    vhost.firehose = firehose if on else None
    node.events.firehose_switched(on=on)
    node.events.emit(TracingChanged(vhost.name, on))


def _set_vhost_limits(node: Changeable, command: commands.SetVhostLimits) -> Applied:
    vhost, limits = find_vhost(node, command.vhost), read_limits(VhostLimits, command)
    if limits == vhost.limits:
        return UNCHANGED
    vhost.limits = limits
    node.events.emit(VhostLimitsChanged(vhost.name))
    return CHANGED


# --- parameters ---


def _check_parameter(node: Changeable, command: commands.SetParameter) -> None:
    find_vhost(node, command.vhost)
    node.parameters.check(command.component, command.vhost, command.name, command.value)


def _set_parameter(node: Changeable, command: commands.SetParameter) -> Applied:
    find_vhost(node, command.vhost)
    if not node.parameters.put(command.component, command.vhost, command.name, command.value):
        return UNCHANGED
    node.events.emit(ParameterSet(command.vhost, command.component, command.name))
    return CHANGED


def _clear_parameter(node: Changeable, command: commands.ClearParameter) -> Applied:
    if not node.parameters.remove(command.component, command.vhost, command.name):
        return UNCHANGED
    node.events.emit(ParameterCleared(command.vhost, command.component, command.name))
    return CHANGED


def _check_global_parameter(_node: Changeable, command: commands.SetGlobalParameter) -> None:
    if command.name == CLUSTER_NAME and not (isinstance(command.value, str) and command.value):
        raise PreconditionFailed(f"{CLUSTER_NAME}: expected a name")


def _set_global_parameter(node: Changeable, command: commands.SetGlobalParameter) -> Applied:
    known = node.parameters.of_node
    if command.name in known and is_same(known[command.name], command.value):
        return UNCHANGED
    known[command.name] = command.value
    if command.name == CLUSTER_NAME:
        node.cluster_name = str(command.value)
    node.events.emit(GlobalParameterSet(command.name))
    return CHANGED


def _check_global_parameter_goes(_node: Changeable, command: commands.ClearGlobalParameter) -> None:
    if command.name == CLUSTER_NAME:
        raise PreconditionFailed(f"{CLUSTER_NAME}: a cluster always has a name")


def _clear_global_parameter(node: Changeable, command: commands.ClearGlobalParameter) -> Applied:
    if command.name not in node.parameters.of_node:
        return UNCHANGED
    del node.parameters.of_node[command.name]
    node.events.emit(GlobalParameterCleared(command.name))
    return CHANGED


# --- users ---


def _put_user(node: Changeable, command: commands.PutUser) -> Applied:
    user = node.users.get(command.name)
    if user is None:
        node.users[command.name] = User(command.name, command.password, command.tags)
    else:
        user.password, user.tags = command.password, command.tags
        for vhost in user.permissions:
            node.permissions_changed(user.name, vhost)
    node.events.emit(UserChanged(command.name))
    return CHANGED


def _delete_user(node: Changeable, command: commands.DeleteUser) -> Applied:
    if node.users.pop(command.name, None) is None:
        return UNCHANGED
    node.events.emit(UserChanged(command.name))
    node.close_connections_of(command.name, f"user '{command.name}' was deleted")
    return CHANGED


def _set_permissions(node: Changeable, command: commands.SetPermissions) -> Applied:
    find_user(node, command.user).permissions[command.vhost] = command.permissions
    node.permissions_changed(command.user, command.vhost)
    return CHANGED


def _clear_permissions(node: Changeable, command: commands.ClearPermissions) -> Applied:
    if find_user(node, command.user).permissions.pop(command.vhost, None) is None:
        return UNCHANGED
    node.permissions_changed(command.user, command.vhost)
    return CHANGED


def _set_topic_permissions(node: Changeable, command: commands.SetTopicPermissions) -> Applied:
    granted = find_user(node, command.user).topic_permissions
    granted[command.vhost, command.exchange] = command.permissions
    node.permissions_changed(command.user, command.vhost)
    return CHANGED


def _clear_topic_permissions(node: Changeable, command: commands.ClearTopicPermissions) -> Applied:
    granted = find_user(node, command.user).topic_permissions
    if granted.pop((command.vhost, command.exchange), None) is None:
        return UNCHANGED
    node.permissions_changed(command.user, command.vhost)
    return CHANGED


def _set_user_limits(node: Changeable, command: commands.SetUserLimits) -> Applied:
    user, limits = find_user(node, command.user), read_limits(UserLimits, command)
    if limits == user.limits:
        return UNCHANGED
    user.set_limits(limits, node.world.now())
    node.rates_changed(user)
    node.events.emit(UserLimitsChanged(user.name))
    return CHANGED


# --- policies ---


def policy_of(command: commands.PutPolicy) -> Policy:
    """The policy that a command describes; raises 406 if it is invalid."""
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


def _put_policy(node: Changeable, command: commands.PutPolicy) -> Applied:
    vhost, policy = find_vhost(node, command.vhost), policy_of(command)
    if not vhost.put_policy(policy):
        return UNCHANGED
    node.events.emit(PolicyChanged(vhost.name, policy.name, policy.operator))
    return CHANGED


def _delete_policy(node: Changeable, command: commands.DeletePolicy) -> Applied:
    vhost = find_vhost(node, command.vhost)
    policy = vhost.policies.find(command.name, operator=command.operator)
    if policy is None:
        return UNCHANGED
    vhost.remove_policy(policy)
    node.events.emit(PolicyDeleted(vhost.name, policy.name, policy.operator))
    return CHANGED


# --- exchanges ---


def _check_exchange(node: Changeable, command: commands.DeclareExchange) -> None:
    check_exchange(find_vhost(node, command.vhost), node.exchange_types, command)


def _declare_exchange(node: Changeable, command: commands.DeclareExchange) -> Applied:
    """Declare an exchange, and have its internal queues declared next, each by a command of its own, since a
    durable one gets a number and a log like any queue.
    """
    vhost = find_vhost(node, command.vhost)
    existing = vhost.exchanges.get(command.name)
    if existing is not None:
        return Applied(changed=False, made=existing)
    exchange = make_exchange(node, command)
    vhost.add_exchange(exchange)
    return Applied(changed=True, made=exchange, follow_up=_internal_queues(vhost, exchange))


def _internal_queues(vhost: Vhost, exchange: Exchange) -> tuple[Command, ...]:
    """The commands that declare the queues of an exchange."""
    return tuple(
        commands.DeclareQueue(vhost=vhost.name, name=name, durable=exchange.durable)
        for name in exchange.internal_queues()
    )


def _check_exchange_goes(node: Changeable, command: commands.DeleteExchange) -> None:
    check_exchange_goes(find_vhost(node, command.vhost), command)


def _delete_exchange(node: Changeable, command: commands.DeleteExchange) -> Applied:
    vhost = find_vhost(node, command.vhost)
    exchange = vhost.exchanges.get(command.name)
    if exchange is None:
        return UNCHANGED
    vhost.remove_exchange(exchange)
    return Applied(changed=True, follow_up=_internal_queues_go(vhost, exchange))


def _internal_queues_go(vhost: Vhost, exchange: Exchange) -> tuple[Command, ...]:
    """The commands that delete the queues of an exchange."""
    queues = (name for name in exchange.internal_queues() if name in vhost.internal_queues)
    return tuple(commands.DeleteQueue(vhost=vhost.name, name=name) for name in queues)


# --- queues ---


def _check_queue(node: Changeable, command: commands.DeclareQueue) -> None:
    check_queue(find_vhost(node, command.vhost), command)


def _declare_queue(node: Changeable, command: commands.DeclareQueue) -> Applied:
    vhost = find_vhost(node, command.vhost)
    existing = vhost.queues.get(command.name) or vhost.internal_queues.get(command.name)
    if existing is not None:
        return Applied(changed=False, made=existing)
    queue = make_queue(node, command)
    vhost.add_queue(queue)
    return Applied(changed=True, made=queue)


def _check_queue_goes(node: Changeable, command: commands.DeleteQueue) -> None:
    queue = find_vhost(node, command.vhost).queues.get(command.name)
    if queue is not None:
        check_queue_goes(queue, command)


def _delete_queue(node: Changeable, command: commands.DeleteQueue) -> Applied:
    vhost = find_vhost(node, command.vhost)
    queue = vhost.queues.get(command.name) or vhost.internal_queues.get(command.name)
    if queue is None:
        return Applied(changed=False, made=0)
    return Applied(changed=True, made=vhost.remove_queue(queue))


def _check_paused(node: Changeable, command: commands.PauseQueue | commands.ResumeQueue) -> None:
    find_vhost(node, command.vhost).find_queue(command.name)


def _pause_queue(node: Changeable, command: commands.PauseQueue) -> Applied:
    return _set_paused(node, command, paused=True)


def _resume_queue(node: Changeable, command: commands.ResumeQueue) -> Applied:
    return _set_paused(node, command, paused=False)


def _set_paused(
    node: Changeable, command: commands.PauseQueue | commands.ResumeQueue, *, paused: bool
) -> Applied:
    queue = find_vhost(node, command.vhost).queues.get(command.name)
    if queue is None or queue.paused is paused:
        return UNCHANGED
    queue.pause(paused=paused)
    node.events.emit(QueuePaused(queue.vhost, queue.name, paused))
    return CHANGED


# --- bindings ---


def _bind(node: Changeable, command: commands.Bind) -> Applied:
    vhost = find_vhost(node, command.vhost)
    source = vhost.find_exchange(command.source)
    find = vhost.find_queue if command.to_queue else vhost.find_exchange
    binding = Binding(source, find(command.destination), command.routing_key, command.arguments)
    return CHANGED if vhost.bind(binding) else UNCHANGED


def _unbind(node: Changeable, command: commands.Unbind) -> Applied:
    vhost = find_vhost(node, command.vhost)
    source = vhost.exchanges.get(command.source)
    places = vhost.queues if command.to_queue else vhost.exchanges
    destination = places.get(command.destination)
    if source is None or destination is None:
        return UNCHANGED
    binding = Binding(source, destination, command.routing_key, command.arguments)
    return CHANGED if vhost.unbind(binding) else UNCHANGED


# --- changes that are agreed on first ---


def _in_vhost(node: Changeable, command: Any) -> tuple[Command, ...]:
    find_vhost(node, command.vhost)
    return ()


def _of_user(node: Changeable, command: Any) -> tuple[Command, ...]:
    find_user(node, command.user)
    return ()


def _foresee_vhost_limits(node: Changeable, command: commands.SetVhostLimits) -> tuple[Command, ...]:
    read_limits(VhostLimits, command)
    return _in_vhost(node, command)


def _foresee_user_limits(node: Changeable, command: commands.SetUserLimits) -> tuple[Command, ...]:
    read_limits(UserLimits, command)
    return _of_user(node, command)


def _foresee_policy(node: Changeable, command: commands.PutPolicy) -> tuple[Command, ...]:
    policy_of(command)
    return _in_vhost(node, command)


def _foresee_exchange(node: Changeable, command: commands.DeclareExchange) -> tuple[Command, ...]:
    vhost = find_vhost(node, command.vhost)
    if command.name in vhost.exchanges:
        return ()
    return _internal_queues(vhost, make_exchange(node, command))


def _foresee_exchange_goes(node: Changeable, command: commands.DeleteExchange) -> tuple[Command, ...]:
    vhost = find_vhost(node, command.vhost)
    exchange = vhost.exchanges.get(command.name)
    return () if exchange is None else _internal_queues_go(vhost, exchange)


def _foresee_queue(node: Changeable, command: commands.DeclareQueue) -> tuple[Command, ...]:
    check_store(node, command)
    return ()


def _foresee_binding(node: Changeable, command: commands.Bind) -> tuple[Command, ...]:
    vhost = find_vhost(node, command.vhost)
    vhost.find_exchange(command.source)
    (vhost.find_queue if command.to_queue else vhost.find_exchange)(command.destination)
    return ()


_FORESEEN: dict[type[Command], Callable[[Changeable, Any], tuple[Command, ...]]] = {
    commands.SetVhostLimits: _foresee_vhost_limits,
    commands.PutPolicy: _foresee_policy,
    commands.DeletePolicy: _in_vhost,
    commands.SetUserLimits: _foresee_user_limits,
    commands.SetPermissions: _of_user,
    commands.ClearPermissions: _of_user,
    commands.SetTopicPermissions: _of_user,
    commands.ClearTopicPermissions: _of_user,
    commands.DeclareExchange: _foresee_exchange,
    commands.DeleteExchange: _foresee_exchange_goes,
    commands.DeclareQueue: _foresee_queue,
    commands.DeleteQueue: _in_vhost,
    commands.Bind: _foresee_binding,
    commands.Unbind: _in_vhost,
}

_CHECKS: dict[type[Command], Callable[[Changeable, Any], None]] = {
    commands.SetVhostMetadata: _check_vhost_metadata,
    commands.SetParameter: _check_parameter,
    commands.SetGlobalParameter: _check_global_parameter,
    commands.ClearGlobalParameter: _check_global_parameter_goes,
    commands.DeclareExchange: _check_exchange,
    commands.DeleteExchange: _check_exchange_goes,
    commands.DeclareQueue: _check_queue,
    commands.DeleteQueue: _check_queue_goes,
    commands.PauseQueue: _check_paused,
    commands.ResumeQueue: _check_paused,
}

_CARRY_OUT: dict[type[Command], Callable[[Changeable, Any], Applied]] = {
    commands.AddVhost: _add_vhost,
    commands.DeleteVhost: _delete_vhost,
    commands.SetVhostMetadata: _set_vhost_metadata,
    commands.SetTracing: _set_tracing,
    commands.SetVhostLimits: _set_vhost_limits,
    commands.SetParameter: _set_parameter,
    commands.ClearParameter: _clear_parameter,
    commands.SetGlobalParameter: _set_global_parameter,
    commands.ClearGlobalParameter: _clear_global_parameter,
    commands.PutPolicy: _put_policy,
    commands.DeletePolicy: _delete_policy,
    commands.PutUser: _put_user,
    commands.DeleteUser: _delete_user,
    commands.SetUserLimits: _set_user_limits,
    commands.SetPermissions: _set_permissions,
    commands.ClearPermissions: _clear_permissions,
    commands.SetTopicPermissions: _set_topic_permissions,
    commands.ClearTopicPermissions: _clear_topic_permissions,
    commands.DeclareExchange: _declare_exchange,
    commands.DeleteExchange: _delete_exchange,
    commands.DeclareQueue: _declare_queue,
    commands.DeleteQueue: _delete_queue,
    commands.PauseQueue: _pause_queue,
    commands.ResumeQueue: _resume_queue,
    commands.Bind: _bind,
    commands.Unbind: _unbind,
}
