"""The methods of class queue. `warren perf churn queues` and `warren perf churn bindings` watch them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from warren.amqp.errors import NotFound, PreconditionFailed
from warren.amqp.methods import (
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from warren.broker import commands
from warren.broker.access import Permission
from warren.broker.changes import Applied
from warren.broker.events import QueuePurged
from warren.broker.queue import Queue
from warren.broker.rules import CLASSIC, queue_type
from warren.broker.topology_rights import check_may_bind, check_may_declare_queue
from warren.session import chores
from warren.session.channel import Channel, answering
from warren.session.names import (
    bindable_queue,
    clients_queue,
    queue_name,
    random_name,
    usable_queue,
    without_line_ends,
)
from warren.session.reply_to import PSEUDO_QUEUE

Change = TypeVar("Change", commands.Bind, commands.Unbind)

COUNT_TOLD_MAX = 2**32 - 1  # the largest count that fits into the methods' field


def declare(channel: Channel, method: QueueDeclare) -> None:
    channel.vhost.tally.declared_queues += 1
    name = without_line_ends(method.queue)
    if name.startswith(PSEUDO_QUEUE):
        queue_declared(channel, method, reply_queue(channel, name))
    elif method.passive:
        queue_is_there(channel, method, usable_queue(channel, name))
    else:
        declare_queue(channel, method, name)


def new_name(channel: Channel, method: QueueDeclare) -> str:
    kind = queue_type(method.arguments)
    if kind != CLASSIC:
        raise PreconditionFailed(f"Cannot declare a server-named queue for type rabbit_{kind}_queue")
    return random_name(channel.connection.node.world, "amq.gen-")


def reply_queue(channel: Channel, name: str) -> Queue:
    """The reply queue of this name. A responder declares it to see whether the requester still listens."""
    if name == PSEUDO_QUEUE and channel.reply_consumer is not None:
        queue: Queue = channel.reply_consumer.queue
        return queue
    found: Queue | None = channel.vhost.reply_queues.get(name)
    if found is None:
        raise NotFound(f"no queue '{name}' in vhost '{channel.vhost.name}'")
    return found


def declare_queue(channel: Channel, method: QueueDeclare, name: str) -> None:
    is_named = bool(name)
    name = name or new_name(channel, method)
    command = commands.DeclareQueue(
        vhost=channel.vhost.name,
        name=name,
        durable=method.durable,
        auto_delete=method.auto_delete,
        owner=channel.connection.id if method.exclusive else None,
        arguments=method.arguments,
        by_broker=not is_named,
    )
    check_may_declare_queue(channel.connection.access, channel.vhost, command)
    channel.change(
        command, lambda applied: queue_is_there(channel, method, clients_queue(channel, applied.made.name))
    )


def queue_is_there(channel: Channel, method: QueueDeclare, queue: Queue) -> None:
    channel.last_queue = queue.name
    queue.used()
    queue_declared(channel, method, queue)


def queue_declared(channel: Channel, method: QueueDeclare, queue: Queue) -> None:
    if not method.no_wait:
        answer = channel.answer if queue.durable else channel.reply
        answer(
            QueueDeclareOk(
                queue=queue.name,
                message_count=told_count(queue),
                consumer_count=len(queue.consumers),
            )
        )


def told_count(queue: Queue) -> int:
    """How many messages are ready, or the largest number that fits: a stream may have more."""
    return min(queue.message_count, COUNT_TOLD_MAX)


def checked_binding(channel: Channel, method: QueueBind | QueueUnbind, change: type[Change]) -> Change:
    """The change of the binding that the client names, if it may bind the two. If the client names neither
    queue nor key, the last declared queue's name is both.
    """
    queue = queue_name(channel, method.queue)
    command = change(
        vhost=channel.vhost.name,
        source=without_line_ends(method.exchange),
        destination=without_line_ends(queue),
        to_queue=True,
        routing_key=queue if not method.queue and not method.routing_key else method.routing_key,
        arguments=method.arguments,
    )
    check_may_bind(channel.connection.access, channel.vhost, command)
    return command


def bind(channel: Channel, method: QueueBind) -> None:
    command = checked_binding(channel, method, commands.Bind)
    channel.vhost.find_exchange(command.source)
    bindable_queue(channel, command.destination)
    channel.change(command, answering(channel, QueueBindOk(), no_wait=method.no_wait))


def unbind(channel: Channel, method: QueueUnbind) -> None:
    command = checked_binding(channel, method, commands.Unbind)
    if command.destination in channel.vhost.queues or command.destination in channel.vhost.internal_queues:
        bindable_queue(channel, command.destination)
    channel.change(command, answering(channel, QueueUnbindOk(), no_wait=False))


def purge(channel: Channel, method: QueuePurge) -> None:
    name = queue_name(channel, method.queue)
    channel.connection.access.check(Permission.READ, "queue", name)
    queue = usable_queue(channel, name)
    count, steps = queue.purge()
    channel.connection.node.events.emit(QueuePurged(queue.vhost, queue.name, count))
    answer = QueuePurgeOk(message_count=count)
    chores.do(channel, steps, None if method.no_wait else lambda: channel.reply_if_open(answer))


def delete(channel: Channel, method: QueueDelete) -> None:
    name = without_line_ends(queue_name(channel, method.queue))
    channel.connection.access.check(Permission.CONFIGURE, "queue", name)
    vhost = channel.vhost
    if name in vhost.queues or name in vhost.internal_queues:
        clients_queue(channel, name)
    notices: list[Method] = []
    channel.withheld = notices

    def answer(applied: Applied) -> None:
        channel.withheld = None
        queue_deleted(channel, method, min(applied.made, COUNT_TOLD_MAX), notices)

    command = commands.DeleteQueue(
        vhost=vhost.name, name=name, if_unused=method.if_unused, if_empty=method.if_empty
    )
    channel.change(command, answer)


def queue_deleted(channel: Channel, method: QueueDelete, count: int, notices: list[Method]) -> None:
    """Send delete-ok and, behind it, the cancel notices of this channel's own consumers of the queue."""
    if method.no_wait:
        channel.reply(*notices)
    else:
        channel.answer(QueueDeleteOk(message_count=count), *notices)


HANDLERS: dict[type[Method], Callable[[Channel, Any], None]] = {
    QueueDeclare: declare,
    QueueBind: bind,
    QueueUnbind: unbind,
    QueuePurge: purge,
    QueueDelete: delete,
}
