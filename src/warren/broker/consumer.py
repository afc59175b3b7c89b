"""A consumer as its queue sees it: somebody who can take a message or not, and is told what happens.

Sessions implement `Consumer`. The queue asks `can_take` before each delivery, so a consumer alone decides
about prefetch limits and about the room in its connection's output.
"""

from __future__ import annotations

from dataclasses import dataclass

from warren.amqp.table import Table
from warren.broker.client import Origin
from warren.broker.entry import Entry


class View:
    """A consumer's own way through a queue, for one that does not simply get the next message."""

    takes = True
    """Whether messages that this consumer gets leave the queue."""

    def came_back(self, entry: Entry, level: int) -> None:
        """An entry of this level of priority is ready again, at its old place."""

    def was_purged(self) -> None:
        """The queue was purged: no entry that was seen before is in it any more."""

    def end(self) -> None:
        """The consumer is gone: let go of the queue's entries."""


@dataclass(frozen=True, kw_only=True)
class ConsumeRequest:
    """What a client asks of a queue that it wants to consume from."""

    tag: str
    arguments: Table
    no_ack: bool
    prefetch_count: int
    chose_tag: bool  # the client did, and not the broker
    has_channel_limit: bool  # a prefetch limit of the whole channel, which streams do not support


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
        self.tag = tag
        self.origin = origin
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority = priority
        self.arguments = arguments
        self.view = view  # None for a consumer that gets the next message, whatever it is
        self.cancelled = False  # such a consumer gets nothing more

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

    @property
    def takes(self) -> bool:
        """Whether messages leave the queue by this consumer: true of all but those that browse."""
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
        self.turn = 0  # the index of the consumer that comes next
        self.tried = 0  # how many consumers could not take the last message that was offered

    def remove(self, consumer: Consumer) -> None:
        """Take the consumer out, if it is here, without anybody losing a turn."""
        if consumer in self.consumers:
            index = self.consumers.index(consumer)
            del self.consumers[index]
            self.turn -= index < self.turn

    def next_for(self, size: int) -> Consumer | None:
        """The next in turn that can take a message of this size."""
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
