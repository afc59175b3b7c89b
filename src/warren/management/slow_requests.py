"""Measures the steps of requests, so that the log tells which request made a turn of the event loop slow."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Middleware

from warren.management.audit import action_of
from warren.management.errors import Handler
from warren.server.measured import Measured
from warren.server.watchdog import Watchdog


def measure(watchdog: Watchdog) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await Measured(handler(request), watchdog, lambda: {"what": f"HTTP {action_of(request)}"})

    return middleware
