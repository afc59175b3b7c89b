"""A queue that lives on another node of the cluster, as this node knows it.

It can be bound, and its declaration compared; routes lead to it. Nothing can be published to it or consumed
from it here: a client that tries is told the node to connect to.
"""

from __future__ import annotations

from typing import Any

from warren.amqp.errors import ResourceLocked
from warren.broker.consumer import Consumer, ConsumeRequest, View
from warren.broker.entry import Entry
from warren.broker.message import Message
from warren.broker.outcome import REFUSED
from warren.broker.queue import Queue
from warren.broker.store import MessageLog, StreamLog
from warren.broker.surroundings import Surroundings


class QueueElsewhere(Queue):
    is_here = False

    def __init__(
        self, name: str, vhost: str, surroundings: Surroundings, *, home: str, **properties: Any
    ) -> None:
        super().__init__(name, vhost, surroundings, **properties)
        self.home = home  # the name of the node where it lives
        self.internal = False  # whether it belongs to an exchange, and is not for clients

    def not_here(self) -> ResourceLocked:
        return ResourceLocked(f"{self.what} is on {self.surroundings.where_is(self.home)}: connect there")

    def publish(self, message: Message) -> int:
        """Not taken. A client's message does not get here: `check_here` has raised before."""
        return REFUSED

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

    def purge(self) -> int:
        """Its messages are not here. It is also called when the queue is deleted."""
        return 0
