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
)

ALTERNATE = "alternate-exchange"
COMPARED_ARGUMENTS = (ALTERNATE, "x-delayed-type")


def declare(channel: Channel, method: ExchangeDeclare) -> None:
    check_not_default(method.exchange)
    if method.passive:
        channel.vhost.find_exchange(method.exchange)
    else:
        declare_exchange(channel, method)
    if not method.no_wait:
        channel.answer(ExchangeDeclareOk())


def declare_exchange(channel: Channel, method: ExchangeDeclare) -> None:
    name, vhost = method.exchange, channel.vhost
    channel.connection.access.check(Permission.CONFIGURE, "exchange", name)
    if method.type not in channel.connection.node.exchange_types:
        raise CommandInvalid(f"unknown exchange type '{method.type}'")
    existing = vhost.exchanges.get(name)
    if existing is not None:
        check_same_exchange(f"exchange '{name}' in vhost '{vhost.name}'", existing, method)
        return
    check_new_name("exchange", name)
    check_alternate(channel, method)
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


def check_alternate(channel: Channel, method: ExchangeDeclare) -> None:
    """Who names an alternate exchange must be allowed to let messages go there."""
    if ALTERNATE not in method.arguments:
        return
    name = method.arguments[ALTERNATE]
    if not isinstance(name, str):
        raise PreconditionFailed(
            f"invalid arg '{ALTERNATE}' for exchange '{method.exchange}': expected a string"
        )
    access = channel.connection.access
    access.check(Permission.READ, "exchange", method.exchange)
    access.check(Permission.WRITE, "exchange", name)


def delete(channel: Channel, method: ExchangeDelete) -> None:
    name, vhost = method.exchange, channel.vhost
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


def check_binding(channel: Channel, method: ExchangeBind | ExchangeUnbind) -> None:
    check_not_default(method.destination)
    check_not_default(method.source)
    access = channel.connection.access
    access.check(Permission.WRITE, "exchange", method.destination)
    access.check(Permission.READ, "exchange", method.source)
    source = channel.vhost.exchanges.get(method.source)
    if source is not None:
        access.check_topic(Permission.READ, source, method.routing_key)


def change_binding(
    channel: Channel, change: type[commands.Bind | commands.Unbind], method: ExchangeBind | ExchangeUnbind
) -> None:
    channel.connection.node.execute(
        change(
            vhost=channel.vhost.name,
            source=method.source,
            destination=method.destination,
            to_queue=False,
            routing_key=method.routing_key,
            arguments=method.arguments,
        )
    )


def bind(channel: Channel, method: ExchangeBind) -> None:
    check_binding(channel, method)
    change_binding(channel, commands.Bind, method)
    if not method.no_wait:
        channel.answer(ExchangeBindOk())


def unbind(channel: Channel, method: ExchangeUnbind) -> None:
    check_binding(channel, method)
    if {method.source, method.destination} <= channel.vhost.exchanges.keys():
        change_binding(channel, commands.Unbind, method)
    if not method.no_wait:
        channel.answer(ExchangeUnbindOk())


HANDLERS: dict[type[Method], Callable[[Channel, Any], None]] = {
    ExchangeDeclare: declare,
    ExchangeDelete: delete,
    ExchangeBind: bind,
    ExchangeUnbind: unbind,
}
