"""`/api/bindings`, and the bindings of one exchange or queue, in RabbitMQ's form.

Every queue is bound to the default exchange by its name. These bindings are listed, too, though nobody can
make or remove one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias
from urllib.parse import quote

from aiohttp import web

from warren.amqp.table import Table
from warren.broker.binding import Binding, Destination
from warren.broker.commands import Bind, Unbind
from warren.broker.exchange.exchange import Exchange
from warren.broker.queue import Queue
from warren.broker.topology_rights import check_may_bind
from warren.broker.vhost import Vhost
from warren.management.auth import entered_vhost, visible_vhost, visible_vhosts
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import ObjectNotFound
from warren.management.fields import fields_in
from warren.management.listing import Row, list_endpoint, send_list
from warren.management.order import in_order, names_in_order
from warren.management.paths import DESTINATION, EXCHANGE, QUEUE, SOURCE, VHOST, exchange_name
from warren.management.properties_key import is_named, key_of, properties_key
from warren.management.schema import TABLE, TEXT, record
from warren.server.pace import at_a_pace

TO_QUEUE, TO_EXCHANGE = "q", "e"  # the kind of destination, in paths
KIND = f"{{kind:[{TO_QUEUE}{TO_EXCHANGE}]}}"
KEY = "{properties_key:[^/]+}"
Bound: TypeAlias = tuple[Vhost, Binding | Queue]
"""A binding and its vhost. A queue stands for its binding to the default exchange: very many bindings made at
once would be work for Python's collector.
"""
BETWEEN = f"/api/bindings/{VHOST}/e/{SOURCE}/{KIND}/{DESTINATION}"


class Bindings:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        exchange = f"/api/exchanges/{VHOST}/{EXCHANGE}/bindings"
        return [
            list_endpoint("/api/bindings", self.all, "The bindings of all vhosts that the user sees."),
            list_endpoint(f"/api/bindings/{VHOST}", self.of_vhost, "The bindings of a vhost."),
            list_endpoint(f"{exchange}/source", self.of_source, "The bindings from an exchange."),
            list_endpoint(f"{exchange}/destination", self.of_destination, "The bindings to an exchange."),
            list_endpoint(f"/api/queues/{VHOST}/{QUEUE}/bindings", self.of_queue, "The bindings to a queue."),
            list_endpoint(
                BETWEEN, self.between, "The bindings from an exchange to a queue (q) or exchange (e)."
            ),
            Endpoint(
                method="POST",
                path=BETWEEN,
                handler=self.post,
                summary="Bind a queue (q) or an exchange (e); the header `Location` names the binding.",
                takes=record(routing_key=TEXT, arguments=TABLE),
                done=(201,),
            ),
            object_endpoint(f"{BETWEEN}/{KEY}", self.get, "One binding."),
            Endpoint(
                method="DELETE",
                path=f"{BETWEEN}/{KEY}",
                handler=self.delete,
                summary="Remove a binding.",
                done=(204,),
            ),
        ]

    # --- lists ---

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await self._send_all(request, visible_vhosts(self.node, request))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await self._send_all(request, [visible_vhost(self.node, request)])

    async def _send_all(self, request: web.Request, vhosts: list[Vhost]) -> web.StreamResponse:
        """Send the bindings of these vhosts. The vhosts are in order, and so are their exchanges, since a
        binding goes by its source first.
        """
        found: list[Bound] = []
        for vhost in vhosts:
            for name in await names_in_order(list(vhost.exchanges)):
                exchange = vhost.exchanges.get(name)  # which may be deleted by now
                if exchange is not None:
                    found += await self._from(vhost, exchange)
        return await _send(request, found)

    async def _from(self, vhost: Vhost, exchange: Exchange) -> list[Bound]:
        """The bindings from an exchange, in order."""
        if exchange.name:
            return await _in_order(vhost, list(exchange.bindings.values()))
        queues = await self.context.queue_order.of([vhost])
        return [(vhost, queue) async for queue in at_a_pace(queues) if not queue.internal]

    async def of_source(self, request: web.Request) -> web.StreamResponse:
        """As in RabbitMQ, an exchange that is absent has no bindings."""
        vhost = visible_vhost(self.node, request)
        exchange = vhost.exchanges.get(exchange_name(request))
        return await _send(request, [] if exchange is None else await self._from(vhost, exchange))

    async def of_destination(self, request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(self.node, request)
        exchange = vhost.exchanges.get(exchange_name(request))
        incoming = [] if exchange is None else list(exchange.incoming)
        return await _send(request, await _in_order(vhost, incoming))

    async def of_queue(self, request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(self.node, request)
        queue = vhost.find_queue(request.match_info["queue"])
        return await _send(request, await _in_order(vhost, list(_to_queue(vhost, queue))))

    async def between(self, request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(self.node, request)
        return await _send(request, await _in_order(vhost, list(_between(vhost, request))))

    # --- one binding ---

    async def get(self, request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(self.node, request)
        return send_object(request, describe(vhost.name, _named(vhost, request)))

    async def post(self, request: web.Request) -> web.StreamResponse:
        vhost, access = entered_vhost(self.node, request)
        given = await fields_in(request, '{"routing_key": "", "arguments": {}}')
        source, destination, to_queue = _ends(request)
        command = Bind(
            vhost=vhost.name,
            source=source,
            destination=destination,
            to_queue=to_queue,
            routing_key=given.name("routing_key", ""),
            arguments=given.table("arguments", {}),
        )
        check_may_bind(access, vhost, command)
        vhost.find_exchange(source)
        if to_queue:
            vhost.bindable_queue(None, destination)
        await self.context.execute(command)
        key = properties_key(command.routing_key, command.arguments)
        place = "/".join(quote(name, safe="", errors="surrogateescape") for name in (destination, key))
        return web.Response(status=201, headers={"Location": place})

    async def delete(self, request: web.Request) -> web.StreamResponse:
        vhost, access = entered_vhost(self.node, request)
        binding = _named(vhost, request)
        command = Unbind(
            vhost=vhost.name,
            source=binding.source.name,
            destination=binding.destination.name,
            to_queue=binding.destination.is_queue,
            routing_key=binding.routing_key,
            arguments=binding.arguments,
        )
        check_may_bind(access, vhost, command)
        await self.context.execute(command)
        return web.Response(status=204)


# --- which bindings ---


async def _in_order(vhost: Vhost, bindings: list[Binding]) -> list[Bound]:
    every = at_a_pace(await in_order(bindings, _order))
    return [(vhost, each) async for each in every if not each.destination.deleted or each.destination.retired]


def _order(binding: Binding) -> tuple[str, str, str, str, bool]:
    """The key by which bindings of one vhost go."""
    destination, arguments = binding.destination, binding.arguments
    return (
        binding.source.name,
        destination.name,
        binding.routing_key,
        key_of(binding) if arguments else "",
        destination.is_queue,
    )


def _to_queue(vhost: Vhost, queue: Queue) -> Iterator[Binding]:
    if not queue.internal:
        yield _implicit(vhost, queue)
    yield from list(queue.incoming)


def _implicit(vhost: Vhost, queue: Queue) -> Binding:
    """The binding of a queue to the default exchange."""
    return Binding(vhost.exchanges[""], queue, queue.name, {})


def _ends(request: web.Request) -> tuple[str, str, bool]:
    """Source and destination that the path names, and whether the destination is a queue."""
    source = exchange_name(request, "source")
    if request.match_info["kind"] == TO_QUEUE:
        return source, request.match_info["destination"], True
    return source, exchange_name(request, "destination"), False


def _between(vhost: Vhost, request: web.Request) -> Iterator[Binding]:
    """The bindings between the two that the path names: none if one of them does not exist."""
    source, name, to_queue = _ends(request)
    queue, exchange = vhost.queues.get(name), vhost.exchanges.get(name)
    incoming: Iterable[Binding] = ()
    if to_queue and queue is not None:
        incoming = _to_queue(vhost, queue)
    elif not to_queue and exchange is not None:
        incoming = list(exchange.incoming)
    return (binding for binding in incoming if binding.source.name == source)


def _named(vhost: Vhost, request: web.Request) -> Binding:
    """The binding that the path names."""
    key = request.match_info["properties_key"]
    for binding in _between(vhost, request):
        if is_named(binding, key):
            return binding
    source, destination, _to_queue = _ends(request)
    raise ObjectNotFound(f"no binding '{key}' from '{source}' to '{destination}' in vhost '{vhost.name}'")


# --- as JSON ---


async def _send(request: web.Request, found: list[Bound]) -> web.StreamResponse:
    """Send these bindings with their vhosts. The query filters them by the names of their destinations."""
    return await send_list(request, found, lambda each: _describe_bound(*each), lambda each: _name(each[1]))


def _name(bound: Binding | Queue) -> str:
    return bound.destination.name if isinstance(bound, Binding) else bound.name


def _describe_bound(vhost: Vhost, bound: Binding | Queue) -> Row:
    """The vhost may be deleted by now, with its default exchange."""
    if isinstance(bound, Binding):
        return describe(vhost.name, bound)
    return _row(vhost.name, "", bound, bound.name, {})


def describe(vhost: str, binding: Binding) -> Row:
    return _row(vhost, binding.source.name, binding.destination, binding.routing_key, binding.arguments)


def _row(vhost: str, source: str, destination: Destination, routing_key: str, arguments: Table) -> Row:
    return {
        "source": source,
        "vhost": vhost,
        "destination": destination.name,
        "destination_type": "queue" if destination.is_queue else "exchange",
        "routing_key": routing_key,
        "arguments": arguments,
        "properties_key": properties_key(routing_key, arguments),
    }
