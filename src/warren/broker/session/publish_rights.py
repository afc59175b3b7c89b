"""What a connection may publish: where to, under which key, and in whose name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.amqp.errors import AccessRefused, NotFound, PreconditionFailed
from warren.broker.access import IMPERSONATOR, Permission
from warren.broker.exchange.exchange import Exchange

if TYPE_CHECKING:
    from warren.broker.queue import Queue
    from warren.broker.session.connection import Connection


def check_publish(connection: Connection, exchange_name: bytes, routing_key: bytes) -> Exchange:
    """The exchange to publish to, if it exists and this user may."""
    name = exchange_name[1:].decode("utf-8", "surrogateescape")
    connection.access.check(Permission.WRITE, "exchange", name)
    exchange = connection.vhost.exchanges_by_wire_name.get(exchange_name)
    if exchange is None:
        raise NotFound(f"no exchange '{name}' in vhost '{connection.vhost_name}'")
    if exchange.internal:
        vhost = connection.vhost_name
        raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{vhost}'")
    check_key(connection, exchange, routing_key[1:].decode("utf-8", "surrogateescape"))
    return exchange


def check_key(connection: Connection, exchange: Exchange, key: str) -> None:
    """Whether a message may go this way: by its routing key, or by one in its header CC or BCC."""
    if not exchange.name:
        queue: Queue | None = connection.vhost.queues.get(key)
        if queue is not None and queue.internal:
            raise AccessRefused("a queue that belongs to an exchange gets its messages from that alone")
    connection.access.check_topic(Permission.WRITE, exchange, key)


def check_user_id(connection: Connection, user_id: bytes) -> None:
    claimed = user_id.decode("utf-8", "replace")
    if claimed != connection.user_name and IMPERSONATOR not in connection.access.user.tags:
        raise PreconditionFailed(
            f"user_id property set to '{claimed}' but authenticated user was '{connection.user_name}'"
        )
