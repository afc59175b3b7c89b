"""The methods of class exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from warren.broker.rules import ALTERNATE_EXCHANGE
from warren.session.bindings import BindingNames, change_binding, check_may_bind_to
from warren.session.channel import Channel, answering
from warren.session.names import without_line_ends


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
    vhost, access = channel.vhost, channel.connection.access
    access.check(Permission.CONFIGURE, "exchange", name)
    alternate = method.arguments.get(ALTERNATE_EXCHANGE)
    if isinstance(alternate, str) and name not in vhost.exchanges:
        # An alternate exchange moves messages, so the user must be allowed to read here and write there.
        access.check(Permission.READ, "exchange", name)
        access.check(Permission.WRITE, "exchange", alternate)
    command = commands.DeclareExchange(
        vhost=vhost.name,
        name=name,
        type=method.type,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
    )
    channel.change(command, answering(channel, ExchangeDeclareOk(), no_wait=method.no_wait))


def delete(channel: Channel, method: ExchangeDelete) -> None:
    name = without_line_ends(method.exchange)
    check_not_default(name)
    channel.connection.access.check(Permission.CONFIGURE, "exchange", name)
    command = commands.DeleteExchange(vhost=channel.vhost.name, name=name, if_unused=method.if_unused)
    channel.change(command, answering(channel, ExchangeDeleteOk(), no_wait=method.no_wait))


def checked_binding(channel: Channel, method: ExchangeBind | ExchangeUnbind) -> BindingNames:
    """The binding that the client names, if it may bind the two exchanges."""
    source, destination = without_line_ends(method.source), without_line_ends(method.destination)
    channel.connection.access.check(Permission.WRITE, "exchange", destination)
    check_not_default(destination)
    check_may_bind_to(channel, source, method.routing_key)
    return BindingNames(source, destination, method.routing_key, to_queue=False)


def bind(channel: Channel, method: ExchangeBind) -> None:
    names = checked_binding(channel, method)
    change_binding(channel, commands.Bind, names, method.arguments, ExchangeBindOk(), no_wait=method.no_wait)


def unbind(channel: Channel, method: ExchangeUnbind) -> None:
    names = checked_binding(channel, method)
    change_binding(
        channel, commands.Unbind, names, method.arguments, ExchangeUnbindOk(), no_wait=method.no_wait
    )


HANDLERS: dict[type[Method], Callable[[Channel, Any], None]] = {
    ExchangeDeclare: declare,
    ExchangeDelete: delete,
    ExchangeBind: bind,
    ExchangeUnbind: unbind,
}
