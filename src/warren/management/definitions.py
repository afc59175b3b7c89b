"""`/api/definitions` and `/api/definitions/{vhost}`: all definitions as RabbitMQ exports them, and importing
such files.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from warren.broker.binding import Binding
from warren.broker.exchange.exchange import Exchange
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.rules import queue_type
from warren.broker.vhost import Vhost
from warren.management import policies, users
from warren.management.context import Context
from warren.management.definitions_import import Import
from warren.management.endpoint import Endpoint, Parameter
from warren.management.errors import BadRequest, ObjectNotFound
from warren.management.json_text import ROWS_A_TURN, batches, send_pieces, to_json
from warren.management.large_json import decode_large_object
from warren.management.limit_names import limits_told
from warren.management.parameter_kinds import global_parameters_of, parameters_of
from warren.management.paths import VHOST
from warren.management.permissions import permissions_of, topic_permissions_of
from warren.management.rights import Right
from warren.management.schema import BYTES, TABLE, TEXT, record
from warren.management.vhosts import describe_metadata
from warren.session.handshake import COMPATIBLE_VERSION
from warren.version import __version__

Row: TypeAlias = dict[str, Any]

OF_ALL = ("/api/definitions", "/api/all-configuration")  # the second is RabbitMQ's old name of the first
BUILT_IN = "amq."
FILE = "file"  # the field of a form that has the file
FILE_NAME = re.compile(r"[\w.+-]+", re.ASCII)
DOWNLOAD = Parameter("download", TEXT, "Have browsers save the answer as a file of this name.")
VERSIONS: Row = {
    "rabbit_version": COMPATIBLE_VERSION,
    "rabbitmq_version": COMPATIBLE_VERSION,
    "product_name": "WarrenMQ",
    "product_version": __version__,
}


class DefinitionsResource:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        of_vhost = f"/api/definitions/{VHOST}"
        get = partial(Endpoint, method="GET", query=(DOWNLOAD,), gives=TABLE, right=Right.ADMINISTRATOR)
        post = partial(
            Endpoint,
            method="POST",
            right=Right.ADMINISTRATOR,
            takes=TABLE,
            takes_form=record({FILE: BYTES}),
            done=(204,),
        )
        to_import = "Make what a file of definitions has. What is there already stays, or is changed."
        return [
            *(get(path=path, handler=self.export_all, summary="All definitions.") for path in OF_ALL),
            get(path=of_vhost, handler=self.export_vhost, summary="The definitions of a vhost."),
            *(post(path=path, handler=self.import_all, summary=to_import) for path in OF_ALL),
            post(
                path=of_vhost,
                handler=self.import_vhost,
                summary="Make what a file of definitions has, in this vhost.",
            ),
        ]

    # --- export ---

    async def export_all(self, request: web.Request) -> web.StreamResponse:
        head = {**VERSIONS, "rabbitmq_definition_format": "cluster"}
        return await _send(request, head, _all_parts(self.node))

    async def export_vhost(self, request: web.Request) -> web.StreamResponse:
        vhost = self.node.vhosts.get(request.match_info["vhost"])
        if vhost is None:
            raise BadRequest("vhost_not_found")  # as RabbitMQ says it here
        head = {**VERSIONS, "rabbitmq_definition_format": "single_virtual_host", "vhost": vhost.name}
        head |= {**describe_metadata(vhost), "limits": limits_told(vhost.limits)}
        return await _send(request, head, _vhost_parts(self.node, vhost))

    # --- import ---

    async def import_all(self, request: web.Request) -> web.StreamResponse:
        await Import(self.context, await _content(request)).run()
        return web.Response(status=204)

    async def import_vhost(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["vhost"]
        if name not in self.node.vhosts:
            raise ObjectNotFound(f"no vhost '{name}'")
        await Import(self.context, await _content(request), name).run()
        return web.Response(status=204)


async def _content(request: web.Request) -> dict[str, Any]:
    is_form = request.content_type.startswith("multipart/")
    body = await _uploaded(request) if is_form else await request.read()
    try:
        return await decode_large_object(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"failed_to_parse_json: {error}") from None


async def _uploaded(request: web.Request) -> bytes:
    """The file in a form."""
    try:
        form = await request.post()
    except (ValueError, HttpProcessingError):
        raise BadRequest(f"the body is no form; expected one with the field '{FILE}'") from None
    given = form.get(FILE)
    if isinstance(given, web.FileField):
        with given.file as file:
            return file.read()
    if isinstance(given, str):
        return given.encode()
    raise BadRequest(f"expected a form with the field '{FILE}'")


# --- the parts of an export ---


def _all_parts(node: Node) -> dict[str, Iterable[Row]]:
    known_users, vhosts = list(node.users.values()), list(node.vhosts.values())

    def of_vhosts(rows_of: Callable[[Vhost], Iterable[Row]]) -> Iterator[Row]:
        return ({"vhost": vhost.name, **row} for vhost in vhosts for row in rows_of(vhost))

    return {
        "users": map(users.describe_for_export, known_users),
        "vhosts": ({"name": vhost.name, **describe_metadata(vhost)} for vhost in vhosts),
        "permissions": (row for user in known_users for row in permissions_of(user)),
        "topic_permissions": (row for user in known_users for row in topic_permissions_of(user)),
        "parameters": of_vhosts(partial(parameters_of, node)),
        "global_parameters": global_parameters_of(node),
        "policies": of_vhosts(_policies),
        "queues": of_vhosts(_queues),
        "exchanges": of_vhosts(_exchanges),
        "bindings": of_vhosts(_bindings),
    }


def _vhost_parts(node: Node, vhost: Vhost) -> dict[str, Iterable[Row]]:
    """The same of one vhost, whose name no row repeats."""
    parameters = ({k: v for k, v in row.items() if k != "vhost"} for row in parameters_of(node, vhost))
    return {
        "parameters": parameters,
        "policies": _policies(vhost),
        "queues": _queues(vhost),
        "exchanges": _exchanges(vhost),
        "bindings": _bindings(vhost),
    }


def _policies(vhost: Vhost) -> Iterator[Row]:
    for policy in policies.policies_of(vhost, operator=False):
        yield {"name": policy.name, **policies.contents(policy)}


def _queues(vhost: Vhost) -> Iterator[Row]:
    return (_queue(queue) for queue in list(vhost.queues.values()) if is_exported(queue))


def _exchanges(vhost: Vhost) -> Iterator[Row]:
    return (_exchange(exchange) for exchange in list(vhost.exchanges.values()) if _is_made(exchange))


def _bindings(vhost: Vhost) -> Iterator[Row]:
    for exchange in list(vhost.exchanges.values()):
        if exchange.name:  # every queue is bound to the default exchange anyway
            for binding in list(exchange.bindings.values()):
                if _is_between_exported(vhost, binding):
                    yield _binding(binding)


def is_exported(queue: Queue) -> bool:
    """Exclusive queues are left out: they belong to one connection, and end with it."""
    return queue.owner is None and (not queue.deleted or queue.retired)


def _is_made(exchange: Exchange) -> bool:
    return bool(exchange.name) and not exchange.name.startswith(BUILT_IN) and not exchange.deleted


def _is_between_exported(vhost: Vhost, binding: Binding) -> bool:
    queue = vhost.queues.get(binding.destination.name) if binding.destination.is_queue else None
    return not binding.destination.is_queue or (queue is not None and is_exported(queue))


def _queue(queue: Queue) -> Row:
    return {
        "name": queue.name,
        "type": queue_type(queue.arguments),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
    }


def _exchange(exchange: Exchange) -> Row:
    return {
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def _binding(binding: Binding) -> Row:
    return {
        "source": binding.source.name,
        "destination": binding.destination.name,
        "destination_type": "queue" if binding.destination.is_queue else "exchange",
        "routing_key": binding.routing_key,
        "arguments": binding.arguments,
    }


# --- sending it ---


async def _send(request: web.Request, head: Row, parts: dict[str, Iterable[Row]]) -> web.StreamResponse:
    headers: dict[str, str] = {}
    name = request.query.get(DOWNLOAD.name)
    if name is not None:
        if not FILE_NAME.fullmatch(name):
            raise BadRequest(f"{DOWNLOAD.name}: expected the name of a file")
        headers[hdrs.CONTENT_DISPOSITION] = f"attachment; filename={name}"
    return await send_pieces(request, _pieces(head, parts), "application/json", headers)


async def _pieces(head: Row, parts: dict[str, Iterable[Row]]) -> AsyncIterator[bytes]:
    """The export in pieces, with at most `ROWS_A_TURN` objects in a turn of the loop."""
    yield to_json(head)[:-1]
    for kind, rows in parts.items():
        yield b"," + to_json(kind) + b":["
        before = b""
        for batch in batches(rows, ROWS_A_TURN):
            yield before + to_json(batch)[1:-1]
            before = b","
            await asyncio.sleep(0)
        yield b"]"
    yield b"}"
