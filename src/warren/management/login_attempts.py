"""`/api/auth/attempts/{node}`: how often clients tried to log in, by protocol, and by address and user."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from warren.broker.login_attempts import Attempts
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.json_text import json_response, send_rows
from warren.management.paths import NAME, check_node
from warren.management.rights import Right
from warren.management.schema import COUNT, TEXT, record, rows

COUNTS = {"auth_attempts": COUNT, "auth_attempts_succeeded": COUNT, "auth_attempts_failed": COUNT}
BY_PROTOCOL = record({"protocol": TEXT, **COUNTS})
BY_SOURCE = record({"protocol": TEXT, "remote_address": TEXT, "username": TEXT, **COUNTS})


class LoginAttemptsOfNode:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        path = f"/api/auth/attempts/{NAME}"
        get = partial(Endpoint, method="GET", right=Right.MONITORING)
        delete = partial(Endpoint, method="DELETE", right=Right.MONITORING, done=(204,))
        return [
            get(path=path, handler=self.by_protocol, summary="Logins by protocol.", gives=rows(BY_PROTOCOL)),
            get(
                path=f"{path}/source",
                handler=self.by_source,
                summary="Logins by protocol, address and user.",
                gives=rows(BY_SOURCE),
            ),
            delete(path=path, handler=self.reset, summary="Count logins from 0 again."),
            delete(path=f"{path}/source", handler=self.reset, summary="Count logins from 0 again."),
        ]

    async def by_protocol(self, request: web.Request) -> web.StreamResponse:
        check_node(self.node, request)
        counted = self.node.attempts.by_protocol
        return json_response([{"protocol": each, **_counts(attempts)} for each, attempts in counted.items()])

    async def by_source(self, request: web.Request) -> web.StreamResponse:
        check_node(self.node, request)
        told = (
            {
                "protocol": source.protocol,
                "remote_address": source.remote_address,
                "username": source.user,
                **_counts(attempts),
            }
            for source, attempts in list(self.node.attempts.by_source.items())
        )
        return await send_rows(request, told)

    async def reset(self, request: web.Request) -> web.StreamResponse:
        check_node(self.node, request)
        self.node.attempts.reset()
        return web.Response(status=204)


def _counts(attempts: Attempts) -> dict[str, int]:
    return {
        "auth_attempts": attempts.succeeded + attempts.failed,
        "auth_attempts_succeeded": attempts.succeeded,
        "auth_attempts_failed": attempts.failed,
    }
