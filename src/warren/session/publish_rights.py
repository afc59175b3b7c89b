"""What a user may publish: to which exchanges, with which routing keys, and with which `user_id`."""

from __future__ import annotations

from warren.amqp.errors import AccessRefused, NotFound, PreconditionFailed
from warren.broker.access import IMPERSONATOR, Access, Permission
from warren.broker.exchange.exchange import Exchange
from warren.broker.vhost import Vhost


def check_publish(access: Access, vhost: Vhost, exchange_name: bytes, routing_key: bytes) -> Exchange:
    """The exchange of this name, if it exists and this user may publish to it with this key."""
    name = exchange_name[1:].decode("utf-8", "surrogateescape")
    access.check(Permission.WRITE, "exchange", name)
    exchange = vhost.exchanges_by_wire_name.get(exchange_name)
    if exchange is None:
        raise NotFound(f"no exchange '{name}' in vhost '{vhost.name}'")
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{vhost.name}'")
    check_key(access, vhost, exchange, routing_key[1:].decode("utf-8", "surrogateescape"))
    return exchange


def check_key(access: Access, vhost: Vhost, exchange: Exchange, key: str) -> None:
    """Raise 403 if a message may not be published with this key: its routing key, or one of its CC or BCC."""
    if not exchange.name and key in vhost.internal_queues:
        raise AccessRefused("a queue that belongs to an exchange gets its messages from that alone")
    access.check_topic(Permission.WRITE, exchange, key)


def check_user_id(access: Access, user_id: bytes) -> None:
    claimed, user = user_id.decode("utf-8", "replace"), access.user
    if claimed != user.name and IMPERSONATOR not in user.tags:
        raise PreconditionFailed(
            f"user_id property set to '{claimed}' but authenticated user was '{user.name}'"
        )
