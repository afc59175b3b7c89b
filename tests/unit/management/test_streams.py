"""Offsets that readers keep at a stream, by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.http_api import Api
from warren.broker.queue import Queue
from warren.management.stream_like import StreamLike
from warren.management.streams import NAME_BYTES_MAX

OFFSETS = "/api/streams/%2F/open/offsets"


class SmallStream(Queue):
    """As much of a stream as the API asks for."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.log = None
        self.first_offset, self.next_offset = 7, 7
        self.named_offsets: dict[str, int] = {}

    def store_offset(self, name: str, offset: int) -> None:
        self.named_offsets[name] = offset

    def forget_offset(self, name: str) -> None:
        del self.named_offsets[name]


@pytest.fixture
def stream(api: Api) -> SmallStream:
    made = SmallStream("open", "/", api.vhost.surroundings, arguments={"x-queue-type": "stream"})
    assert isinstance(made, StreamLike)
    api.vhost.queues["open"] = made
    return made


async def put(api: Api, name: str, body: bytes, user: str = "reader") -> int:
    return (await api.request("PUT", f"{OFFSETS}/{name}", data=body, user=user)).status


async def test_offset_is_stored_read_listed_and_forgotten(api: Api, stream: SmallStream) -> None:
    assert (await api.get(OFFSETS, user="reader")).json == []
    for offset in (5, 6):
        assert await put(api, "job%2F1", json.dumps({"offset": offset}).encode()) == 204
    assert stream.named_offsets == {"job/1": 6}
    assert (await api.get(OFFSETS)).json == [{"name": "job/1", "offset": 6}]
    assert (await api.get(f"{OFFSETS}/job%2F1")).json == {"name": "job/1", "offset": 6}
    for status in (204, 404):
        assert (await api.request("DELETE", f"{OFFSETS}/job%2F1")).status == status
    assert stream.named_offsets == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"{}",
        b'{"offset": -1}',
        b'{"offset": "1"}',
        b'{"offset": true}',
        b'{"offset": 1e3}',
    ],
)
async def test_body_that_has_no_offset_is_400(api: Api, stream: SmallStream, body: bytes) -> None:
    assert await put(api, "job", body) == 400
    assert stream.named_offsets == {}


async def test_name_that_is_too_long_is_400(api: Api, stream: SmallStream) -> None:
    assert await put(api, "x" * (NAME_BYTES_MAX + 1), b'{"offset": 1}') == 400


async def test_who_may_not_read_the_stream_neither_sees_nor_stores_offsets(
    api: Api, stream: SmallStream
) -> None:
    assert (await api.get(OFFSETS, user="manager")).status == 403
    assert await put(api, "job", b'{"offset": 1}', user="manager") == 403
    assert stream.named_offsets == {}


async def test_queue_that_is_no_stream_has_no_offsets(api: Api) -> None:
    api.declare("open")
    for method in ("GET", "PUT", "DELETE"):
        data = b'{"offset": 1}' if method == "PUT" else None
        path = OFFSETS if method == "GET" else f"{OFFSETS}/job"
        assert (await api.request(method, path, data=data)).status == 404


async def test_empty_stream_has_no_segments_and_begins_where_it_goes_on(
    api: Api, stream: SmallStream
) -> None:
    found = (await api.get("/api/segments/%2F/open")).json
    assert (found["type"], found["segments"]) == ("stream", [])
    assert (found["first_offset"], found["next_offset"]) == (7, 7)
