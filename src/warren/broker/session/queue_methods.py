"""The methods of class queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from warren.broker.events import QueuePurged
from warren.broker.queue import Queue
from warren.broker.rules import COMPARED_ARGUMENTS, QUORUM, STREAM, check_arguments, queue_type
from warren.broker.session.channel import Channel
from warren.broker.session.names import (
    check_equal,
    check_equal_argument,
    check_new_name,
    check_not_default,
    clients_queue,
    locked,
    queue_name,
    random_name,
    usable_queue,
)
from warren.broker.session.reply_to import PSEUDO_QUEUE

COUNT_TOLD_MAX = 2**32 - 1


def declare(channel: Channel, method: QueueDeclare) -> None:
    name = method.queue
    if name.startswith(PSEUDO_QUEUE):
        queue_declared(channel, method, reply_queue(channel, name))
        return
    if method.passive:
        queue = usable_queue(channel, name)
    else:
        queue = declare_queue(channel, method, name or random_name(channel.connection.node.world, "amq.gen-"))
    channel.last_queue = queue.name
    queue.used()
    queue_declared(channel, method, queue)


def reply_queue(channel: Channel, name: str) -> Queue:
    """A responder asks by a passive declare whether the requester still listens."""
    if name == PSEUDO_QUEUE and channel.reply_consumer is not None:
        queue: Queue = channel.reply_consumer.queue
        return queue
    found: Queue | None = channel.vhost.reply_queues.get(name)
    if found is None:
        raise NotFound(f"no queue '{name}' in vhost '{channel.vhost.name}'")
    return found


def declare_queue(channel: Channel, method: QueueDeclare, name: str) -> Queue:
    channel.connection.access.check(Permission.CONFIGURE, "queue", name)
    existing = channel.vhost.queues.get(name)
    if existing is not None:
        check_same_queue(channel, existing, method)
        return clients_queue(channel, name)
    if method.queue:
        check_new_name("queue", name)
    what = f"queue '{name}' in vhost '{channel.vhost.name}'"
    check_arguments(what, method.arguments)
    if queue_type(method.arguments) in {QUORUM, STREAM}:
        check_is_to_stay(what, method)
    channel.vhost.check_queue_limit(name)
    check_dead_letters(channel, method, name)
    connection = channel.connection
    connection.node.execute(
        commands.DeclareQueue(
            vhost=channel.vhost.name,
            name=name,
            durable=method.durable,
            auto_delete=method.auto_delete,
            owner=connection if method.exclusive else None,
            arguments=method.arguments,
        )
    )
    queue: Queue = channel.vhost.queues[name]
    if method.exclusive:
        connection.exclusive_queues[name] = queue
    return queue


def check_is_to_stay(what: str, method: QueueDeclare) -> None:
    """As a quorum queue and a stream must be."""
    if not method.durable:
        raise PreconditionFailed(f"invalid property 'non-durable' for {what}")
    if method.exclusive:
        raise PreconditionFailed(f"invalid property 'exclusive-owner' for {what}")
    if method.auto_delete and queue_type(method.arguments) == STREAM:
        raise PreconditionFailed(f"invalid property 'auto-delete' for {what}")


def check_dead_letters(channel: Channel, method: QueueDeclare, name: str) -> None:
    """Who has messages go on to an exchange must be allowed to send them there."""
    exchange = method.arguments.get("x-dead-letter-exchange")
    if isinstance(exchange, str):
        access = channel.connection.access
        access.check(Permission.READ, "queue", name)
        access.check(Permission.WRITE, "exchange", exchange)


def check_same_queue(channel: Channel, queue: Queue, method: QueueDeclare) -> None:
    owner = channel.connection if method.exclusive else None
    if queue.owner is not owner:
        raise locked(queue)
    what = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    check_equal(what, "durable", method.durable, queue.durable)
    check_equal(what, "auto_delete", method.auto_delete, queue.auto_delete)
    check_equal(what, "x-queue-type", queue_type(method.arguments), queue_type(queue.arguments))
    for argument in COMPARED_ARGUMENTS:
        check_equal_argument(what, argument, method.arguments, queue.arguments)


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
    """How many are ready, as far as a method can say it: a stream may have more."""
    return min(queue.message_count, COUNT_TOLD_MAX)


def binding_key(channel: Channel, method: QueueBind | QueueUnbind) -> str:
    """With neither queue nor key, the key is the name of the queue as well."""
    if not method.queue and not method.routing_key:
        return queue_name(channel, "")
    return method.routing_key


def check_binding(channel: Channel, method: QueueBind | QueueUnbind, queue: str) -> None:
    check_not_default(method.exchange)
    access = channel.connection.access
    access.check(Permission.WRITE, "queue", queue)
    access.check(Permission.READ, "exchange", method.exchange)
    exchange = channel.vhost.exchanges.get(method.exchange)
    if exchange is not None and exchange.type == "topic":
        access.check_topic(Permission.READ, method.exchange, method.routing_key)


def change_binding(
    channel: Channel, change: type[commands.Bind | commands.Unbind], method: QueueBind | QueueUnbind
) -> None:
    channel.connection.node.execute(
        change(
            vhost=channel.vhost.name,
            source=method.exchange,
            destination=queue_name(channel, method.queue),
            to_queue=True,
            routing_key=binding_key(channel, method),
            arguments=method.arguments,
        )
    )


def bind(channel: Channel, method: QueueBind) -> None:
    name = queue_name(channel, method.queue)
    check_binding(channel, method, name)
    clients_queue(channel, name)
    change_binding(channel, commands.Bind, method)
    if not method.no_wait:
        channel.answer(QueueBindOk())


def unbind(channel: Channel, method: QueueUnbind) -> None:
    name = queue_name(channel, method.queue)
    check_binding(channel, method, name)
    if name in channel.vhost.queues:
        clients_queue(channel, name)
        if method.exchange in channel.vhost.exchanges:
            change_binding(channel, commands.Unbind, method)
    channel.answer(QueueUnbindOk())


def purge(channel: Channel, method: QueuePurge) -> None:
    name = queue_name(channel, method.queue)
    channel.connection.access.check(Permission.READ, "queue", name)
    queue = usable_queue(channel, name)
    count = queue.purge()
    channel.connection.node.events.emit(QueuePurged(queue.vhost, queue.name, count))
    if not method.no_wait:
        channel.reply(QueuePurgeOk(message_count=count))


def delete(channel: Channel, method: QueueDelete) -> None:
    name = queue_name(channel, method.queue)
    channel.connection.access.check(Permission.CONFIGURE, "queue", name)
    count = 0
    notices: list[Method] = []
    if name in channel.vhost.queues:
        queue = clients_queue(channel, name)
        count = told_count(queue)
        if method.if_unused and queue.is_consumed:
            raise PreconditionFailed(f"queue '{name}' in vhost '{queue.vhost}' in use")
        if method.if_empty and count:
            raise PreconditionFailed(f"queue '{name}' in vhost '{queue.vhost}' not empty")
        notices = channel.forget_consumers_of(queue)
        channel.connection.node.execute(commands.DeleteQueue(vhost=queue.vhost, name=name))
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
