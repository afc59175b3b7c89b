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

from collections.abc import Callable, Iterable
from dataclasses import fields

from warren.amqp.errors import AmqpError
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Table, encode_name
from warren.broker import routing_headers
from warren.broker.client import Origin
from warren.broker.clock import Clock
from warren.broker.message import Message
from warren.broker.queue import Queue

TRACE_EXCHANGE = "amq.rabbitmq.trace"
WIRE_NAME = encode_name(TRACE_EXCHANGE)
NAME_BYTES_MAX = 255


class Firehose:
    """The firehose of one vhost, while it is on."""

    def __init__(
        self, vhost: str, route: Callable[[bytes], Iterable[Queue]], clock: Clock, node: str
    ) -> None:
        self.vhost = vhost
        self.route = route  # finds the queues that get copies with this routing key
        self.clock = clock
        self.node = node  # the name of this node, for the header `node`

    def published(
        self, message: Message, queues: list[Queue], origin: Origin, extra_keys: list[str] | None
    ) -> None:
        """Copy a message that was published. `extra_keys` are the keys of CC and BCC headers, if known."""
        if not is_copy(message):
            headers = self._headers(message, origin)
            if extra_keys is not None:
                headers["routing_keys"] = [message.key, *extra_keys]
            headers["routed_queues"] = [queue.name for queue in queues]
            self._send("publish." + message.exchange_name, headers, message.body)

    def delivered(self, message: Message, queue: str, origin: Origin, *, redelivered: bool) -> None:
        if not is_copy(message):
            headers = self._headers(message, origin)
            headers["redelivered"] = int(redelivered)
            self._send("deliver." + queue, headers, message.body)

    def _headers(self, message: Message, origin: Origin) -> Table:
        keys, properties = describe(message)
        return {
            "exchange_name": message.exchange_name,
            "routing_keys": [message.key, *keys],
            "properties": properties,
            "node": self.node,
            "vhost": self.vhost,
            "connection": origin.connection,
            "channel": origin.channel,
            "user": origin.user,
        }

    def _send(self, key: str, headers: Table, body: bytes) -> None:
        raw = key.encode("utf-8", "surrogateescape")[:NAME_BYTES_MAX]
        routing_key = bytes((len(raw),)) + raw
        queues = self.route(routing_key)
        if queues:
            properties = BasicProperties(headers=headers).encode()
            copy = Message(WIRE_NAME, routing_key, properties, body, False, self.clock.time_ms)
            for queue in queues:
                if queue.is_here or not queue.is_full_for(copy):
                    queue.publish(copy)


def is_copy(message: Message) -> bool:
    """Whether a message is a copy that a firehose made, dead-lettered or not."""
    return message.exchange == WIRE_NAME or (message.died and WIRE_NAME[1:] in message.properties)


def describe(message: Message) -> tuple[list[str], Table]:
    """The keys of CC and BCC headers, and the properties that are set; empty if they cannot be decoded."""
    try:
        keys, raw = routing_headers.take(message.properties)
        properties = decode_properties(raw)
    except AmqpError:  # clients may send properties that cannot be decoded
        return [], {}
    values = {field.name: getattr(properties, field.name) for field in fields(properties)}
    return keys, {name: value for name, value in values.items() if value is not None}
