"""Direct reply-to: a reply comes back over the requester's own channel, without a declared queue.

A client that consumes from `amq.rabbitmq.reply-to` gets a hidden queue with an unguessable name for its
channel. When it publishes a request with the pseudo-queue in `reply_to`, the broker puts the hidden queue's
name there; the responder publishes its reply to that name through the default exchange.
"""

from __future__ import annotations

import base64

from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import decode_properties
from warren.broker.client import ClientId
from warren.broker.commands import DeclareQueue
from warren.broker.making import make_queue
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.vhost import Vhost
from warren.session.consumer import ChannelConsumer

PSEUDO_QUEUE = "amq.rabbitmq.reply-to"
REPLY_TO = PSEUDO_QUEUE.encode()
NAME_BYTES = 18


def rewrite_reply_to(properties: bytes, consumer: ChannelConsumer | None) -> bytes:
    if consumer is None:
        raise PreconditionFailed("fast reply consumer does not exist")
    decoded = decode_properties(properties)
    decoded.reply_to = consumer.queue.name
    return decoded.encode()


def open_reply_queue(node: Node, vhost: Vhost, owner: ClientId) -> Queue:
    """Make the hidden queue that a channel consumes from in place of the pseudo-queue."""
    token = base64.urlsafe_b64encode(node.world.random_bytes(NAME_BYTES)).decode()
    name = f"{PSEUDO_QUEUE}.{token}"
    queue = make_queue(node, DeclareQueue(vhost=vhost.name, name=name, auto_delete=True, owner=owner))
    vhost.reply_queues[queue.name] = queue
    vhost.version.bump()
    return queue


def close_reply_queue(vhost: Vhost, queue: Queue) -> None:
    vhost.reply_queues.pop(queue.name, None)
    vhost.version.bump()
    queue.deleted = True
    _, steps = queue.purge()
    queue.end()
    vhost.surroundings.turns.spread(steps)
