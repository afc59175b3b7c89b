"""Sending JSON: AMQP values that JSON does not have, and long lists in several turns of the loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import TypeVar

import orjson
from aiohttp import web

from warren.server.pace import TURN_SECONDS

ROWS_A_TURN = 200
STALL_SECONDS_MAX = 60.0
UNDER_WAY = web.RequestKey("UNDER_WAY", web.StreamResponse)

T = TypeVar("T")


def to_json(value: object) -> bytes:
    """Bytes of a name that are not UTF-8 become question marks."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:  # such a name, or an integer of more than 64 bits, which orjson does not take
        return ENCODER.encode(value).encode("utf-8", "replace")


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{type(value).__name__} cannot be JSON")


ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)


def json_response(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=to_json(value), status=status, headers=headers, content_type="application/json", charset="utf-8"
    )


def batches(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """The rows in batches of this size; smaller ones if rows take long to make, so that a batch is made in
    `TURN_SECONDS`, plus one row.
    """
    rest = iter(rows)
    while batch := list(_some(rest, size)):
        yield batch


def _some(rows: Iterator[T], size: int) -> Iterator[T]:
    until = time.perf_counter() + TURN_SECONDS
    for row in islice(rows, size):
        yield row
        if time.perf_counter() > until:
            return


async def send_rows(
    request: web.Request, rows: Iterable[object], head: bytes = b"", tail: bytes = b""
) -> web.StreamResponse:
    """Send a list, between `head` and `tail`. Each row is made just before it is sent, in each turn of the
    loop at most `ROWS_A_TURN`.
    """

    async def pieces() -> AsyncIterator[bytes]:
        before = head + b"["
        for batch in batches(map(to_json, rows), ROWS_A_TURN):
            yield before + b",".join(batch)
            before = b","
            await asyncio.sleep(0)
        yield (b"" if before == b"," else before) + b"]" + tail

    return await send_pieces(request, pieces(), "application/json")


async def send_pieces(
    request: web.Request,
    pieces: AsyncIterator[bytes],
    content_type: str,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Send an answer piece by piece. An error before the first piece can still be answered."""
    first = await anext(pieces)
    response = web.StreamResponse(headers={"Content-Type": content_type, **(headers or {})})
    await begin(request, response)
    if request.method != "HEAD":
        await write(response, first)
        async for piece in pieces:
            await write(response, piece)
    await response.write_eof()
    return response


async def begin(request: web.Request, response: web.StreamResponse) -> None:
    """Send the head of the answer. From here on an error cannot be answered any more."""
    request[UNDER_WAY] = response
    await response.prepare(request)


def answer_under_way(request: web.Request) -> web.StreamResponse | None:
    return request.get(UNDER_WAY)


def forget_answer(request: web.Request) -> None:
    """The request has ended. If its client has gone, its answer still refers to it: without the way back both
    are freed without the garbage collector.
    """
    request.pop(UNDER_WAY, None)


async def write(response: web.StreamResponse, data: bytes | memoryview) -> None:
    """Write as fast as the client reads. Raises if it reads nothing for `STALL_SECONDS_MAX`."""
    try:
        async with asyncio.timeout(STALL_SECONDS_MAX):
            await response.write(data)
    except TimeoutError:
        raise ConnectionAbortedError("the client has stopped reading") from None
