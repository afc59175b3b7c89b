"""Tells of everything that users change over the API, or try to, as events."""

from __future__ import annotations

import re
from urllib.parse import unquote

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from warren.broker.events import AdministrativeAction, Events
from warren.management.errors import Handler
from warren.management.rights import USER

READING = (hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS)
CLIENT_GONE = 499  # told as the status if the client hung up before the answer: the change may be made
SECRETS_BELOW = re.compile("hash_password(?:/|%2F)")  # in a path: what follows is a password
IS_ACCESS_TO_MESSAGES = web.RequestKey("IS_ACCESS_TO_MESSAGES", bool)
"""Set for endpoints that any user may use, with permissions as over AMQP: that is no administration."""


def tell_of_actions(events: Events) -> Middleware:
    """Whoever is not logged in is not told of here: a login that failed is an event of its own."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        status = CLIENT_GONE
        try:
            response = await handler(request)
            status = response.status
        finally:
            if _is_told(request):
                events.emit(_action(request, status))
        return response

    return middleware


def _is_told(request: web.Request) -> bool:
    return request.method not in READING and USER in request and IS_ACCESS_TO_MESSAGES not in request


def _action(request: web.Request, status: int) -> AdministrativeAction:
    return AdministrativeAction(request[USER].name, request.remote or "", action_of(request), status)


def action_of(request: web.Request) -> str:
    """What is asked for, without any secret."""
    return f"{request.method} {_shown(request.rel_url.raw_path)}"


def _shown(path: str) -> str:
    """The path without percent-encoding, but for slashes in names: they would make two names of one."""
    parts = (unquote(part, errors="surrogateescape") for part in path.split("/"))
    shown = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
    secret = SECRETS_BELOW.search(shown)
    return shown if secret is None else f"{shown[: secret.end()]}…"
