"""Direct reply-to: an answer comes back over the requester's own channel, through no declared queue.

Consuming from `amq.rabbitmq.reply-to` makes a hidden queue with an unguessable name for this channel.
A request that names the pseudo-queue in `reply_to` leaves with that name instead; whoever answers
publishes to it through the default exchange.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import decode_properties
from warren.broker.commands import DeclareQueue
from warren.broker.consumer import Consumer

if TYPE_CHECKING:
    from warren.broker.queue import Queue
    from warren.broker.session.channel import Channel

PSEUDO_QUEUE = "amq.rabbitmq.reply-to"
REPLY_TO = PSEUDO_QUEUE.encode()
NAME_BYTES = 18


def rewrite_reply_to(properties: bytes, consumer: Consumer | None) -> bytes:
    if consumer is None:
        raise PreconditionFailed("fast reply consumer does not exist")
    decoded = decode_properties(properties)
    decoded.reply_to = consumer.queue.name
    return decoded.encode()


def open_reply_queue(channel: Channel, *, no_ack: bool) -> Queue:
    """The hidden queue to consume from in place of the pseudo-queue."""
    if not no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if channel.reply_consumer is not None:
        raise PreconditionFailed("reply consumer already set")
    node = channel.connection.node
    token = base64.urlsafe_b64encode(node.world.random_bytes(NAME_BYTES)).decode()
    queue = node.make_queue(
        DeclareQueue(
            vhost=channel.vhost.name,
            name=f"{PSEUDO_QUEUE}.{token}",
            auto_delete=True,
            owner=channel.connection,
        )
    )
    channel.vhost.reply_queues[queue.name] = queue
    channel.vhost.version.bump()
    return queue


def close_reply_queue(channel: Channel, queue: Queue) -> None:
    channel.vhost.reply_queues.pop(queue.name, None)
    channel.vhost.version.bump()
    queue.deleted = True
    queue.purge()
    queue.end()
