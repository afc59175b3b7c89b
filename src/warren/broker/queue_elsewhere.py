"""A queue that lives on another node of the cluster, as this node knows it.

It can be bound, and its declaration compared; routes lead to it. Clients can neither publish to it nor
consume from it here: one that tries is told the node to connect to. What the broker itself publishes to it,
such as a dead letter, goes there by post.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warren.amqp.errors import ResourceLocked
from warren.broker.consumer import Consumer, ConsumeRequest, View
from warren.broker.entry import Entry
from warren.broker.message import Message
from warren.broker.outcome import ON_ITS_WAY, REFUSED
from warren.broker.post import Postbox
from warren.broker.queue import Queue
from warren.broker.queue_figures import QueueFigures
from warren.broker.store import MessageLog, StreamLog
from warren.broker.surroundings import Surroundings


class QueueElsewhere(Queue):
    def __init__(
        self, name: str, vhost: str, surroundings: Surroundings, *, home: str, **properties: Any
    ) -> None:
        super().__init__(name, vhost, surroundings, **properties)
        self.is_here = False
        self.home = home  # the name of the node where it lives
        self.internal = False  # whether it belongs to an exchange, and is not for clients
        self.postbox: Postbox | None = None  # made for the first message
        self.figures: QueueFigures | None = None  # as the other node has told them last

    def not_here(self) -> ResourceLocked:
        where = self.surroundings.where_is(self.home)
        return ResourceLocked(
            f"{self.what} is on {where}: connect there" if where else f"{self.what} has no leader now"
        )

    def publish(self, message: Message) -> int:
        """Send a message of the broker itself to where the queue is. A client's message does not get here:
        `check_here` has raised before.
        """
        if self.postbox is None:
            self.safety = self.postbox = self.surroundings.postbox(self.vhost, self.name)
        if self.postbox is None:
            return REFUSED
        self.postbox.put(message)
        return ON_ITS_WAY

    def is_full_for(self, message: Message) -> bool:
        """Whether so much is on its way to other nodes that a message should wait where it is."""
        return self.surroundings.post_is_full()

    def take_figures(self, figures: QueueFigures) -> None:
        """The node where the queue lives has told what it counts."""
        if self.figures is not None and not figures.goes_on_from(self.figures):
            self.history = None  # its samples are of another leader
        self.figures = figures
        figures.put_into(self.tally)

    def end(self) -> None:
        if self.postbox is not None:
            self.postbox.close()
            self.postbox = None
        super().end()

    def drain(self) -> None:
        """Nothing to do: there are no consumers."""

    def settle(self, entry: Entry) -> None:
        raise self.not_here()

    def get(self, no_ack: bool) -> Entry | None:
        raise self.not_here()

    def length(self) -> int:
        return 0

    def body_bytes(self) -> int:
        return 0

    @property
    def next_offset(self) -> int:
        return 0

    def logs(self) -> list[tuple[str, MessageLog | StreamLog]]:
        return []

    @property
    def consumers(self) -> list[Consumer]:
        return []

    @property
    def is_worked_off(self) -> bool:
        return False

    def view_for(self, request: ConsumeRequest) -> View | None:
        raise self.not_here()

    def add_consumer(self, consumer: Consumer) -> None:
        raise self.not_here()

    def purge(self) -> tuple[int, Iterator[int]]:
        """Its messages are not here. It is also called when the queue is deleted."""
        return 0, iter(())
