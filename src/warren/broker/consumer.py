"""A consumer, as its queue sees it: the queue asks whether it can take a message, and tells it what happens.

Sessions implement `Consumer`. The queue asks `can_take` before each delivery, so a consumer alone decides
about prefetch limits and about the room in its connection's output.
"""

from __future__ import annotations

from dataclasses import dataclass

from warren.amqp.table import Table
from warren.broker.client import Origin
from warren.broker.entry import Entry


class View:
    """A consumer's own way through a queue. A consumer that takes whatever message is next has none."""

    takes = True
    """Whether messages that this consumer gets leave the queue."""

    def came_back(self, entry: Entry, level: int) -> None:
        """An entry of this level of priority is ready again, at its old place."""

    def was_purged(self) -> None:
        """The queue was purged: none of the entries that the view knows is left."""

    def end(self) -> None:
        """The consumer is gone: let go of the queue's entries."""


@dataclass(frozen=True, kw_only=True)
class ConsumeRequest:
    """A client's request to consume from a queue."""

    tag: str
    arguments: Table
    no_ack: bool  # whether messages count as acknowledged as soon as they are sent
    prefetch_count: int  # the consumer's own prefetch limit; 0 for none
    chose_tag: bool  # whether the client chose the tag, and not the broker
    has_channel_limit: bool  # whether the whole channel has a prefetch limit, which streams do not support


class Consumer:
    def __init__(
        self,
        *,
        tag: str,
        origin: Origin,
        no_ack: bool,
        exclusive: bool,
        priority: int,
        arguments: Table,
        view: View | None,
    ) -> None:
        self.tag = tag  # the consumer tag
        self.origin = origin  # the channel that it consumes on
        self.no_ack = no_ack  # whether messages count as acknowledged as soon as they are sent
        self.exclusive = exclusive  # whether the queue may have no other consumer
        self.priority = priority  # consumers of a higher priority are served first
        self.arguments = arguments
        self.view = view  # None for a consumer that takes whatever message is next
        self.cancelled = False  # once it is, the consumer gets nothing more

    def can_take(self, size: int) -> bool:
        """Whether a message of this size may be delivered now."""
        raise NotImplementedError

    def deliver(self, entry: Entry) -> int:
        """Send the message to the client; return the delivery tag."""
        raise NotImplementedError

    def settled(self, entry: Entry) -> None:
        """An entry that was delivered here was acked, rejected or requeued."""
        raise NotImplementedError

    def queue_is_gone(self) -> None:
        """The queue was deleted by somebody else, or by itself."""
        raise NotImplementedError

    def queue_is_unavailable(self, reason: str) -> None:
        """The queue is there, and nobody can use it, perhaps for long."""
        raise NotImplementedError

    @property
    def takes(self) -> bool:
        """Whether messages that this consumer gets leave the queue: true unless it only browses."""
        return self.view is None or self.view.takes

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.tag!r} of {self.origin.connection} channel {self.origin.channel}>"
        )


class Ring:
    """A queue's consumers of one priority, served in turn."""

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.consumers: list[Consumer] = []
        self.turn = 0  # the index of the consumer that is asked next
        self.tried = 0  # how many consumers could not take the last message that was offered

    def remove(self, consumer: Consumer) -> None:
        """Take the consumer out, if it is in the ring; no other consumer loses its turn."""
        if consumer in self.consumers:
            index = self.consumers.index(consumer)
            del self.consumers[index]
            self.turn -= index < self.turn

    def next_for(self, size: int) -> Consumer | None:
        """The next consumer in turn that can take a message of this size."""
        count = len(self.consumers)
        self.tried = 0
        while self.tried < count:
            if self.turn >= count:
                self.turn = 0
            consumer = self.consumers[self.turn]
            self.turn += 1
            if consumer.can_take(size):
                return consumer
            self.tried += 1
        return None

    def __repr__(self) -> str:
        return f"<Ring of priority {self.priority}: {self.consumers!r}>"
