"""Binding and unbinding of queues and exchanges, as clients ask for it."""

from __future__ import annotations

from dataclasses import dataclass

from warren.amqp.methods import Method
from warren.amqp.table import Table
from warren.broker import commands
from warren.broker.access import Permission
from warren.broker.declarations import check_not_default
from warren.session.channel import Channel, answering


@dataclass(frozen=True)
class BindingNames:
    """All that identifies a binding, except its arguments."""

    source: str
    destination: str
    routing_key: str
    to_queue: bool


def check_may_bind_to(channel: Channel, exchange: str, routing_key: str) -> None:
    """Raise 403 if the client may not read from this exchange, or not with this key, or if the exchange is
    the default one.
    """
    access = channel.connection.access
    check_not_default(exchange)
    access.check(Permission.READ, "exchange", exchange)
    source = channel.vhost.exchanges.get(exchange)
    if source is not None:
        access.check_topic(Permission.READ, source, routing_key)


def change_binding(
    channel: Channel,
    change: type[commands.Bind | commands.Unbind],
    names: BindingNames,
    arguments: Table,
    answer: Method,
    *,
    no_wait: bool,
) -> None:
    command = change(
        vhost=channel.vhost.name,
        source=names.source,
        destination=names.destination,
        to_queue=names.to_queue,
        routing_key=names.routing_key,
        arguments=arguments,
    )
    channel.change(command, answering(channel, answer, no_wait=no_wait))
