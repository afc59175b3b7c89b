"""`/api/streams/{vhost}/{queue}/offsets`: a stream's named offsets, where readers note how far they are."""

from __future__ import annotations

from aiohttp import web

from warren.broker.stream import Stream, stream_of
from warren.management.auth import readable_queue
from warren.management.bodies import object_in
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest, Handler, ObjectNotFound
from warren.management.json_text import json_response
from warren.management.paths import NAME, QUEUE, VHOST
from warren.management.rights import Right
from warren.management.schema import COUNT, TEXT, Schema, record, rows

OFFSETS = f"/api/streams/{VHOST}/{QUEUE}/offsets"
NAME_BYTES_MAX = 255
OFFSET_MAX = 2**63 - 1
NAMED_OFFSET = record({"name": TEXT, "offset": COUNT})


class Streams:
    def __init__(self, context: Context) -> None:
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        one = f"{OFFSETS}/{NAME}"
        return [
            _endpoint("GET", OFFSETS, self.list_all, "A stream's named offsets.", gives=rows(NAMED_OFFSET)),
            _endpoint("GET", one, self.get, "One named offset.", gives=NAMED_OFFSET),
            _endpoint(
                "PUT", one, self.put, "Set a named offset.", takes=record({"offset": COUNT}), done=(204,)
            ),
            _endpoint("DELETE", one, self.delete, "Forget a named offset.", done=(204,)),
        ]

    async def list_all(self, request: web.Request) -> web.StreamResponse:
        offsets = self._stream(request).named_offsets
        return json_response([{"name": name, "offset": offset} for name, offset in offsets.items()])

    async def get(self, request: web.Request) -> web.StreamResponse:
        name, offset = self._known(request)
        return json_response({"name": name, "offset": offset})

    async def put(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
            raise BadRequest(f"the name of an offset has at most {NAME_BYTES_MAX} bytes")
        self._stream(request)  # refuses users without permission before their body is read
        offset = offset_in(await request.read())
        stream = self._stream(request)
        stream.check_name(name)
        stream.store_offset(name, offset)
        self.node.end_turn()  # which writes the change
        return web.Response(status=204)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        name, _offset = self._known(request)
        self._stream(request).forget_offset(name)
        self.node.end_turn()  # which writes the change
        return web.Response(status=204)

    def _known(self, request: web.Request) -> tuple[str, int]:
        stream, name = self._stream(request), request.match_info["name"]
        if name not in stream.named_offsets:
            raise ObjectNotFound(f"no offset '{name}' of stream '{stream.name}' in vhost '{stream.vhost}'")
        return name, stream.named_offsets[name]

    def _stream(self, request: web.Request) -> Stream:
        queue = readable_queue(self.node, request)
        stream = stream_of(queue)
        if stream is None:
            raise ObjectNotFound(f"{queue.what} is not a stream")
        return stream


def offset_in(body: bytes) -> int:
    offset = object_in(body, '{"offset": number}').get("offset")
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= OFFSET_MAX:
        raise BadRequest('expected {"offset": number}, from 0 on')
    return offset


def _endpoint(
    method: str,
    path: str,
    handler: Handler,
    summary: str,
    *,
    takes: Schema | None = None,
    gives: Schema | None = None,
    done: tuple[int, ...] = (),
) -> Endpoint:
    return Endpoint(
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        right=Right.USER,
        takes=takes,
        gives=gives,
        done=done,
    )
