"""`PUT /api/queues/{vhost}/{queue}/pause` and `…/resume`, as LavinMQ has them: a paused queue takes messages
and delivers none, also after a restart. Users need the permission to configure the queue.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from warren.broker.access import Permission
from warren.broker.commands import PauseQueue, ResumeQueue
from warren.management.auth import allowed_queue
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import Handler
from warren.management.paths import QUEUE, VHOST


class Pausing:
    def __init__(self, context: Context) -> None:
        self.context = context

    def endpoints(self) -> list[Endpoint]:
        return [
            self._endpoint("pause", PauseQueue, "Pause a queue: it takes messages, and delivers none."),
            self._endpoint("resume", ResumeQueue, "Have a paused queue deliver again."),
        ]

    def _endpoint(
        self, verb: str, command: Callable[..., PauseQueue | ResumeQueue], summary: str
    ) -> Endpoint:
        return Endpoint(
            method="PUT",
            path=f"/api/queues/{VHOST}/{QUEUE}/{verb}",
            handler=self._handler(command),
            summary=summary,
            done=(204,),
        )

    def _handler(self, command: Callable[..., PauseQueue | ResumeQueue]) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            queue = allowed_queue(
                self.context.node, request, Permission.CONFIGURE, request.match_info["queue"]
            )
            await self.context.execute(command(vhost=queue.vhost, name=queue.name))
            return web.Response(status=204)

        return handler
