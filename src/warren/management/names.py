"""Requests about many queues at once. The body has the names, since a thousand do not fit in a URL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from warren.amqp.errors import NotFound
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.rules import queue_type
from warren.broker.stream import stream_of
from warren.management.auth import finder
from warren.management.bodies import object_in
from warren.management.context import Context
from warren.management.errors import BadRequest
from warren.management.json_text import ROWS_A_TURN, batches

NAMES_MAX = 10_000
BODY_BYTES_MAX = 4 * 1024 * 1024
EXPECTED = '{"queues": [names]}'


def object_of_names(body: bytes) -> dict[str, Any]:
    return object_in(body, EXPECTED, bytes_max=BODY_BYTES_MAX)


def names_in(given: dict[str, Any]) -> list[str]:
    names = given.get("queues")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequest(f"expected {EXPECTED}")
    if len(names) > NAMES_MAX:
        raise BadRequest(f"at most {NAMES_MAX} queues at once, not {len(names)}")
    return names


async def find_all(node: Node, request: web.Request, names: Sequence[str]) -> list[tuple[str, Queue | None]]:
    """Each name with its queue, or None if there is no such queue. Raises if the user may not read one."""
    find = finder(node, request)
    found: list[tuple[str, Queue | None]] = []
    for batch in batches(names, ROWS_A_TURN):
        if found:
            await asyncio.sleep(0)
        for name in batch:
            try:
                found.append((name, find(name)))
            except NotFound:
                found.append((name, None))
    return found


def head(context: Context, queue: Queue) -> dict[str, object]:
    """The fields that every answer about a queue begins with."""
    told: dict[str, object] = {
        "vhost": queue.vhost,
        "queue": queue.name,
        "type": queue_type(queue.arguments),
    }
    if stream_of(queue) is not None:
        told["stream_id"] = context.store.stream_id(queue.vhost, queue.name)
    return told
