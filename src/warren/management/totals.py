"""Totals over some vhosts: messages, consumers, queues, connections and so on."""

from __future__ import annotations

import asyncio

from warren.broker.node import Node
from warren.broker.queue_totals import QueueTotals
from warren.broker.vhost import Vhost
from warren.session.connection import connections_of

QUEUES_A_TURN = 2_000  # take a fraction of a millisecond


async def queue_totals(vhosts: list[Vhost]) -> QueueTotals:
    """Count over all queues, `QUEUES_A_TURN` in a turn of the loop, since there may be very many."""
    queues = [queue for vhost in vhosts for queue in vhost.all_queues()]
    totals = QueueTotals()
    for first in range(0, len(queues), QUEUES_A_TURN):
        totals.add(queues[first : first + QUEUES_A_TURN])
        await asyncio.sleep(0)
    return totals


def object_totals(node: Node, vhosts: list[Vhost]) -> dict[str, int]:
    names = {vhost.name for vhost in vhosts}
    connections = [c for c in connections_of(node) if c.vhost_name in names]
    return {
        "channels": sum(len(connection.open_channels()) for connection in connections),
        "connections": len(connections),
        "exchanges": sum(len(vhost.exchanges) for vhost in vhosts),
        "queues": sum(len(vhost.all_queues()) for vhost in vhosts),
    }
