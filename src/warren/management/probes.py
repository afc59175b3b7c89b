"""`/health/live` and `/health/ready`: for supervisors that have no user, such as Kubernetes. They tell only
whether the broker answers, and whether it takes messages. `/api/health/checks` tells more.
"""

from __future__ import annotations

from aiohttp import web

from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.json_text import json_response
from warren.management.rights import Right
from warren.management.schema import TEXT, record

UNAVAILABLE = 503
STATUS = record({"status": TEXT})


class Probes:
    def __init__(self, context: Context) -> None:
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path="/health/live",
                handler=self.live,
                summary="Whether the broker answers.",
                right=Right.PUBLIC,
                gives=STATUS,
            ),
            Endpoint(
                method="GET",
                path="/health/ready",
                handler=self.ready,
                summary="Whether the broker takes messages: no alarm blocks publishers.",
                right=Right.PUBLIC,
                gives=STATUS,
                refuses=(UNAVAILABLE,),
            ),
        ]

    async def live(self, _request: web.Request) -> web.StreamResponse:
        return json_response({"status": "ok"})

    async def ready(self, _request: web.Request) -> web.StreamResponse:
        if self.node.alarms:
            reason = f"alarms: {', '.join(sorted(self.node.alarms))}"
            return json_response({"error": "not_ready", "reason": reason}, status=UNAVAILABLE)
        return json_response({"status": "ok"})
