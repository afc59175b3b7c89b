"""Headers that every answer has: what browsers may do with it, and which other sites may ask for it.

CORS is off unless the setting `http_cors_origins` names origins, as RabbitMQ's `cors.allow_origins` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from warren.management.auth import PROTECTED
from warren.management.errors import Handler

ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
FOR_DATA = "default-src 'none'; frame-ancestors 'none'"
FOR_PAGES = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HSTS = "max-age=31536000"
ANY_ORIGIN = "*"
METHODS = "GET, HEAD, POST, PUT, DELETE, OPTIONS"

Prepare: TypeAlias = Callable[[web.Request, web.StreamResponse], Awaitable[None]]


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    headers = response.headers
    for name, value in ALWAYS.items():
        headers.setdefault(name, value)
    is_page = response.content_type == "text/html"
    headers.setdefault("Content-Security-Policy", FOR_PAGES if is_page else FOR_DATA)
    if request.path.startswith(PROTECTED):
        headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    if request.secure:
        headers.setdefault("Strict-Transport-Security", HSTS)


class Cors:
    """Lets pages of some origins use the API."""

    def __init__(self, origins: tuple[str, ...], max_age_seconds: int) -> None:
        self.origins = origins
        self.max_age_seconds = max_age_seconds

    def allows(self, request: web.Request) -> bool:
        origin = request.headers.get(hdrs.ORIGIN)
        return origin is not None and (origin in self.origins or ANY_ORIGIN in self.origins)

    def may_connect(self, request: web.Request) -> bool:
        """Whether a WebSocket may be opened. Browsers let every page try, and leave it to us to refuse: they
        tell the page's origin, which other clients do not have.
        """
        origin = request.headers.get(hdrs.ORIGIN)
        return origin is None or origin.partition("://")[2] == request.host or self.allows(request)

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Only an origin that is named may use what the browser knows of the user, not every site."""
        if not self.origins:
            return
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)
        if self.allows(request):
            origin = request.headers[hdrs.ORIGIN]
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
            if origin in self.origins:
                response.headers[hdrs.ACCESS_CONTROL_ALLOW_CREDENTIALS] = "true"

    def answer_preflight(self) -> Middleware:
        """A browser asks before it sends a request for a page, and sends no credentials with that."""

        @web.middleware
        async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
            is_preflight = hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers
            if request.method != hdrs.METH_OPTIONS or not is_preflight or not self.allows(request):
                return await handler(request)
            headers = {
                hdrs.ACCESS_CONTROL_ALLOW_METHODS: METHODS,
                hdrs.ACCESS_CONTROL_MAX_AGE: str(self.max_age_seconds),
            }
            wanted = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS)
            if wanted is not None:
                headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = wanted
            return web.Response(status=204, headers=headers)

        return middleware
