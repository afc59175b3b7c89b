"""The methods of class exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren.amqp.errors import AccessRefused, CommandInvalid, PreconditionFailed
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
from warren.broker.exchange.exchange import Exchange
from warren.broker.rules import check_exchange_arguments
from warren.broker.session.channel import Channel
from warren.broker.session.names import (
    RESERVED,
    check_equal,
    check_equal_argument,
    check_new_name,
    check_not_default,
    named_exchange,
    without_line_ends,
)

ALTERNATE = "alternate-exchange"
COMPARED_ARGUMENTS = (ALTERNATE, "x-delayed-type")


def declare(channel: Channel, method: ExchangeDeclare) -> None:
    name = without_line_ends(method.exchange)
    if not method.passive and method.type not in channel.connection.node.exchange_types:
        raise CommandInvalid(f"unknown exchange type '{method.type}'")
    check_not_default(name)
    if method.passive:
        channel.vhost.find_exchange(name)
    else:
        declare_exchange(channel, method, name)
    if not method.no_wait:
        channel.answer(ExchangeDeclareOk())


def declare_exchange(channel: Channel, method: ExchangeDeclare, name: str) -> None:
    vhost = channel.vhost
    channel.connection.access.check(Permission.CONFIGURE, "exchange", name)
    existing = vhost.exchanges.get(name)
    if existing is not None:
        check_same_exchange(f"exchange '{name}' in vhost '{vhost.name}'", existing, method)
        return
    check_new_name("exchange", name)
    check_alternate(channel, method, name)
    check_exchange_arguments(f"exchange '{name}' in vhost '{vhost.name}'", method.arguments)
    channel.connection.node.execute(
        commands.DeclareExchange(
            vhost=vhost.name,
            name=name,
            type=method.type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
        )
    )


def check_same_exchange(what: str, exchange: Exchange, method: ExchangeDeclare) -> None:
    check_equal(what, "type", method.type, exchange.type)
    check_equal(what, "durable", method.durable, exchange.durable)
    check_equal(what, "auto_delete", method.auto_delete, exchange.auto_delete)
    check_equal(what, "internal", method.internal, exchange.internal)
    for argument in COMPARED_ARGUMENTS:
        check_equal_argument(what, argument, method.arguments, exchange.arguments)


def check_alternate(channel: Channel, method: ExchangeDeclare, exchange: str) -> None:
    """Who names an alternate exchange must be allowed to let messages go there."""
    what = f"exchange '{exchange}' in vhost '{channel.vhost.name}'"
    name = named_exchange(method.arguments, ALTERNATE, what)
    if name is not None:
        access = channel.connection.access
        access.check(Permission.READ, "exchange", exchange)
        access.check(Permission.WRITE, "exchange", name)


def delete(channel: Channel, method: ExchangeDelete) -> None:
    name, vhost = without_line_ends(method.exchange), channel.vhost
    check_not_default(name)
    if name.startswith(RESERVED):
        raise AccessRefused(f"deletion of system exchange '{name}' in vhost '{vhost.name}' not allowed")
    channel.connection.access.check(Permission.CONFIGURE, "exchange", name)
    exchange = vhost.exchanges.get(name)
    if exchange is not None:
        if method.if_unused and exchange.bindings:
            raise PreconditionFailed(f"exchange '{name}' in vhost '{vhost.name}' in use")
        channel.connection.node.execute(commands.DeleteExchange(vhost=vhost.name, name=name))
    if not method.no_wait:
        channel.answer(ExchangeDeleteOk())


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
    source: str,
    destination: str,
) -> None:
    channel.connection.node.execute(
        change(
            vhost=channel.vhost.name,
            source=source,
            destination=destination,
            to_queue=False,
            routing_key=method.routing_key,
            arguments=method.arguments,
        )
    )


def bind(channel: Channel, method: ExchangeBind) -> None:
    change_binding(channel, commands.Bind, method, *wanted_binding(channel, method))
    if not method.no_wait:
        channel.answer(ExchangeBindOk())


def unbind(channel: Channel, method: ExchangeUnbind) -> None:
    source, destination = wanted_binding(channel, method)
    if {source, destination} <= channel.vhost.exchanges.keys():
        change_binding(channel, commands.Unbind, method, source, destination)
    if not method.no_wait:
        channel.answer(ExchangeUnbindOk())


HANDLERS: dict[type[Method], Callable[[Channel, Any], None]] = {
    ExchangeDeclare: declare,
    ExchangeDelete: delete,
    ExchangeBind: bind,
    ExchangeUnbind: unbind,
}
