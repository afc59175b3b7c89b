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
from warren.broker.changes import Applied
from warren.broker.declarations import ALTERNATE, check_exchange_type, check_not_default
from warren.session.channel import Channel
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
    alternate = method.arguments.get(ALTERNATE)
    if isinstance(alternate, str) and name not in vhost.exchanges:
        access.check(Permission.READ, "exchange", name)  # who lets messages go on there must be allowed to
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
    channel.change(command, answering(channel, method, ExchangeDeclareOk()))


def answering(
    channel: Channel, method: ExchangeDeclare | ExchangeDelete | ExchangeBind | ExchangeUnbind, answer: Method
) -> Callable[[Applied], None]:
    """Answers when the change is made, unless the client does not want to hear of it."""

    def reply(_applied: Applied) -> None:
        if not method.no_wait:
            channel.answer(answer)

    return reply


def delete(channel: Channel, method: ExchangeDelete) -> None:
    name = without_line_ends(method.exchange)
    check_not_default(name)
    channel.connection.access.check(Permission.CONFIGURE, "exchange", name)
    command = commands.DeleteExchange(vhost=channel.vhost.name, name=name, if_unused=method.if_unused)
    channel.change(command, answering(channel, method, ExchangeDeleteOk()))


def wanted_binding(channel: Channel, method: ExchangeBind | ExchangeUnbind) -> tuple[str, str]:
    """The names of source and destination, if the client may bind them."""
    source_name, destination = without_line_ends(method.source), without_line_ends(method.destination)
    access = channel.connection.access
    access.check(Permission.WRITE, "exchange", destination)
    check_not_default(destination)
    check_not_default(source_name)
    access.check(Permission.READ, "exchange", source_name)
    source = channel.vhost.exchanges.get(source_name)
    if source is not None:
        access.check_topic(Permission.READ, source, method.routing_key)
    return source_name, destination


def change_binding(
    channel: Channel,
    change: type[commands.Bind | commands.Unbind],
    method: ExchangeBind | ExchangeUnbind,
    answer: Method,
) -> None:
    source, destination = wanted_binding(channel, method)
    command = change(
        vhost=channel.vhost.name,
        source=source,
        destination=destination,
        to_queue=False,
        routing_key=method.routing_key,
        arguments=method.arguments,
    )
    channel.change(command, answering(channel, method, answer))


def bind(channel: Channel, method: ExchangeBind) -> None:
    change_binding(channel, commands.Bind, method, ExchangeBindOk())


def unbind(channel: Channel, method: ExchangeUnbind) -> None:
    change_binding(channel, commands.Unbind, method, ExchangeUnbindOk())


HANDLERS: dict[type[Method], Callable[[Channel, Any], None]] = {
    ExchangeDeclare: declare,
    ExchangeDelete: delete,
    ExchangeBind: bind,
    ExchangeUnbind: unbind,
}
