"""Streams over HTTP: their segments, and their named offsets."""

from __future__ import annotations

import json

import pytest

from tests.support.http_api import Api
from warren.broker.stream import NAMES_MAX, Stream
from warren.management.streams import NAME_BYTES_MAX
from warren.storage.format import records

OFFSETS = "/api/streams/%2F/open/offsets"
SEGMENTS = "/api/segments/%2F/open"


@pytest.fixture
def stream(api: Api) -> Stream:
    made = api.declare("open", queue_type="stream", stream_max_segment_size_bytes=4096)
    assert isinstance(made, Stream)
    return made


async def put(api: Api, name: str, body: bytes, user: str = "reader") -> int:
    return (await api.request("PUT", f"{OFFSETS}/{name}", data=body, user=user)).status


async def test_offset_is_stored_read_listed_and_forgotten(api: Api, stream: Stream) -> None:
    assert (await api.get(OFFSETS, user="reader")).json == []
    for offset in (5, 6):
        assert await put(api, "job%2F1", json.dumps({"offset": offset}).encode()) == 204
    assert stream.named_offsets == {"job/1": 6}
    assert (await api.get(OFFSETS)).json == [{"name": "job/1", "offset": 6}]
    assert (await api.get(f"{OFFSETS}/job%2F1")).json == {"name": "job/1", "offset": 6}
    for status in (204, 404):
        assert (await api.request("DELETE", f"{OFFSETS}/job%2F1")).status == status
    assert stream.named_offsets == {}


async def test_offset_is_still_there_after_a_restart(api: Api, stream: Stream) -> None:
    assert await put(api, "job", b'{"offset": 3}') == 204
    await api.broker.stop()
    await api.broker.start()
    assert (await api.get(f"{OFFSETS}/job")).json == {"name": "job", "offset": 3}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"{}",
        b'{"offset": -1}',
        b"[" * 4096,
        b'{"offset": 1}' + b" " * 4096,
        b'{"offset": "1"}',
        b'{"offset": true}',
        b'{"offset": 1e3}',
        b"\xff",
    ],
)
async def test_body_that_has_no_offset_is_400(api: Api, stream: Stream, body: bytes) -> None:
    assert await put(api, "job", body) == 400
    assert stream.named_offsets == {}


async def test_name_that_is_too_long_is_400(api: Api, stream: Stream) -> None:
    assert await put(api, "x" * (NAME_BYTES_MAX + 1), b'{"offset": 1}') == 400
    assert stream.named_offsets == {}


async def test_there_are_only_so_many_names(api: Api, stream: Stream) -> None:
    for number in range(NAMES_MAX):
        stream.store_offset(f"job {number}", number)
    assert await put(api, "another", b'{"offset": 1}') == 400
    assert await put(api, "job%201", b'{"offset": 2}') == 204
    assert (await api.request("DELETE", f"{OFFSETS}/job%201")).status == 204
    assert await put(api, "another", b'{"offset": 1}') == 204


async def test_who_may_not_read_the_stream_neither_sees_nor_stores_offsets(api: Api, stream: Stream) -> None:
    assert (await api.get(OFFSETS, user="manager")).status == 403
    assert await put(api, "job", b'{"offset": 1}', user="manager") == 403
    assert stream.named_offsets == {}


async def test_queue_that_is_no_stream_has_no_offsets(api: Api) -> None:
    api.declare("open")
    for method in ("GET", "PUT", "DELETE"):
        data = b'{"offset": 1}' if method == "PUT" else None
        path = OFFSETS if method == "GET" else f"{OFFSETS}/job"
        assert (await api.request(method, path, data=data)).status == 404


async def test_empty_stream_has_no_segments_and_begins_where_it_goes_on(api: Api, stream: Stream) -> None:
    found = (await api.get(SEGMENTS)).json
    assert found.pop("stream_id")
    assert found == {
        "vhost": "/",
        "queue": "open",
        "type": "stream",
        "segments": [],
        "first_offset": 0,
        "next_offset": 0,
    }


async def test_segments_of_a_stream_follow_each_other_and_hold_what_they_say(
    api: Api, stream: Stream
) -> None:
    await api.publish(stream, [b"%d" % i for i in range(500)])
    found = (await api.get(SEGMENTS)).json
    assert (found["first_offset"], found["next_offset"]) == (0, 500)
    assert len(found["segments"]) > 3
    expected = 0
    for segment in found["segments"]:
        data = (await api.get(f"{SEGMENTS}/{segment['base']}", user="reader")).body
        held = list(records(data))
        assert [record.position - 1 for record in held] == list(range(expected, segment["last_offset"] + 1))
        assert [segment["first_timestamp"], segment["last_timestamp"]] == [held[0].time_ms, held[-1].time_ms]
        assert (segment["bytes"], segment["acked"]) == (len(data), [])
        expected = segment["last_offset"] + 1
    assert expected == 500


async def test_listing_is_the_same_after_a_restart(api: Api, stream: Stream) -> None:
    await api.publish(stream, [b"%d" % i for i in range(500)])
    before = (await api.get(SEGMENTS)).json
    await api.broker.stop()
    await api.broker.start()
    assert (await api.get(SEGMENTS)).json == before


async def test_what_retention_has_taken_is_not_listed_and_404(api: Api) -> None:
    limits = {"stream_max_segment_size_bytes": 4096, "max_length_bytes": 8192}
    stream = api.declare("open", queue_type="stream", **limits)
    await api.publish(stream, [b"%d" % i for i in range(500)])
    await api.publish(stream, [b"last"])
    found = (await api.get(SEGMENTS)).json
    assert found["first_offset"] == found["segments"][0]["first_offset"] > 0
    assert found["next_offset"] == 501
    assert (await api.get(f"{SEGMENTS}/1")).status == 404


async def test_stream_is_described_as_one(api: Api, stream: Stream) -> None:
    await api.publish(stream, [b"1", b"2"])
    found = (await api.get("/api/queues/%2F/open")).json
    assert (found["type"], found["messages"], found["messages_unacknowledged"]) == ("stream", 2, 0)
