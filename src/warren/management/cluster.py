"""The cluster as a whole: its name, RabbitMQ's list of extensions, rebalancing of queues, and forgetting old
samples.
"""

from __future__ import annotations

from aiohttp import web

from warren.broker.commands import SetGlobalParameter
from warren.broker.parameters import CLUSTER_NAME
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.fields import fields_in
from warren.management.json_text import json_response
from warren.management.paths import NAME, check_node
from warren.management.rights import Right
from warren.management.schema import TABLE, TEXT, record, rows


class Cluster:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            object_endpoint(
                "/api/cluster-name", self.get_name, "The name of the cluster.", gives=record({"name": TEXT})
            ),
            Endpoint(
                method="PUT",
                path="/api/cluster-name",
                handler=self.put_name,
                summary="Rename the cluster.",
                right=Right.ADMINISTRATOR,
                takes=record({"name": TEXT}),
                done=(204,),
            ),
            Endpoint(
                method="GET",
                path="/api/extensions",
                handler=self.extensions,
                summary="Extensions of RabbitMQ's management pages: there are none.",
                gives=rows(TABLE),
            ),
            *(
                Endpoint(
                    method="DELETE",
                    path=path,
                    handler=self.reset,
                    summary="Forget all samples of the past, from which rates are told.",
                    right=Right.ADMINISTRATOR,
                    done=(204,),
                )
                for path in ("/api/reset", f"/api/reset/{NAME}")
            ),
            Endpoint(
                method="POST",
                path="/api/rebalance/queues",
                handler=self.rebalance,
                summary="Spread queues over the nodes: with one node there is nothing to do.",
                right=Right.ADMINISTRATOR,
                done=(204,),
            ),
        ]

    async def get_name(self, request: web.Request) -> web.StreamResponse:
        return send_object(request, {"name": self.node.cluster_name})

    async def put_name(self, request: web.Request) -> web.StreamResponse:
        given = await fields_in(request, '{"name": name}')
        await self.context.execute(SetGlobalParameter(name=CLUSTER_NAME, value=given.text("name")))
        return web.Response(status=204)

    async def extensions(self, request: web.Request) -> web.StreamResponse:
        return json_response([])

    async def reset(self, request: web.Request) -> web.StreamResponse:
        if "name" in request.match_info:
            check_node(self.node, request)
        await self.context.broker.sampler.forget()
        return web.Response(status=204)

    async def rebalance(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=204)
