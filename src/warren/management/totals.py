"""Totals over some vhosts: messages, consumers, queues, connections and so on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.queue_totals import QueueTotals
from warren.broker.vhost import Vhost
from warren.session.connection import connections_of

QUEUES_A_TURN = 2_000  # take a fraction of a millisecond


async def queue_totals(queues: list[Queue]) -> QueueTotals:
    """Count over queues, `QUEUES_A_TURN` in a turn of the loop, since there may be very many."""
    totals = QueueTotals()
    for first in range(0, len(queues), QUEUES_A_TURN):
        totals.add(queues[first : first + QUEUES_A_TURN])
        await asyncio.sleep(0)
    return totals


def queues_of(vhosts: Sequence[Vhost]) -> list[Queue]:
    """Wherever in the cluster they live."""
    return [queue for vhost in vhosts for queue in vhost.all_queues()]


def queues_here(vhosts: Sequence[Vhost]) -> list[Queue]:
    """Those that live on this node. Metrics are of these, since they are added up over the nodes."""
    return [queue for queue in queues_of(vhosts) if queue.is_here]


def object_totals(node: Node, vhosts: list[Vhost]) -> dict[str, int]:
    names = {vhost.name for vhost in vhosts}
    connections = [c for c in connections_of(node) if c.vhost_name in names]
    return {
        "channels": sum(len(connection.open_channels()) for connection in connections),
        "connections": len(connections),
        "exchanges": sum(len(vhost.exchanges) for vhost in vhosts),
        "queues": sum(len(vhost.all_queues()) for vhost in vhosts),
    }
