"""Tells the other nodes what this one counts of the queues that live here, and takes what they tell.

So the HTTP API of every node has the figures of all queues, some seconds old. Only what has changed
is told, and now and then all of it: a node may not have known a queue yet when it was told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from warren.broker.history import TICK_SECONDS
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.queue_elsewhere import QueueElsewhere
from warren.broker.queue_figures import QueueFigures
from warren.cluster.config import StoreId
from warren.cluster.messages import Figures, FiguresOfQueue, Message
from warren.server.pace import at_a_pace
from warren.server.queue_figures import count

ROUND_SECONDS = TICK_SECONDS
ROUNDS_TO_ALL = 12  # after so many rounds all is told
QUEUES_A_MESSAGE = 1_000


class FigureService:
    def __init__(
        self,
        node: Node,
        others: Callable[[], Iterable[StoreId]],
        send: Callable[[StoreId, Message], None],
    ) -> None:
        self.node = node
        self.others = others  # the nodes that can be spoken to
        self.send = send  # says something to another node
        self.told: dict[tuple[str, str], QueueFigures] = {}  # in the last round, by vhost and name
        self.rounds = 0  # since all was told

    def link_up(self) -> None:
        """A node may have heard nothing yet."""
        self.told.clear()

    async def round(self) -> None:
        """Wait for the next round, and tell the others what has changed."""
        await asyncio.sleep(ROUND_SECONDS)
        await self.tell()

    async def tell(self) -> None:
        self.rounds += 1
        if self.rounds >= ROUNDS_TO_ALL:
            self.rounds = 0
            self.told.clear()
        before, self.told = self.told, {}
        told: list[FiguresOfQueue] = []
        async for queue in at_a_pace(self._queues_here()):
            if queue.deleted or not queue.is_here:  # since this round began
                continue
            name = queue.vhost, queue.name
            figures = self.told[name] = count(queue)
            if figures != before.get(name):
                told.append(FiguresOfQueue(*name, figures))
            if len(told) == QUEUES_A_MESSAGE:
                self._send(told)
        self._send(told)

    def _queues_here(self) -> list[Queue]:
        vhosts = self.node.vhosts.values()
        return [queue for vhost in vhosts for queue in vhost.all_queues() if queue.is_here]

    def _send(self, told: list[FiguresOfQueue]) -> None:
        if told:
            message = Figures(tuple(told))
            for store in list(self.others()):
                self.send(store, message)
            told.clear()

    def received(self, message: Figures) -> None:
        for vhost_name, name, figures in message.queues:
            vhost = self.node.vhosts.get(vhost_name)
            queue = None if vhost is None else vhost.queues.get(name) or vhost.internal_queues.get(name)
            if isinstance(queue, QueueElsewhere):
                queue.take_figures(figures)
