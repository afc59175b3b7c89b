"""Names as clients give them, and the queues that they stand for."""

from __future__ import annotations

import base64

from warren.amqp.errors import NotFound
from warren.broker.node import World
from warren.broker.queue import Queue
from warren.broker.vhost import check_here, check_owner
from warren.session.channel import Channel

RANDOM_BYTES = 16


def random_name(world: World, prefix: str) -> str:
    return prefix + base64.urlsafe_b64encode(world.random_bytes(RANDOM_BYTES)).rstrip(b"=").decode()


def without_line_ends(name: str) -> str:
    """RabbitMQ drops these from names in declarations, bindings and deletions."""
    return name.replace("\r", "").replace("\n", "")


def queue_name(channel: Channel, name: str) -> str:
    """An empty name stands for the queue that was declared last on this channel."""
    if not name and not channel.last_queue:
        raise NotFound("no previously declared queue")
    return name or channel.last_queue


def usable_queue(channel: Channel, name: str) -> Queue:
    """The queue of this name; an error if there is none, if it is exclusive to another connection, or lives
    on another node.
    """
    queue: Queue = channel.vhost.find_queue(name)
    check_owner(queue, channel.connection.id)
    check_here(queue)
    return queue


def clients_queue(channel: Channel, name: str) -> Queue:
    """Like `usable_queue`, but also an error if the queue belongs to an exchange."""
    queue: Queue = channel.vhost.queue_for(channel.connection.id, queue_name(channel, name))
    return queue


def bindable_queue(channel: Channel, name: str) -> Queue:
    """Like `clients_queue`, but the queue may live on another node."""
    queue: Queue = channel.vhost.bindable_queue(channel.connection.id, queue_name(channel, name))
    return queue
