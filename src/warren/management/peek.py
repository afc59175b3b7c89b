"""`GET /api/queues/{vhost}/{queue}/messages`: looking at the messages of a queue, where they are.

Nothing is taken, no delivery is counted, and consumers notice nothing. Users need the permission to read the
queue, as to consume from it.

    offset     how many messages to pass by first, from the head; in a stream, the offset to begin at
    position   the position of a message in its queue, as each is shown with: begin there, or behind it. A
               client that asks for a position above the last it was shown looks on from there
    count      how many messages to show, at most
    selector   a condition, as consumers give it in `x-selector`: only messages that meet it are shown
    encoding   `auto` or `base64`, as of `…/get`
    truncate   how many bytes of each body to show
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from aiohttp import web

from warren.broker.entry import Entry
from warren.broker.queue import Queue
from warren.broker.selector import Selector, SelectorError, compile_selector
from warren.broker.walk import Walk
from warren.management.auth import readable_queue
from warren.management.context import Context
from warren.management.digits import number_of
from warren.management.endpoint import Endpoint, Parameter
from warren.management.errors import BadRequest
from warren.management.json_text import send_pieces, to_json
from warren.management.paths import QUEUE, VHOST
from warren.management.schema import COUNT, TEXT, one_of, rows
from warren.management.shown_message import AUTO, BASE64, MESSAGE, shown

COUNT_USUAL, COUNT_MAX = 10, 10_000
TRUNCATE_USUAL, TRUNCATE_MAX = 50_000, 1024 * 1024
LOOKS_A_TURN = 200
BYTES_A_TURN = 256 * 1024  # of bodies that are shown in one turn
NUMBER_MAX = 2**63 - 1
QUERY = (
    Parameter("offset", COUNT, "How many messages to pass by; in a stream, the offset to begin at."),
    Parameter("position", COUNT, "The position to begin at."),
    Parameter("count", COUNT, f"How many messages to show; {COUNT_USUAL} if not given."),
    Parameter("selector", TEXT, "A condition that messages have to meet, as in `x-selector`."),
    Parameter("encoding", one_of(AUTO, BASE64), "How bodies are shown; `auto`: as text if they are UTF-8."),
    Parameter("truncate", COUNT, f"How many bytes of a body to show; {TRUNCATE_USUAL} if not given."),
)


class Peek:
    def __init__(self, context: Context) -> None:
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path=f"/api/queues/{VHOST}/{QUEUE}/messages",
                handler=self.get,
                summary="Messages of a queue, which stay there untouched.",
                query=QUERY,
                gives=rows(MESSAGE),
            )
        ]

    async def get(self, request: web.Request) -> web.StreamResponse:
        queue = readable_queue(self.node, request)
        query = PeekQuery(request)
        above = query.above(queue)
        return await send_pieces(request, _pieces(queue, query, above), "application/json")


class PeekQuery:
    """What a request asks for."""

    def __init__(self, request: web.Request) -> None:
        query = request.query
        self.offset = number_in(query.get("offset"), "offset", 0)
        self.position = number_in(query.get("position"), "position", 0)
        self.count = min(number_in(query.get("count"), "count", COUNT_USUAL), COUNT_MAX)
        self.truncate = min(number_in(query.get("truncate"), "truncate", TRUNCATE_USUAL), TRUNCATE_MAX)
        self.encoding = query.get("encoding", AUTO)
        self.selector = selector_in(query.get("selector"))
        if self.encoding not in {AUTO, BASE64}:
            raise BadRequest(f"encoding: expected {AUTO} or {BASE64}")

    def above(self, queue: Queue) -> int:
        """The position behind which to look. A stream's offsets lead there, so there is nothing to pass."""
        if not queue.lets_go and self.offset:
            self.position, self.offset = self.offset + 1, 0
        return max(self.position - 1, 0)


def number_in(text: str | None, name: str, usual: int) -> int:
    if text is None:
        return usual
    number = number_of(text)
    if number is None or number > NUMBER_MAX:
        raise BadRequest(f"{name}: expected a number from 0 on")
    return number


def selector_in(text: str | None) -> Selector | None:
    if text is None:
        return None
    try:
        return compile_selector(text)
    except SelectorError as error:
        raise BadRequest(f"selector: {error}") from None


async def _pieces(queue: Queue, query: PeekQuery, above: int) -> AsyncIterator[bytes]:
    """The answer, a part of it in each turn of the event loop."""
    walk, before = queue.walk(query.selector, above), b"["
    looking = Looking(walk, to_pass=query.offset, left=query.count)
    try:
        while not looking.is_over and not queue.deleted:
            rows = [_row(queue, entry, query) for entry in looking.look(query.truncate)]
            if rows:
                yield before + to_json(rows)[1:-1]
                before = b","
            await asyncio.sleep(0)
    finally:
        walk.end()
    yield b"[]" if before == b"[" else b"]"


def _row(queue: Queue, entry: Entry, query: PeekQuery) -> dict[str, object]:
    row = shown(entry, queue.message_count, encoding=query.encoding, truncate=query.truncate)
    return row | {"position": entry.position}


@dataclass
class Looking:
    """How far the search for the messages to be shown has come."""

    walk: Walk
    to_pass: int  # messages to pass by first
    left: int  # messages to show

    @property
    def is_over(self) -> bool:
        return self.walk.is_over or not self.left

    def look(self, truncate: int) -> Iterator[Entry]:
        """The messages of one turn. Those with large bodies are fewer."""
        size = 0
        self.walk.begin_turn(LOOKS_A_TURN)
        while self.left and size < BYTES_A_TURN and (entry := self.walk.find()) is not None:
            self.walk.pass_by()
            if self.to_pass:
                self.to_pass -= 1
                continue
            self.left -= 1
            size += min(entry.size, truncate)
            yield entry
