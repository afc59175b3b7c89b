"""The methods of class basic. Publish and ack are on the path of every message: `Channel` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from warren.amqp.errors import AmqpError, NotAllowed, PreconditionFailed, ResourceLocked
from warren.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    Method,
)
from warren.broker.access import Permission
from warren.broker.consumer import ConsumeRequest
from warren.broker.entry import Entry
from warren.broker.events import ConsumerStarted
from warren.broker.queue import Queue
from warren.broker.turns import SHARE_MAX, TooMuchForATurn
from warren.session import chores
from warren.session.channel import Channel
from warren.session.consumer import ChannelConsumer
from warren.session.consumer_arguments import check_consumer_arguments, consumer_priority
from warren.session.deliveries import with_delivery_count
from warren.session.names import clients_queue, queue_name, random_name
from warren.session.reply_to import PSEUDO_QUEUE, open_reply_queue

GET_AGAIN_WORK = SHARE_MAX  # a whole share of the turn, so that others have theirs before the next try


def qos(channel: Channel, method: BasicQos) -> None:
    """With `global`, limit the whole channel, at once. Else limit each consumer that starts from now on."""
    if method.global_:
        touched = channel.connection.node.touched_queues
        channel.deliveries.limit(method.prefetch_count, method.prefetch_size, touched)
        channel.wake_consumers()
    else:
        channel.prefetch_count = method.prefetch_count
        channel.prefetch_size = method.prefetch_size
    channel.reply(BasicQosOk())


def consume(channel: Channel, method: BasicConsume) -> None:
    tag = method.consumer_tag or random_name(channel.connection.node.world, "amq.ctag-")
    if tag in channel.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    if method.queue == PSEUDO_QUEUE:
        method = replace(method, arguments={})  # RabbitMQ ignores them as well
    queue = find_queue(channel, method)
    check_consumer_arguments(queue, method.arguments)
    priority = consumer_priority(queue, method.arguments)
    consumer = make_consumer(channel, method, tag, priority, queue)
    consumer.queue.add_consumer(consumer)
    channel.consumers[tag] = consumer
    if method.queue == PSEUDO_QUEUE:
        channel.reply_consumer = consumer
    channel.connection.node.events.emit(ConsumerStarted(channel.vhost.name, consumer.queue.name, tag))
    if not method.no_wait:
        channel.reply(BasicConsumeOk(consumer_tag=tag))


def find_queue(channel: Channel, method: BasicConsume) -> Queue:
    if method.queue == PSEUDO_QUEUE:
        return new_reply_queue(channel, no_ack=method.no_ack)
    name = queue_name(channel, method.queue)
    channel.connection.access.check(Permission.READ, "queue", name)
    return clients_queue(channel, name)


def new_reply_queue(channel: Channel, *, no_ack: bool) -> Queue:
    if not no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if channel.reply_consumer is not None:
        raise PreconditionFailed("reply consumer already set")
    connection = channel.connection
    return open_reply_queue(connection.node, channel.vhost, connection.id)


def make_consumer(
    channel: Channel, method: BasicConsume, tag: str, priority: int, queue: Queue
) -> ChannelConsumer:
    request = ConsumeRequest(
        tag=tag,
        arguments=method.arguments,
        no_ack=method.no_ack,
        prefetch_count=channel.prefetch_count,
        chose_tag=bool(method.consumer_tag),
        has_channel_limit=channel.deliveries.rota is not None,
    )
    return ChannelConsumer(
        tag=tag,
        origin=channel.origin,
        queue=queue,
        channel=channel,
        deliveries=channel.deliveries,
        no_ack=method.no_ack,
        exclusive=method.exclusive,
        priority=priority,
        arguments=method.arguments,
        prefetch_count=channel.prefetch_count,
        prefetch_size=channel.prefetch_size,
        view=queue.view_for(request),
    )


def cancel(channel: Channel, method: BasicCancel) -> None:
    consumer = channel.consumers.get(method.consumer_tag)
    if consumer is not None:
        channel.cancel(consumer)
    if not method.no_wait:
        channel.reply(BasicCancelOk(consumer_tag=method.consumer_tag))


def get(channel: Channel, method: BasicGet) -> None:
    name = queue_name(channel, method.queue)
    channel.connection.access.check(Permission.READ, "queue", name)
    queue = clients_queue(channel, name)
    if queue.rules.single_active_consumer:
        raise ResourceLocked(
            f"cannot obtain access to queue '{name}' in vhost '{queue.vhost}': "
            "it has a single active consumer, and basic.get is not for that"
        )
    if not got(channel, queue, method.no_ack):
        chores.do(channel, getting(channel, name, method.no_ack))


def getting(channel: Channel, name: str, no_ack: bool) -> Iterator[int]:
    """Ask the queue in each turn until it can answer, or the client is gone. Meanwhile the queue may be
    deleted, or another node may begin to lead it.
    """
    while channel.may_answer:
        try:
            if got(channel, clients_queue(channel, name), no_ack):
                return
        except AmqpError as error:
            error.method_id = BasicGet.id
            channel.connection.on_error(channel.number, error)
        yield GET_AGAIN_WORK


def got(channel: Channel, queue: Queue, no_ack: bool) -> bool:
    """Answer basic.get; False if finding the first message is too much work for this turn."""
    try:
        entry = queue.get(no_ack)
    except TooMuchForATurn:
        return False
    if entry is None:
        channel.tally.got_empty += 1
        channel.reply(BasicGetEmpty())
    else:
        send_got(channel, queue, entry, no_ack)
    return True


def send_got(channel: Channel, queue: Queue, entry: Entry, no_ack: bool) -> None:
    deliveries, message = channel.deliveries, entry.message
    deliveries.track(entry, no_ack)
    if channel.events.delivered:
        queue.tell_delivered(entry, channel.origin, "", deliveries.delivery_tag)
    channel.reply(
        BasicGetOk(
            delivery_tag=deliveries.delivery_tag,
            redelivered=entry.delivery_count > 0,
            exchange=message.exchange_name,
            routing_key=message.key,
            message_count=queue.message_count,
        )
    )
    channel.output.content(channel.number, with_delivery_count(entry), message.body)


def ack(channel: Channel, method: BasicAck) -> None:
    channel.acked(method.delivery_tag, method.multiple)


def nack(channel: Channel, method: BasicNack) -> None:
    channel.reject(method.delivery_tag, multiple=method.multiple, requeue=method.requeue)


def reject(channel: Channel, method: BasicReject) -> None:
    channel.reject(method.delivery_tag, multiple=False, requeue=method.requeue)


def recover(channel: Channel, method: BasicRecover) -> None:
    steps = chores.recover(channel, requeue=method.requeue)
    chores.do(channel, steps, lambda: channel.reply_if_open(BasicRecoverOk()))


def recover_async(channel: Channel, method: BasicRecoverAsync) -> None:
    chores.do(channel, chores.recover(channel, requeue=method.requeue))


HANDLERS: dict[type[Method], Callable[[Channel, Any], None]] = {
    BasicQos: qos,
    BasicConsume: consume,
    BasicCancel: cancel,
    BasicGet: get,
    BasicAck: ack,
    BasicNack: nack,
    BasicReject: reject,
    BasicRecover: recover,
    BasicRecoverAsync: recover_async,
}
