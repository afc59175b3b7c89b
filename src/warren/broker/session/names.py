"""Rules about names, shared by queues and exchanges."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from warren.amqp.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from warren.amqp.table import Table, Value, type_name

if TYPE_CHECKING:
    from warren.broker.node import World
    from warren.broker.queue import Queue
    from warren.broker.session.channel import Channel
    from warren.broker.session.connection import Connection

RANDOM_BYTES = 16
RESERVED = "amq."


def random_name(world: World, prefix: str) -> str:
    return prefix + base64.urlsafe_b64encode(world.random_bytes(RANDOM_BYTES)).rstrip(b"=").decode()


def check_new_name(kind: str, name: str) -> None:
    if name.startswith(RESERVED):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
    if not name.isprintable():
        raise PreconditionFailed(f"{kind} name {name!r} has characters that cannot be printed")


def named_exchange(arguments: Table, argument: str, what: str) -> str | None:
    """The exchange that an argument names, if it is there."""
    if argument not in arguments:
        return None
    name = arguments[argument]
    if not isinstance(name, str):
        raise PreconditionFailed(f"invalid type '{type_name(name)}' for arg '{argument}' in {what}")
    return name


def without_line_ends(name: str) -> str:
    """As RabbitMQ takes names in declarations, bindings and deletions."""
    return name.replace("\r", "").replace("\n", "")


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
    queue: Queue = channel.vhost.find_queue(name)
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
    """Whole numbers are equal whatever their width; but 1, 1.0 and true are three values."""
    ours, theirs = current.get(argument), received.get(argument)
    if (argument in current) == (argument in received):
        if ours == theirs and _number_class(ours) is _number_class(theirs):
            return
        told = f"received '{_plain(theirs)}' but current is '{_plain(ours)}'"
    else:
        told = f"received {_described(theirs)} but current is {_described(ours)}"
    raise PreconditionFailed(f"inequivalent arg '{argument}' for {what}: {told}")


def _number_class(value: Value) -> type | None:
    return next((kind for kind in (bool, int, float) if isinstance(value, kind)), None)


def _plain(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _described(value: Value) -> str:
    if value is None:
        return "none"
    return f"the value '{_plain(value)}' of type '{type_name(value)}'"
