"""`/api/exchanges`: exchanges as RabbitMQ describes, declares and deletes them."""

from __future__ import annotations

from aiohttp import web

from warren.broker.access import Permission
from warren.broker.commands import DeclareExchange, DeleteExchange
from warren.broker.exchange.exchange import Exchange
from warren.broker.topology_rights import check_may_declare_exchange
from warren.broker.vhost import Vhost
from warren.management.auth import entered_vhost, visible_vhost, visible_vhosts
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint, Parameter
from warren.management.fields import fields_in, name_in
from warren.management.listing import Row, list_endpoint, send_list
from warren.management.message_stats import QUERY, stats_for
from warren.management.paths import EXCHANGE, VHOST, exchange_name
from warren.management.schema import FLAG, TABLE, TEXT, record
from warren.server.pace import at_a_pace

EXPECTED = '{"type": "direct", "durable": true, "auto_delete": false, "internal": false, "arguments": {}}'
DEFINITION = record(type=TEXT, durable=FLAG, auto_delete=FLAG, internal=FLAG, arguments=TABLE)
IF_UNUSED = Parameter("if-unused", FLAG, "Refuse to delete it while it is in use.")


class Exchanges:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        one = f"/api/exchanges/{VHOST}/{EXCHANGE}"
        return [
            list_endpoint(
                "/api/exchanges", self.all, "The exchanges of all vhosts that the user sees.", QUERY
            ),
            list_endpoint(f"/api/exchanges/{VHOST}", self.of_vhost, "The exchanges of a vhost.", QUERY),
            object_endpoint(one, self.get, "One exchange.", QUERY),
            Endpoint(
                method="PUT",
                path=one,
                handler=self.put,
                summary="Declare an exchange.",
                takes=DEFINITION,
                done=(201, 204),
            ),
            Endpoint(
                method="DELETE",
                path=one,
                handler=self.delete,
                summary="Delete an exchange.",
                query=(IF_UNUSED,),
                done=(204,),
            ),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_vhosts(self.node, request))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, [visible_vhost(self.node, request)])

    async def _send(self, request: web.Request, vhosts: list[Vhost]) -> web.StreamResponse:
        every = ((vhost, exchange) for vhost in vhosts for exchange in list(vhost.exchanges.values()))
        exchanges = [each async for each in at_a_pace(every)]
        stats = stats_for(self.context, request)
        return await send_list(
            request,
            exchanges,
            lambda each: describe(*each) | stats.of_exchange(each[1]),
            lambda each: each[1].name,
            order=lambda each: (each[0].name, each[1].name),
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        """As with RabbitMQ's usual settings, rates are not broken down by channels and queues."""
        vhost = visible_vhost(self.node, request)
        exchange = vhost.find_exchange(exchange_name(request))
        stats = stats_for(self.context, request)
        told = describe(vhost, exchange) | stats.of_exchange(exchange)
        return send_object(request, told | {"incoming": [], "outgoing": []})

    async def put(self, request: web.Request) -> web.StreamResponse:
        vhost, access = entered_vhost(self.node, request)
        given = await fields_in(request, EXPECTED)
        name_in(request, "exchange")
        name = exchange_name(request)
        command = DeclareExchange(
            vhost=vhost.name,
            name=name,
            type=given.text("type", "direct"),
            durable=given.flag("durable", default=False),
            auto_delete=given.flag("auto_delete", default=False),
            internal=given.flag("internal", default=False),
            arguments=given.table("arguments", {}),
        )
        check_may_declare_exchange(access, vhost, command)
        is_new = name not in vhost.exchanges
        await self.context.execute(command)
        return web.Response(status=201 if is_new else 204)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        vhost, access = entered_vhost(self.node, request)
        exchange = vhost.find_exchange(exchange_name(request))
        access.check(Permission.CONFIGURE, "exchange", exchange.name)
        if_unused = request.query.get(IF_UNUSED.name) == "true"
        await self.context.execute(DeleteExchange(vhost=vhost.name, name=exchange.name, if_unused=if_unused))
        return web.Response(status=204)


def describe(vhost: Vhost, exchange: Exchange) -> Row:
    told: Row = {
        "name": exchange.name,
        "vhost": vhost.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
        "user_who_performed_action": "",
    }
    return told if exchange.policy is None else told | {"policy": exchange.policy}
