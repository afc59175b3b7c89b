"""The firehose: while it is on in a vhost, a copy of every message that is published or delivered there goes
to the exchange `amq.rabbitmq.trace`, in RabbitMQ's form.

    routing key   publish.<exchange>, or deliver.<queue>
    body          that of the message
    headers       exchange_name, routing_keys, properties, node, vhost, connection, channel, user;
                  when published also routed_queues, when delivered also redelivered, 0 or 1

A message that is published in a transaction is copied when the transaction is committed. The copy of a
publish names the routing keys of the header BCC as well; a message that is delivered has lost that header.

Copies are not traced themselves, since each would cause another one: neither when they are delivered, nor
when they are dead-lettered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache

from warren.amqp.budget import Budget
from warren.amqp.errors import AmqpError
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.reader import EMPTY_PROPERTIES
from warren.amqp.table import LENGTH, Table, encode_name, encode_table
from warren.amqp.traits import add_headers
from warren.broker import routing_headers
from warren.broker.client import Origin
from warren.broker.clock import Clock
from warren.broker.message import Message, enqueue_work
from warren.broker.queue import Queue

TRACE_EXCHANGE = "amq.rabbitmq.trace"
WIRE_NAME = encode_name(TRACE_EXCHANGE)
NAME_BYTES_MAX = 255
ORIGINS_CACHED_MAX = 1_000
ROUTE_WORK, COPY_WORK = 5, 30  # units of work: to look where a copy goes, and to make it


class Firehose:
    """The firehose of one vhost, while it is on. It charges the turn's budget for its work."""

    def __init__(
        self, vhost: str, route: Callable[[bytes], list[Queue]], clock: Clock, node: str, budget: Budget
    ) -> None:
        self.vhost = vhost
        self.route = route  # finds the queues that get copies with this routing key
        self.clock = clock
        self.node = node  # the name of this node, for the header `node`
        self.budget = budget

    def published(
        self, message: Message, queues: list[Queue], origin: Origin, extra_keys: list[str] | None
    ) -> None:
        """Copy a message that was published. `extra_keys` are the keys of CC and BCC headers, if known."""
        routing_key, targets = self._targets("publish." + message.exchange_name, message)
        if targets:
            headers = _headers(message)
            if extra_keys is not None:
                headers["routing_keys"] = [message.key, *extra_keys]
            headers["routed_queues"] = [queue.name for queue in queues]
            self.budget.left -= len(queues)
            self._send(routing_key, headers, origin, message.body, targets)

    def delivered(self, message: Message, queue: str, origin: Origin, *, redelivered: bool) -> None:
        routing_key, targets = self._targets("deliver." + queue, message)
        if targets:
            headers = _headers(message)
            headers["redelivered"] = int(redelivered)
            self._send(routing_key, headers, origin, message.body, targets)

    def _targets(self, key: str, message: Message) -> tuple[bytes, list[Queue]]:
        """The routing key of a message's copy, and the queues that get it."""
        self.budget.left -= ROUTE_WORK
        raw = key.encode("utf-8", "surrogateescape")[:NAME_BYTES_MAX]
        routing_key = bytes((len(raw),)) + raw
        return routing_key, [] if is_copy(message) else self.route(routing_key)

    def _send(
        self, routing_key: bytes, headers: Table, origin: Origin, body: bytes, targets: list[Queue]
    ) -> None:
        encoded = BasicProperties(headers=headers).encode()
        properties = add_headers(encoded, _encode_whence(self.node, self.vhost, origin), False)
        copy = Message(WIRE_NAME, routing_key, properties, body, False, self.clock.time_ms)
        self.budget.left -= COPY_WORK + enqueue_work(copy, len(targets))
        for queue in targets:
            if queue.is_here or not queue.is_full_for(copy):
                queue.publish(copy)


def is_copy(message: Message) -> bool:
    """Whether a message is a copy that a firehose made, dead-lettered or not."""
    return message.exchange == WIRE_NAME or (message.died and WIRE_NAME[1:] in message.properties)


def describe(message: Message) -> tuple[list[str], Table]:
    """The keys of CC and BCC headers, and the properties that are set; empty if they cannot be decoded."""
    if message.properties == EMPTY_PROPERTIES:
        return [], {}
    try:
        properties = decode_properties(message.properties)
        keys = routing_headers.take_keys(properties)
    except AmqpError:  # clients may send properties that cannot be decoded
        return [], {}
    values = {field.name: getattr(properties, field.name) for field in fields(properties)}
    return keys, {name: value for name, value in values.items() if value is not None}


def _headers(message: Message) -> Table:
    """The headers of a copy that are about the message."""
    keys, properties = describe(message)
    return {
        "exchange_name": message.exchange_name,
        "routing_keys": [message.key, *keys],
        "properties": properties,
    }


@lru_cache(ORIGINS_CACHED_MAX)
def _encode_whence(node: str, vhost: str, origin: Origin) -> bytes:
    """The encoded headers of a copy that are the same for all messages of a channel."""
    whence: Table = {
        "node": node,
        "vhost": vhost,
        "connection": origin.connection,
        "channel": origin.channel,
        "user": origin.user,
    }
    return encode_table(whence)[LENGTH.size :]
