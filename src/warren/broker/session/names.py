"""Rules about names, shared by queues and exchanges."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from warren.amqp.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from warren.amqp.table import Table, Value, encode_value

if TYPE_CHECKING:
    from warren.broker.node import World
    from warren.broker.queue import Queue
    from warren.broker.session.channel import Channel
    from warren.broker.session.connection import Connection

RANDOM_BYTES = 16
RESERVED = "amq."
TYPE_NAMES = {
    ord("I"): "signedint", ord("S"): "longstr", ord("t"): "bool", ord("l"): "long", ord("L"): "long",
    ord("b"): "byte", ord("B"): "unsignedbyte", ord("s"): "short", ord("u"): "unsignedshort",
    ord("i"): "unsignedint", ord("d"): "double", ord("f"): "float", ord("F"): "table", ord("A"): "array",
    ord("T"): "timestamp", ord("D"): "decimal", ord("x"): "binary", ord("V"): "void",
}  # fmt: skip


def random_name(world: World, prefix: str) -> str:
    return prefix + base64.urlsafe_b64encode(world.random_bytes(RANDOM_BYTES)).rstrip(b"=").decode()


def check_new_name(kind: str, name: str) -> None:
    if name.startswith(RESERVED):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
    if not name.isprintable():
        raise PreconditionFailed(f"{kind} name {name!r} has characters that cannot be printed")


def check_not_default(exchange: str) -> None:
    if not exchange:
        raise AccessRefused("operation not permitted on the default exchange")


def queue_name(channel: Channel, name: str) -> str:
    """An empty name is the queue that was declared last on this channel."""
    if not name and not channel.last_queue:
        raise NotFound("no previously declared queue")
    return name or channel.last_queue


def usable_queue(channel: Channel, name: str) -> Queue:
    """A queue that exists and is not another connection's own."""
    queue: Queue = channel.vhost.find_queue(queue_name(channel, name))
    check_owner(queue, channel.connection)
    return queue


def clients_queue(channel: Channel, name: str) -> Queue:
    """The same, and not one that belongs to an exchange."""
    queue: Queue = channel.vhost.find_queue(queue_name(channel, name))
    check_for_clients(queue, channel.connection)
    return queue


def check_for_clients(queue: Queue, connection: Connection | None) -> None:
    """Raise unless this connection, or for None somebody without one, may get at what is in the queue."""
    check_owner(queue, connection)
    if queue.internal:
        raise AccessRefused(
            f"queue '{queue.name}' in vhost '{queue.vhost}' belongs to an exchange; it can only be purged"
        )


def check_owner(queue: Queue, connection: Connection | None) -> None:
    if queue.owner is not None and queue.owner is not connection:
        raise locked(queue)


def locked(queue: Queue) -> ResourceLocked:
    return ResourceLocked(
        f"cannot obtain exclusive access to locked queue '{queue.name}' in vhost '{queue.vhost}'. "
        "It could be originally declared on another connection or the exclusive property value does not "
        "match that of the original declaration."
    )


def check_equal(what: str, argument: str, received: bool | str, current: bool | str) -> None:
    """A redeclaration must ask for what is there."""
    if received != current:
        raise PreconditionFailed(
            f"inequivalent arg '{argument}' for {what}: "
            f"received '{_plain(received)}' but current is '{_plain(current)}'"
        )


def check_equal_argument(what: str, argument: str, received: Table, current: Table) -> None:
    ours, theirs = current.get(argument), received.get(argument)
    if ours == theirs:
        return
    if _type(ours) == _type(theirs):
        check_equal(what, argument, str(theirs), str(ours))
    raise PreconditionFailed(
        f"inequivalent arg '{argument}' for {what}: "
        f"received {_described(theirs)} but current is {_described(ours)}"
    )


def _plain(value: bool | str) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _described(value: Value) -> str:
    if value is None:
        return "none"
    return f"the value '{value!s}' of type '{_type(value)}'"


def _type(value: Value) -> str:
    return TYPE_NAMES[encode_value(value)[0]]
