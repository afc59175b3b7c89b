"""`/api/log`: the newest lines of the broker's log. RabbitMQ has nothing like it.

    GET /api/log?after=41&lines=100&wait_ms=5000
    {"last": 42, "lines": [{"number": 42, "timestamp": "…", "level": "info", "event": "…"}]}

A client that asks for what comes after the last line that it has is answered as soon as there is one, or
after `wait_ms`. Only the last thousand lines are kept; numbers tell whether some were missed.
"""

from __future__ import annotations

from aiohttp import web

from warren.management.context import Context
from warren.management.endpoint import Endpoint, Parameter
from warren.management.errors import BadRequest
from warren.management.json_text import json_response
from warren.management.listing import whole
from warren.management.rights import Right
from warren.management.schema import COUNT, TABLE, record, rows
from warren.server.log_tail import LINES_MAX

WAIT_MS_MAX = 5_000
WAITERS_MAX = 100


class LogLines:
    def __init__(self, context: Context) -> None:
        self.broker = context.broker
        self.waiters = 0  # requests that wait for a line; beyond `WAITERS_MAX` they are answered at once

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/log",
                handler=self.get,
                summary="The newest lines of the log; waits for the next one if asked.",
                right=Right.ADMINISTRATOR,
                query=(
                    Parameter("after", COUNT, "Only lines with a higher number."),
                    Parameter("lines", COUNT, f"At most so many lines; {LINES_MAX} if not given."),
                    Parameter("wait_ms", COUNT, f"How long to wait for a line, at most {WAIT_MS_MAX}."),
                ),
                gives=record({"last": COUNT, "lines": rows(TABLE)}),
            )
        ]

    async def get(self, request: web.Request) -> web.StreamResponse:
        tail = self.broker.log_tail
        after, lines = _count(request, "after", 0), _count(request, "lines", LINES_MAX)
        wait_ms = min(_count(request, "wait_ms", 0), WAIT_MS_MAX)
        if wait_ms and self.waiters < WAITERS_MAX:
            self.waiters += 1
            try:
                await tail.wait(after, wait_ms / 1000)
            finally:
                self.waiters -= 1
        return json_response({"last": tail.last, "lines": tail.after(after, lines)})


def _count(request: web.Request, name: str, default: int) -> int:
    count = whole(request.query.get(name, str(default)), name)
    if count < 0:
        raise BadRequest(f"{name}: {count} is negative")
    return count
