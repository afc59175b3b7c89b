"""The methods of class exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from warren.amqp.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    Method,
)
from warren.broker import commands
from warren.broker.access import Permission
from warren.broker.declarations import check_exchange_type, check_not_default
from warren.broker.topology_rights import check_may_bind, check_may_declare_exchange
from warren.session.channel import Channel, answering
from warren.session.names import without_line_ends

Change = TypeVar("Change", commands.Bind, commands.Unbind)


def declare(channel: Channel, method: ExchangeDeclare) -> None:
    name = without_line_ends(method.exchange)
    if not method.passive:
        check_exchange_type(channel.connection.node.exchange_types, method.type)
    check_not_default(name)
    if method.passive:
        channel.vhost.find_exchange(name)
        if not method.no_wait:
            channel.answer(ExchangeDeclareOk())
    else:
        declare_exchange(channel, method, name)


def declare_exchange(channel: Channel, method: ExchangeDeclare, name: str) -> None:
    command = commands.DeclareExchange(
        vhost=channel.vhost.name,
        name=name,
        type=method.type,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
    )
    check_may_declare_exchange(channel.connection.access, channel.vhost, command)
    channel.change(command, answering(channel, ExchangeDeclareOk(), no_wait=method.no_wait))


def delete(channel: Channel, method: ExchangeDelete) -> None:
    name = without_line_ends(method.exchange)
    check_not_default(name)
    channel.connection.access.check(Permission.CONFIGURE, "exchange", name)
    command = commands.DeleteExchange(vhost=channel.vhost.name, name=name, if_unused=method.if_unused)
    channel.change(command, answering(channel, ExchangeDeleteOk(), no_wait=method.no_wait))


def checked_binding(channel: Channel, method: ExchangeBind | ExchangeUnbind, change: type[Change]) -> Change:
    """The change of the binding that the client names, if it may bind the two exchanges."""
    command = change(
        vhost=channel.vhost.name,
        source=without_line_ends(method.source),
        destination=without_line_ends(method.destination),
        to_queue=False,
        routing_key=method.routing_key,
        arguments=method.arguments,
    )
    check_may_bind(channel.connection.access, channel.vhost, command)
    return command


def bind(channel: Channel, method: ExchangeBind) -> None:
    command = checked_binding(channel, method, commands.Bind)
    channel.change(command, answering(channel, ExchangeBindOk(), no_wait=method.no_wait))


def unbind(channel: Channel, method: ExchangeUnbind) -> None:
    command = checked_binding(channel, method, commands.Unbind)
    channel.change(command, answering(channel, ExchangeUnbindOk(), no_wait=method.no_wait))


HANDLERS: dict[type[Method], Callable[[Channel, Any], None]] = {
    ExchangeDeclare: declare,
    ExchangeDelete: delete,
    ExchangeBind: bind,
    ExchangeUnbind: unbind,
}
