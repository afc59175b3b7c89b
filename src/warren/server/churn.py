"""Counts connections, channels and queues that come and go, since the broker started."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from warren.broker.events import (
    ChannelClosed,
    ChannelOpened,
    ConnectionClosed,
    ConnectionOpened,
    Event,
    Events,
    QueueCreated,
    QueueDeleted,
)
from warren.broker.history import History
from warren.broker.node import Node

DECLARED = "queue_declared"


class Churn:
    """Begins to count when it is made: what recovery makes again does not count."""

    EVENTS: ClassVar[dict[type[Event], str]] = {
        ConnectionOpened: "connection_created",
        ConnectionClosed: "connection_closed",
        ChannelOpened: "channel_created",
        ChannelClosed: "channel_closed",
        QueueCreated: "queue_created",
        QueueDeleted: "queue_deleted",
    }
    """RabbitMQ's names for the numbers, by the events that are counted."""
    NAMES: ClassVar[tuple[str, ...]] = (*EVENTS.values(), DECLARED)

    def __init__(self, events: Events) -> None:
        self.counts = dict.fromkeys(self.EVENTS.values(), 0)
        self.history: History | None = None  # samples of these counts, in the order of `NAMES`
        for kind, name in self.EVENTS.items():
            events.subscribe(kind, partial(self._count, name))

    def _count(self, name: str, _event: Event) -> None:
        self.counts[name] += 1

    def figures(self, node: Node) -> tuple[int, ...]:
        """The counts that `NAMES` names. Vhosts count declarations, since these make no event."""
        declared = sum(vhost.tally.declared_queues for vhost in node.vhosts.values())
        return (*self.counts.values(), declared + node.gone.declared_queues)
