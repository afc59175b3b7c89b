"""`POST /api/queues/{vhost}/{queue}/get`: take messages out of a queue, or look at them.

`ackmode` says what becomes of the messages, all at once when the last one was got:

    ack_requeue_true, reject_requeue_true    they return to their places, as redelivered
    ack_requeue_false                        they are gone
    reject_requeue_false                     they are rejected: dead-lettered, if the queue's rules say so
"""

from __future__ import annotations

import asyncio
import base64
import codecs
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from aiohttp import web

from warren.amqp.errors import ResourceLocked
from warren.amqp.properties import decode_properties
from warren.broker.access import Permission
from warren.broker.client import Origin
from warren.broker.entry import Entry
from warren.broker.node import Node
from warren.broker.queue import Hold, Queue
from warren.broker.turns import TooMuchForATurn
from warren.broker.vhost import check_here
from warren.management.auth import entered_vhost
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest
from warren.management.fields import Fields, fields_in
from warren.management.json_text import send_pieces, to_json
from warren.management.listing import Row
from warren.management.message_properties import PROPERTIES, properties_shown
from warren.management.paths import QUEUE, VHOST
from warren.management.publication import origin_of
from warren.management.schema import COUNT, TEXT, one_of, record, rows
from warren.management.shown_message import AUTO, BASE64, STRING
from warren.session.chores import GIVE_BACK_WORK
from warren.session.deliveries import with_delivery_count

MESSAGES_MAX = 10_000  # in one answer, which may have fewer messages than were asked for
BODY_BYTES_MAX = 128 * 1024 * 1024  # of all messages in one answer, plus one message
GOT_A_TURN = 100
PIECE_BYTES = 3 * 16 * 1024  # of a payload, in a turn; three bytes are four characters of base64
GONE = "ack_requeue_false"
AFTERWARDS: dict[str, Callable[[Queue, Entry], None]] = {  # what becomes of a message that is not gone
    "ack_requeue_true": lambda queue, entry: queue.take_back(entry),
    "reject_requeue_true": lambda queue, entry: queue.requeue(entry),
    "reject_requeue_false": lambda queue, entry: queue.reject(entry),
}
EXPECTED = '{"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}'


@dataclass(frozen=True)
class Wish:
    """What the body of a request asks for."""

    count: int
    ackmode: str
    encoding: str
    truncate: int | None  # payloads are cut off behind so many bytes

    @classmethod
    def of(cls, given: Fields) -> Wish:
        ackmode, encoding = given.text("ackmode"), given.text("encoding")
        if ackmode != GONE and ackmode not in AFTERWARDS:
            raise BadRequest(f"ackmode: {ackmode!r} is none of {', '.join((GONE, *AFTERWARDS))}")
        if encoding not in {AUTO, BASE64}:
            raise BadRequest("Unsupported encoding. Please use auto or base64.")
        truncate = given.count("truncate") if "truncate" in given else None
        return cls(given.count("count"), ackmode, encoding, truncate)


@dataclass
class Got:
    """The messages that were got so far, and their rows without the payloads."""

    entries: list[Entry] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    body_bytes: int = 0

    def add(self, queue: Queue, entry: Entry) -> None:
        message = entry.message
        self.entries.append(entry)
        self.body_bytes += len(message.body)
        self.rows.append(
            {
                "payload_bytes": len(message.body),
                "redelivered": entry.delivery_count > 0,
                "exchange": message.exchange_name,
                "routing_key": message.key,
                "message_count": queue.message_count,
                "properties": properties_shown(decode_properties(with_delivery_count(entry))),
            }
        )


class Getting:
    def __init__(self, context: Context) -> None:
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="POST",
                path=f"/api/queues/{VHOST}/{QUEUE}/get",
                handler=self.get,
                summary="Get messages from a queue; `ackmode` says what becomes of them.",
                takes=record(
                    {"count": COUNT, "ackmode": one_of(GONE, *AFTERWARDS), "encoding": one_of(AUTO, BASE64)},
                    truncate=COUNT,
                ),
                gives=rows(
                    record(
                        {
                            "payload": TEXT,
                            "payload_encoding": one_of(STRING, BASE64),
                            "properties": PROPERTIES,
                        }
                    )
                ),
            )
        ]

    async def get(self, request: web.Request) -> web.StreamResponse:
        vhost, access = entered_vhost(self.node, request)
        name = request.match_info["queue"]
        access.check(Permission.READ, "queue", name)
        wish = Wish.of(await fields_in(request, EXPECTED))
        queue = vhost.queue_for(None, name)
        if queue.rules.single_active_consumer:
            raise ResourceLocked(f"cannot obtain access to {queue.what}: it has a single active consumer")
        got = await get_messages(self.node, queue, wish, origin_of(request))
        return await send_pieces(request, _pieces(got, wish), "application/json")


async def get_messages(node: Node, queue: Queue, wish: Wish, origin: Origin) -> Got:
    """Get messages, and do with them what the wish says; also if the client hangs up meanwhile."""
    got = Got()
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        await _get_all(node, queue, wish, origin, got)
    finally:
        steps = _settling(queue, got.entries, wish.ackmode)
        node.turns.spread(steps, lambda: None if done.done() else done.set_result(None))
        node.end_turn()
    await done
    return got


def _settling(queue: Queue, entries: list[Entry], ackmode: str) -> Iterator[int]:
    """Meanwhile the queue delivers nothing, so that messages which return go out in order."""
    settle = AFTERWARDS.get(ackmode)
    if settle is None:
        return
    hold = Hold([queue])
    try:
        for entry in entries:
            settle(queue, entry)
            yield GIVE_BACK_WORK
    finally:
        hold.end()


async def _get_all(node: Node, queue: Queue, wish: Wish, origin: Origin, got: Got) -> None:
    node.clock.refresh()
    while len(got.entries) < min(wish.count, MESSAGES_MAX) and got.body_bytes < BODY_BYTES_MAX:
        if queue.deleted:
            if not got.entries:
                check_here(queue)
            return
        try:
            entry = queue.get(wish.ackmode == GONE)
        except TooMuchForATurn:
            await asyncio.sleep(0)
            continue
        if entry is None:
            return
        got.add(queue, entry)
        if node.events.delivered:
            queue.tell_delivered(entry, origin, "", len(got.entries))
        if len(got.entries) % GOT_A_TURN == 0:
            await asyncio.sleep(0)


# --- the answer ---


async def _pieces(got: Got, wish: Wish) -> AsyncIterator[bytes]:
    """The answer in pieces of at least `PIECE_BYTES`, one in a turn."""
    gathered, before = bytearray(b"["), b""
    for entry, row in zip(got.entries, got.rows, strict=True):
        gathered += before + to_json(row)[:-1] + b","
        async for piece in _payload(entry.message.body[: wish.truncate], wish.encoding):
            gathered += piece
            if len(gathered) >= PIECE_BYTES:
                yield bytes(gathered)
                gathered.clear()
                await asyncio.sleep(0)
        gathered += b"}"
        before = b","
    yield bytes(gathered + b"]")


async def _payload(body: bytes, encoding: str) -> AsyncIterator[bytes]:
    """The fields `payload` and `payload_encoding`, with a long payload in pieces."""
    is_text = encoding == AUTO and await _is_text(body)
    yield b'"payload_encoding":"%b","payload":"' % (STRING if is_text else BASE64).encode()
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(body), PIECE_BYTES):
        piece = body[start : start + PIECE_BYTES]
        yield to_json(decoder.decode(piece))[1:-1] if is_text else base64.b64encode(piece)
    yield b'"'


async def _is_text(body: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(body), PIECE_BYTES):
            decoder.decode(body[start : start + PIECE_BYTES])
            if start:
                await asyncio.sleep(0)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
