"""`/api/feature-flags` and `/api/deprecated-features`, for tools that look there before they use a feature.

Nothing here is to be switched on, and nothing is deprecated: what RabbitMQ calls a feature is there or not.
"""

from __future__ import annotations

from functools import partial

from aiohttp import web

from warren.management.columns import COLUMNS, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest
from warren.management.paths import NAME
from warren.management.rights import Right
from warren.management.schema import TABLE, rows

FLAGS = {
    "drop_unroutable_metric": "Count messages that are dropped because no queue is bound",
    "empty_basic_get_metric": "Count basic.get that finds no message",
    "implicit_default_bindings": "Bindings of queues to the default exchange are not stored",
    "quorum_queue": "Queues of type quorum",
    "stream_queue": "Queues of type stream",
    "user_limits": "Limits of connections and channels of a user",
    "virtual_host_metadata": "Descriptions and tags of virtual hosts",
}
"""RabbitMQ's names of what this broker does, and what they mean."""


class Features:
    def __init__(self, _context: Context) -> None:
        pass

    def endpoints(self) -> list[Endpoint]:
        get = partial(Endpoint, method="GET", query=(COLUMNS,), gives=rows(TABLE))
        return [
            get(
                path="/api/feature-flags",
                handler=self.flags,
                summary="RabbitMQ's feature flags that stand for what this broker does.",
                right=Right.ADMINISTRATOR,
            ),
            Endpoint(
                method="PUT",
                path=f"/api/feature-flags/{NAME}/enable",
                handler=self.enable,
                summary="Enable a feature flag: all that there are, are enabled.",
                right=Right.ADMINISTRATOR,
                done=(204,),
            ),
            get(path="/api/deprecated-features", handler=self.deprecated, summary="There are none."),
            get(path="/api/deprecated-features/used", handler=self.deprecated, summary="There are none."),
        ]

    async def flags(self, request: web.Request) -> web.StreamResponse:
        return send_object(
            request,
            [
                {
                    "name": name,
                    "desc": text,
                    "doc_url": "",
                    "state": "enabled",
                    "stability": "required",
                    "provided_by": "rabbit",
                }
                for name, text in FLAGS.items()
            ],
        )

    async def enable(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in FLAGS:
            raise BadRequest(f"unsupported: there is no feature flag '{name}'")
        return web.Response(status=204)

    async def deprecated(self, request: web.Request) -> web.StreamResponse:
        return send_object(request, [])
