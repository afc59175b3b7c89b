"""Totals over some vhosts: messages, consumers, queues, connections and so on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from warren.broker.node import Node
from warren.broker.stream import stream_of
from warren.broker.vhost import Vhost
from warren.management.json_text import batches
from warren.session.connection import connections_of

QUEUES_A_TURN = 500


@dataclass
class QueueTotals:
    queues: int = 0
    ready: int = 0
    ready_bytes: int = 0
    unacked: int = 0
    consumers: int = 0
    stream_lag_max: int = 0  # of the reader of a stream that is furthest behind


async def queue_totals(vhosts: list[Vhost]) -> QueueTotals:
    """Count over all queues, `QUEUES_A_TURN` in a turn of the loop, since there may be very many."""
    queues = [queue for vhost in vhosts for queue in vhost.all_queues()]
    totals = QueueTotals(queues=len(queues))
    for batch in batches(queues, QUEUES_A_TURN):
        for queue in batch:
            totals.ready += queue.length()
            totals.ready_bytes += queue.body_bytes()
            totals.unacked += queue.unacked
            totals.consumers += len(queue.consumers)
            stream = stream_of(queue)
            if stream is not None:
                totals.stream_lag_max = max(totals.stream_lag_max, *stream.lags().values(), 0)
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
