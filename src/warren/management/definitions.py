"""`/api/definitions/{vhost}`: the topology of a vhost as RabbitMQ exports it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

from aiohttp import web

from warren.broker.binding import Binding
from warren.broker.exchange.exchange import Exchange
from warren.broker.policy import Policy
from warren.broker.queue import Queue
from warren.broker.vhost import Vhost
from warren.management.auth import visible_vhost
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.json_text import ROWS_A_TURN, batches, send_pieces, to_json
from warren.management.paths import VHOST
from warren.management.schema import TABLE

BUILT_IN = "amq."


class DefinitionsExport:
    def __init__(self, context: Context) -> None:
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path=f"/api/definitions/{VHOST}",
                handler=self.of_vhost,
                summary="The topology of a vhost.",
                gives=TABLE,
            )
        ]

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(self.node, request)
        return await send_pieces(request, _pieces(vhost), "application/json")


async def _pieces(vhost: Vhost) -> AsyncIterator[bytes]:
    """The export in pieces, with at most `ROWS_A_TURN` objects in a turn of the loop."""
    parts: dict[str, Iterable[object]] = {
        "policies": map(_policy, list(vhost.policies.policies.values())),
        "queues": (_queue(queue) for queue in list(vhost.queues.values()) if is_exported(queue)),
        "exchanges": (_exchange(each) for each in list(vhost.exchanges.values()) if _is_made(each)),
        "bindings": _bindings(vhost),
    }
    yield b'{"vhost":' + to_json(vhost.name)
    for kind, rows in parts.items():
        yield b"," + to_json(kind) + b":["
        before = b""
        for batch in batches(rows, ROWS_A_TURN):
            yield before + to_json(batch)[1:-1]
            before = b","
            await asyncio.sleep(0)
        yield b"]"
    yield b"}"


def is_exported(queue: Queue) -> bool:
    """Exclusive queues are left out: they belong to one connection, and end with it."""
    return queue.owner is None and not queue.deleted


def _is_made(exchange: Exchange) -> bool:
    return bool(exchange.name) and not exchange.name.startswith(BUILT_IN) and not exchange.deleted


def _bindings(vhost: Vhost) -> Iterator[object]:
    for exchange in list(vhost.exchanges.values()):
        if exchange.name:  # every queue is bound to the default exchange anyway
            for binding in list(exchange.bindings.values()):
                if _is_between_exported(vhost, binding):
                    yield _binding(binding)


def _is_between_exported(vhost: Vhost, binding: Binding) -> bool:
    queue = vhost.queues.get(binding.destination.name) if binding.destination.is_queue else None
    return not binding.destination.is_queue or (queue is not None and is_exported(queue))


def _policy(policy: Policy) -> object:
    return {
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def _queue(queue: Queue) -> object:
    return {
        "name": queue.name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
    }


def _exchange(exchange: Exchange) -> object:
    return {
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def _binding(binding: Binding) -> object:
    return {
        "source": binding.source.name,
        "destination": binding.destination.name,
        "destination_type": "queue" if binding.destination.is_queue else "exchange",
        "routing_key": binding.routing_key,
        "arguments": binding.arguments,
    }
