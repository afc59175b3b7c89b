"""A message as it was published: immutable, and shared by all queues that it went to."""

from __future__ import annotations

from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.traits import expiration_of, priority_of

# Work is counted in units of `Budget`.
PERSISTENT_WORK = 6  # a persistent message costs this many times as much: it is copied, checked and written
BODY_WORK_SHIFT = 10  # to copy and check a kilobyte costs about as much as a small message
WIDE_SHIFT = 11  # two thousand queues do not fit the processor's caches: each takes twice the time


class Message:
    """`exchange` and `routing_key` are short strings as on the wire, with their length octet, since they are
    sent to consumers in this form.
    """

    __slots__ = (
        "body", "died", "exchange", "expiration_ms", "persistent", "priority", "properties", "routing_key",
        "scheduled", "time_ms",
    )  # fmt: skip

    def __init__(
        self,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
        persistent: bool,
        time_ms: int = 0,
        died: bool = False,
        scheduled: bool = False,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties  # as on the wire: flags, then the values
        self.body = body
        self.persistent = persistent
        self.time_ms = time_ms  # when the message arrived, since 1970; if it is scheduled, when it is due
        self.died = died  # whether this broker dead-lettered the message, and so wrote its x-death header
        self.scheduled = scheduled  # whether the message waits in a delayed exchange until it is due
        self.expiration_ms = expiration_of(properties)  # the message's own TTL; -1 if it has none
        self.priority = priority_of(properties)

    def came_at(self, time_ms: int) -> Message:
        """The same message with another time of arrival: of a message that was published in a transaction,
        that is the commit, and of one that was moved to another queue, when it came there.
        """
        return Message(
            self.exchange, self.routing_key, self.properties, self.body, self.persistent, time_ms, self.died
        )

    def made_persistent(self) -> Message:
        """The same message for a queue that keeps all messages on disk. Its properties say what they said."""
        made = message_like(self, self.body, self.time_ms)
        made.persistent = True
        return made

    def waiting_until(self, due_ms: int) -> Message:
        """The same message, to be kept until it is due."""
        return Message(
            self.exchange,
            self.routing_key,
            self.properties,
            self.body,
            self.persistent,
            due_ms,
            self.died,
            scheduled=True,
        )

    @property
    def exchange_name(self) -> str:
        return self.exchange[1:].decode("utf-8", "surrogateescape")

    @property
    def key(self) -> str:
        return self.routing_key[1:].decode("utf-8", "surrogateescape")

    def decode_properties(self) -> BasicProperties:
        return decode_properties(self.properties)

    def __repr__(self) -> str:
        return f"<Message to {self.exchange_name!r} with key {self.key!r}, {len(self.body)} bytes>"


def publish_message(
    exchange: bytes,
    routing_key: bytes,
    properties: bytes,
    body: bytes,
    persistent: bool,
    time_ms: int,
    expiration_ms: int,
    priority: int,
) -> Message:
    """Make a message whose expiration and priority are known already. Calling `__init__` would cost as much
    as the rest of a publish (`warren perf throughput` watches this).
    """
    message = Message.__new__(Message)
    message.exchange = exchange
    message.routing_key = routing_key
    message.properties = properties
    message.body = body
    message.persistent = persistent
    message.time_ms = time_ms
    message.expiration_ms = expiration_ms
    message.priority = priority
    return message


def message_like(like: Message, body: bytes, time_ms: int) -> Message:
    """Make a message that differs from another one only in its body and its time (`warren perf throughput`
    watches this: messages of a long queue come out of its pack this way).
    """
    message = publish_message(
        like.exchange,
        like.routing_key,
        like.properties,
        body,
        like.persistent,
        time_ms,
        like.expiration_ms,
        like.priority,
    )
    message.died = like.died
    message.scheduled = like.scheduled
    return message


def enqueue_work(message: Message, queues: int) -> int:
    """How many units of work it is to put a message into so many queues; to have it at all is as much as one
    queue more. `warren perf throughput` watches this.
    """
    work = 1 + (len(message.body) >> BODY_WORK_SHIFT)
    if message.persistent:
        work *= PERSISTENT_WORK
    work *= 1 + (queues >> WIDE_SHIFT)
    return work * (1 + queues)
