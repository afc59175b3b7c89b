"""`/api/segments`: the segments of a queue or stream, and their bytes, for users who may read the queue.

A client can ask for the queues that it may read. It asks for the list of a queue's segments, and then for
each segment as many bytes as the list says. Those bytes are whole records that are safe on disk; bytes beyond
them are never served. A segment that was deleted since is answered with 404.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from aiohttp import hdrs, web

from warren.broker.queue import Queue
from warren.broker.rules import queue_type
from warren.broker.stream import stream_of
from warren.management.auth import readable_queue, readable_queues
from warren.management.byte_range import parse_range
from warren.management.context import Context
from warren.management.digits import DIGITS_MAX, number_of
from warren.management.endpoint import Endpoint, Parameter
from warren.management.errors import BadRequest, ObjectNotFound
from warren.management.file_reader import open_file, read_some
from warren.management.json_text import batches, begin, send_pieces, send_rows, to_json, write
from warren.management.names import find_all, head, names_in, object_of_names
from warren.management.paths import QUEUE, VHOST
from warren.management.rights import Right
from warren.management.schema import BYTES, TABLE, TEXT, record, rows
from warren.storage.log_listing import ListedSegment, Log, describe, find_segment, logs_of
from warren.storage.segment import Segment

SEGMENTS_A_TURN = 128
BASE_MAX = 2**64 - 1


@dataclass
class OffsetRange:
    """The range of the offsets in the segments that were listed."""

    first: int | None = None
    next: int = 0

    def add(self, segment: ListedSegment) -> None:
        if self.first is None or segment.base - 1 < self.first:
            self.first = segment.base - 1
        self.next = max(self.next, segment.ends.last)


class Segments:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.listing = context.store.listing

    def endpoints(self) -> list[Endpoint]:
        path = f"/api/segments/{VHOST}/{QUEUE}"
        return [
            Endpoint(
                method="GET",
                path=f"/api/segments/{VHOST}",
                handler=self.list_queues,
                summary="The queues that the user may read.",
                right=Right.USER,
                gives=rows(record({"name": TEXT, "type": TEXT})),
            ),
            Endpoint(
                method="POST",
                path=f"/api/segments/{VHOST}",
                handler=self.list_many,
                summary="The segments of several queues.",
                right=Right.USER,
                takes=record({"queues": rows(TEXT)}),
                gives=rows(TABLE),
            ),
            Endpoint(
                method="GET",
                path=path,
                handler=self.list_all,
                summary="The segments of a queue.",
                right=Right.USER,
                gives=TABLE,
            ),
            Endpoint(
                method="GET",
                path=path + "/{base}",
                handler=self.read,
                summary="The bytes of a segment that are safe, or a range of them.",
                right=Right.USER,
                query=(
                    Parameter("part", TEXT, "The part of the log, such as `priority-3`."),
                    Parameter("stream_id", TEXT, "The identity of the stream that was listed."),
                ),
                gives=BYTES,
                content_type="application/octet-stream",
                refuses=(416,),
            ),
        ]

    # --- the lists ---

    async def list_queues(self, request: web.Request) -> web.StreamResponse:
        queues = readable_queues(self.context.node, request)
        return await send_rows(request, ({"name": q.name, "type": queue_type(q.arguments)} for q in queues))

    async def list_all(self, request: web.Request) -> web.StreamResponse:
        queue = readable_queue(self.context.node, request)
        return await send_pieces(request, self._pieces(queue), "application/json")

    async def list_many(self, request: web.Request) -> web.StreamResponse:
        """The answer of `list_all` for each queue that the body names, if it exists."""
        names = names_in(object_of_names(await request.read()))
        queues = [
            queue for _, queue in await find_all(self.context.node, request, names) if queue is not None
        ]
        return await send_pieces(request, self._pieces_of(queues), "application/json")

    async def _pieces_of(self, queues: list[Queue]) -> AsyncIterator[bytes]:
        before = b"["
        for queue in queues:
            async for piece in self._pieces(queue):
                yield before + piece
                before = b""
            before = b","
        yield b"[]" if before == b"[" else b"]"

    async def _pieces(self, queue: Queue) -> AsyncIterator[bytes]:
        """The list of a queue's segments, `SEGMENTS_A_TURN` in a turn, since there may be thousands. The
        range of offsets is known once all were listed, so it comes last.
        """
        extent = OffsetRange()
        before = to_json(head(self.context, queue))[:-1] + b',"segments":['
        for part, log, batch in _batches_of(queue):
            most = queue.last_safe(part)
            found = await self._describe(log, batch)
            listed = [segment.up_to(most) for segment in found if segment.base <= most]
            for segment in listed:
                extent.add(segment)
            if listed:
                text = await self.context.in_thread(_to_json, part, listed)
                yield before + text
                before = b","
        yield (before if extent.first is None else b"") + _tail(queue, extent)

    async def _describe(self, log: Log, segments: list[Segment]) -> list[ListedSegment]:
        self.context.store.write_marks()
        snapshots = self.listing.take(log, segments)
        listed = await self.context.in_thread_with_files(describe, snapshots)
        self.listing.remember(listed)
        return listed

    # --- the bytes ---

    async def read(self, request: web.Request) -> web.StreamResponse:
        log, segment = self._segment(request)
        size, path = log.safe_bytes(segment), segment.path + ".seg"
        ranged = (
            None if hdrs.IF_RANGE in request.headers else parse_range(request.headers.get(hdrs.RANGE), size)
        )
        start, stop = ranged or (0, size)
        try:
            file = await open_file(self.context, path)
        except FileNotFoundError:
            raise ObjectNotFound(f"segment {segment.base} is gone") from None
        try:
            response = web.StreamResponse(
                status=200 if ranged is None else 206,
                headers={"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes"},
            )
            if ranged is not None:
                response.headers[hdrs.CONTENT_RANGE] = f"bytes {start}-{stop - 1}/{size}"
            response.content_length = stop - start
            await begin(request, response)
            if request.method != "HEAD":
                await self._send(response, file, start, stop)
            await response.write_eof()
        finally:
            os.close(file)
        return response

    async def _send(self, response: web.StreamResponse, file: int, start: int, stop: int) -> None:
        """Send one piece in a turn, so that a client takes up neither the loop nor much memory."""
        while start < stop:
            data = await read_some(self.context, file, start, stop)
            if not data:
                raise OSError(f"the segment's file ends at {start}, but {stop} bytes should be safe")
            await write(response, data)
            start += len(data)
            await asyncio.sleep(0)

    def _segment(self, request: web.Request) -> tuple[Log, Segment]:
        queue = readable_queue(self.context.node, request)
        self._expect_same_stream(queue, request)
        part, base = request.query.get("part", ""), _base(request.match_info["base"])
        for name, log in logs_of(queue):
            if name == part:
                segment = find_segment(log, base)
                if segment is not None:
                    return log, segment
        where = f"part '{part}' of " if part else ""
        raise ObjectNotFound(f"no segment {base} in {where}queue '{queue.name}' in vhost '{queue.vhost}'")

    def _expect_same_stream(self, queue: Queue, request: web.Request) -> None:
        """A client that has listed a stream must not read from a newer stream of the same name."""
        wanted = request.query.get("stream_id", "")
        if not wanted or stream_of(queue) is None:
            return
        if wanted != self.context.store.stream_id(queue.vhost, queue.name):
            raise ObjectNotFound(f"stream '{queue.name}' was deleted and made anew since it was listed")


def _base(text: str) -> int:
    number = number_of(text)
    if number is None or number > BASE_MAX:
        shown = text[:DIGITS_MAX]
        raise BadRequest(f"'{shown}' is not the base of a segment: expected a number up to {BASE_MAX}")
    return number


def _batches_of(queue: Queue) -> Iterator[tuple[str, Log, list[Segment]]]:
    for part, log in logs_of(queue):
        for batch in batches(log.segments[:], SEGMENTS_A_TURN):
            yield part, log, batch


def _to_json(part: str, segments: list[ListedSegment]) -> bytes:
    """The rows of segments, without the list's brackets. An offset is a position less one."""
    return b",".join(
        to_json(
            {
                "part": part,
                "base": segment.base,
                "first_offset": segment.base - 1,
                "last_offset": segment.ends.last - 1,
                "bytes": segment.ends.size,
                "closed": segment.closed,
                "first_timestamp": segment.ends.first_ms,
                "last_timestamp": segment.ends.last_ms,
                "acked": [[position - 1, count] for position, count in segment.acked],
            }
        )
        for segment in segments
    )


def _tail(queue: Queue, extent: OffsetRange) -> bytes:
    if extent.first is not None:
        first, beyond = extent.first, extent.next
    else:
        first = beyond = queue.next_offset
    return b"]," + to_json({"first_offset": first, "next_offset": beyond})[1:]
