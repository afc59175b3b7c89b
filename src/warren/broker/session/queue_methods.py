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
from warren.broker.rules import CLASSIC, TYPE, arguments_of, check_arguments, queue_type
from warren.broker.session.channel import Channel
from warren.broker.session.names import (
    check_equal,
    check_equal_argument,
    check_new_name,
    check_not_default,
    clients_queue,
    locked,
    named_exchange,
    queue_name,
    random_name,
    usable_queue,
    without_line_ends,
)
from warren.broker.session.reply_to import PSEUDO_QUEUE

COUNT_TOLD_MAX = 2**32 - 1


def declare(channel: Channel, method: QueueDeclare) -> None:
    name = without_line_ends(method.queue)
    if name.startswith(PSEUDO_QUEUE):
        queue_declared(channel, method, reply_queue(channel, name))
        return
    if method.passive:
        queue = usable_queue(channel, name)
    else:
        queue = declare_queue(channel, method, name or new_name(channel, method))
    channel.last_queue = queue.name
    queue.used()
    queue_declared(channel, method, queue)


def new_name(channel: Channel, method: QueueDeclare) -> str:
    kind = queue_type(method.arguments)
    if kind != CLASSIC:
        raise PreconditionFailed(f"Cannot declare a server-named queue for type rabbit_{kind}_queue")
    return random_name(channel.connection.node.world, "amq.gen-")


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
    if without_line_ends(method.queue):
        check_new_name("queue", name)
    what = f"queue '{name}' in vhost '{channel.vhost.name}'"
    channel.vhost.check_queue_limit(name)
    check_dead_letters(channel, method, name, what)
    check_arguments(what, method.arguments)
    if queue_type(method.arguments) != CLASSIC:
        check_is_to_stay(what, method)
    connection = channel.connection
    connection.node.execute(
        commands.DeclareQueue(
            vhost=channel.vhost.name,
            name=name,
            durable=is_durable(method),
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
    if method.auto_delete:
        raise PreconditionFailed(f"invalid property 'auto-delete' for {what}")
    if method.exclusive:
        raise PreconditionFailed(f"invalid property 'exclusive-owner' for {what}")
    if not method.durable:
        raise PreconditionFailed(f"invalid property 'non-durable' for {what}")


def is_durable(method: QueueDeclare) -> bool:
    """An exclusive queue goes with its connection, whatever its client says."""
    return method.durable and not method.exclusive


def check_dead_letters(channel: Channel, method: QueueDeclare, name: str, what: str) -> None:
    """Who has messages go on to an exchange must be allowed to send them there."""
    exchange = named_exchange(method.arguments, "x-dead-letter-exchange", what)
    if exchange is not None:
        access = channel.connection.access
        access.check(Permission.READ, "queue", name)
        access.check(Permission.WRITE, "exchange", exchange)


def check_same_queue(channel: Channel, queue: Queue, method: QueueDeclare) -> None:
    owner = channel.connection if method.exclusive else None
    if queue.owner is not owner:
        raise locked(queue)
    what = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    check_equal(what, "durable", is_durable(method), queue.durable)
    check_equal(what, "auto_delete", method.auto_delete, queue.auto_delete)
    kind = queue_type(queue.arguments)
    for argument in arguments_of(kind):
        if argument != TYPE.argument or queue_type(method.arguments) != kind:
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


def wanted_binding(channel: Channel, method: QueueBind | QueueUnbind) -> tuple[str, str]:
    """The names of the exchange and the queue, if the client may bind them."""
    name = without_line_ends(queue_name(channel, method.queue))
    exchange_name = without_line_ends(method.exchange)
    access = channel.connection.access
    access.check(Permission.WRITE, "queue", name)
    check_not_default(exchange_name)
    access.check(Permission.READ, "exchange", exchange_name)
    exchange = channel.vhost.exchanges.get(exchange_name)
    if exchange is not None:
        access.check_topic(Permission.READ, exchange, binding_key(channel, method))
    return exchange_name, name


def change_binding(
    channel: Channel,
    change: type[commands.Bind | commands.Unbind],
    method: QueueBind | QueueUnbind,
    exchange: str,
    queue: str,
) -> None:
    channel.connection.node.execute(
        change(
            vhost=channel.vhost.name,
            source=exchange,
            destination=queue,
            to_queue=True,
            routing_key=binding_key(channel, method),
            arguments=method.arguments,
        )
    )


def bind(channel: Channel, method: QueueBind) -> None:
    exchange, queue = wanted_binding(channel, method)
    channel.vhost.find_exchange(exchange)
    clients_queue(channel, queue)
    change_binding(channel, commands.Bind, method, exchange, queue)
    if not method.no_wait:
        channel.answer(QueueBindOk())


def unbind(channel: Channel, method: QueueUnbind) -> None:
    exchange, queue = wanted_binding(channel, method)
    if queue in channel.vhost.queues:
        clients_queue(channel, queue)
        if exchange in channel.vhost.exchanges:
            change_binding(channel, commands.Unbind, method, exchange, queue)
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
    name = without_line_ends(queue_name(channel, method.queue))
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
