"""Takes samples of what queues, exchanges, channels, connections, vhosts and the node count, every
`TICK_SECONDS`.

A tick goes through all objects, a few milliseconds in each turn of the loop. An object that has counted
nothing has no history, and costs a glance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol

from warren.broker.history import LARGE, SMALL, TICK_SECONDS, History, Timeline
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.queue_elsewhere import QueueElsewhere
from warren.broker.vhost import Vhost
from warren.server.churn import Churn
from warren.server.node_figures import NodeFigures
from warren.server.pace import at_a_pace
from warren.session.connection import Connection, connections_of
from warren.session.state import State

APART_SECONDS_MIN = TICK_SECONDS / 2  # between two ticks, though the loop was late for the first
LENGTHS = ("messages_ready", "messages_unacknowledged")
"""The gauges of queues and vhosts, behind their counters."""


class Sampled(Protocol):
    """Anything that has a history."""

    history: History | None


class Sampler:
    def __init__(self, node: Node, churn: Churn, figures: NodeFigures) -> None:
        self.node = node
        self.churn = churn
        self.figures = figures
        self.timeline = Timeline()

    async def run(self) -> None:
        """Take samples until cancelled."""
        now = self.node.world.now
        due = before = now()
        while True:
            due = next_due(due, now())
            await asyncio.sleep(due - now())
            began = now()
            try:
                await self.take(began - before)
            except Exception as error:  # noqa: BLE001 - one failed tick must not end the sampling
                self.node.world.report(error)
            before = began

    async def take(self, seconds: float = TICK_SECONDS) -> None:
        """Take one sample of everything, so many seconds after the last one. Only then the tick counts:
        until then, those who read see the last one.
        """
        tick = self.timeline.tick + 1
        async for connection in at_a_pace(connections_of(self.node)):
            self._take_of_connection(connection, tick)
        for vhost in list(self.node.vhosts.values()):
            await self._take_of(vhost, tick)
        note(self.churn, self.churn.figures(self.node), (), tick)
        note(self.figures, self.figures.counters(), self.figures.gauges(), tick, stored_as=LARGE)
        self.timeline.tick = tick
        self.timeline.time_ms = self.node.world.time_ms()
        self.timeline.seconds = seconds

    async def _take_of(self, vhost: Vhost, tick: int) -> None:
        ready = unacked = 0
        async for queue in at_a_pace(vhost.all_queues()):
            lengths = _lengths(queue)
            ready += lengths[0]
            unacked += lengths[1]
            note(queue, queue.tally.figures(), lengths, tick)
        async for exchange in at_a_pace(list(vhost.exchanges.values())):
            note(exchange, exchange.tally.figures(), (), tick)
        counters = (*vhost.tally.total().figures(), *vhost.octets)
        note(vhost, counters, (ready, unacked), tick, stored_as=LARGE)

    async def forget(self) -> None:
        """Forget all samples that were taken."""
        async for sampled in at_a_pace(self._all_sampled()):
            if sampled.history is not None:
                sampled.history.forget()

    def _all_sampled(self) -> Iterator[Sampled]:
        yield self.churn
        yield self.figures
        for connection in connections_of(self.node):
            yield connection
            yield from connection.open_channels()
        for vhost in list(self.node.vhosts.values()):
            yield vhost
            yield from vhost.all_queues()
            yield from list(vhost.exchanges.values())

    def _take_of_connection(self, connection: Connection, tick: int) -> None:
        if connection.state is State.CLOSED:
            return
        if connection.vhost_name:
            connection.add_octets_to_vhost()
        passed = connection.bytes()
        counters = (*connection.tally().figures(), passed.received, passed.sent)
        note(connection, counters, (), tick, stored_as=LARGE)
        for channel in connection.open_channels():
            note(channel, channel.tally.figures(), (), tick)


def _lengths(queue: Queue) -> tuple[int, int]:
    if not isinstance(queue, QueueElsewhere):
        return queue.length(), queue.unacked
    figures = queue.figures
    return (0, 0) if figures is None else (figures.ready, figures.unacked)


def next_due(due: float, now: float) -> float:
    """When the tick behind the one that was due then is due. After a late one there is some time before the
    next, or its rates would be divided by almost nothing.
    """
    return max(due + TICK_SECONDS, now + APART_SECONDS_MIN)


def note(
    sampled: Sampled, counters: tuple[int, ...], gauges: tuple[int, ...], tick: int, stored_as: str = SMALL
) -> None:
    """Note these numbers of an object. It gets a history with its first number above 0."""
    history, values = sampled.history, counters + gauges
    if history is None:
        if not any(values):
            return
        history = sampled.history = History(len(counters), len(gauges), tick - 1, stored_as)
    history.note(values, tick)
