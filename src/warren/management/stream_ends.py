"""`POST /api/streams/{vhost}`: where streams begin and end, many in one answer, and waiting for a change.

    {"queues": ["orders", "payments"], "version": "5f0c…", "wait_ms": 1000}
    {"version": "91ab…", "queues": [
        {"queue": "orders", "type": "stream", "stream_id": "…", "first_offset": 0, "next_offset": 42,
         "base": 1, "bytes": 703}]}

The first line is a request, the rest its answer. `version` is a digest of the answer's `queues`. A client
that sends the version of its last answer can wait for a change: it is answered as soon as the version
differs, or after `wait_ms`. Queues that do not exist are left out, and a queue that is not a stream has only
its name and type. If `WAITERS_MAX` requests wait already, a further one is answered at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from warren.broker.queue import Queue
from warren.broker.stream import stream_of
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest
from warren.management.json_text import ROWS_A_TURN, batches, to_json
from warren.management.names import find_all, head, names_in, object_of_names
from warren.management.paths import VHOST
from warren.management.rights import Right
from warren.management.schema import COUNT, TABLE, TEXT, record, rows
from warren.storage.log_listing import logs_of

WAIT_MS_MAX = 30_000
WAITERS_MAX = 1_000
VERSION_BYTES = 12


class StreamEnds:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.waiters = 0

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="POST",
                path=f"/api/streams/{VHOST}",
                handler=self.tell,
                summary="Where streams begin and end; waits for a change if asked.",
                right=Right.USER,
                takes=record({"queues": rows(TEXT)}, version=TEXT, wait_ms=COUNT),
                gives=record({"version": TEXT, "queues": rows(TABLE)}),
            )
        ]

    async def tell(self, request: web.Request) -> web.StreamResponse:
        given = object_of_names(await request.read())
        names, known, wait_ms = names_in(given), _version_in(given), _wait_in(given)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        while True:
            found = [queue for _, queue in await find_all(self.context.node, request, names)]
            changed = asyncio.Event()
            with _watched(found, changed):
                found_rows = await _rows(self.context, [queue for queue in found if queue is not None])
                version = hashlib.blake2b(found_rows, digest_size=VERSION_BYTES).hexdigest()
                if version != known or not await self._waited(changed, until - loop.time()):
                    body = b'{"version":"%b","queues":[%b]}' % (version.encode(), found_rows)
                    return web.Response(body=body, content_type="application/json")

    async def _waited(self, changed: asyncio.Event, seconds: float) -> bool:
        """Wait for a change. False if there was none in time, or if too many wait already."""
        if seconds <= 0 or self.waiters >= WAITERS_MAX:
            return False
        self.waiters += 1
        try:
            async with asyncio.timeout(seconds):
                return await changed.wait()
        except TimeoutError:
            return False
        finally:
            self.waiters -= 1


@contextmanager
def _watched(queues: Sequence[Queue | None], changed: asyncio.Event) -> Iterator[None]:
    """A stream that is named several times is watched once."""
    streams = {stream for stream in map(stream_of, filter(None, queues)) if stream is not None}
    for stream in streams:
        stream.watchers.append(changed.set)
    try:
        yield
    finally:
        for stream in streams:
            stream.watchers.remove(changed.set)


async def _rows(context: Context, queues: Iterable[Queue]) -> bytes:
    pieces: list[bytes] = []
    for batch in batches(queues, ROWS_A_TURN):
        if pieces:
            await asyncio.sleep(0)
        pieces.append(to_json([_row(context, queue) for queue in batch])[1:-1])
    return b",".join(pieces)


def _row(context: Context, queue: Queue) -> dict[str, object]:
    """`base` and `bytes` say where the stream ends: the last segment, and how many of its bytes are safe."""
    stream = stream_of(queue)
    if stream is None:
        return head(context, queue)
    row = head(context, queue) | {"first_offset": stream.first_offset, "next_offset": stream.next_offset}
    for _part, log in logs_of(queue):
        for segment in reversed(log.segments):
            size = log.safe_bytes(segment)
            if size:
                return row | {"base": segment.base, "bytes": size}
    return row


def _version_in(given: dict[str, Any]) -> str:
    version = given.get("version", "")
    if not isinstance(version, str):
        raise BadRequest("expected the version of an earlier answer")
    return version


def _wait_in(given: dict[str, Any]) -> int:
    wait_ms = given.get("wait_ms", 0)
    if not isinstance(wait_ms, int) or isinstance(wait_ms, bool) or wait_ms < 0:
        raise BadRequest("expected wait_ms as milliseconds, from 0 on")
    return min(wait_ms, WAIT_MS_MAX)
