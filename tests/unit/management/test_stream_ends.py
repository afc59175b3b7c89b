"""Where many streams end, in one answer, and waiting for a change."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.http_api import Answer, Api
from warren import commands
from warren.broker.stream import Stream
from warren.management import names, stream_ends

ENDS = "/api/streams/%2F"
SEGMENTS = "/api/segments/%2F"
LONG_MS = 30_000


@pytest.fixture
def stream(api: Api) -> Stream:
    return declare(api, "open")


def declare(api: Api, name: str) -> Stream:
    made = api.declare(name, queue_type="stream")
    assert isinstance(made, Stream)
    return made


async def post(api: Api, path: str, wanted: object, user: str = "reader") -> Answer:
    return await api.request("POST", path, data=json.dumps(wanted).encode(), user=user)


async def ends(api: Api, *queues: str, **more: object) -> dict[str, Any]:
    answer = await post(api, ENDS, {"queues": list(queues), **more})
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


async def watched(stream: Stream) -> None:
    while not stream.watchers:  # noqa: ASYNC110 - there is no event for a request that waits
        await asyncio.sleep(0.001)


async def test_ends_of_many_are_those_of_their_lists(api: Api, stream: Stream) -> None:
    other = declare(api, "open-2")
    api.declare("open-q")
    await api.publish(stream, [b"a", b"b"])
    await api.publish(other, [b"c"])
    found = await ends(api, "open", "open-2", "open-none", "open-q")
    rows = {row.pop("queue"): row for row in found["queues"]}
    assert rows.pop("open-q") == {"vhost": "/", "type": "classic"}
    assert rows.keys() == {"open", "open-2"}
    for name, row in rows.items():
        listed = (await api.get(f"{SEGMENTS}/{name}")).json
        (segment,) = listed.pop("segments")
        assert listed == {"vhost": "/", "queue": name, "type": "stream"} | {
            key: row[key] for key in ("stream_id", "first_offset", "next_offset")
        }
        assert (row["base"], row["bytes"]) == (segment["base"], segment["bytes"])


async def test_lists_of_many_are_the_lists_of_each(api: Api, stream: Stream) -> None:
    await api.publish(stream, [b"x" * 3_000] * 5)
    await api.publish(api.declare("open-q"), [b"x"])
    declare(api, "open-empty")
    found = await post(api, SEGMENTS, {"queues": ["open", "open-none", "open-q", "open-empty"]})
    each = [(await api.get(f"{SEGMENTS}/{name}")).json for name in ("open", "open-q", "open-empty")]
    assert found.json == each
    assert (await post(api, SEGMENTS, {"queues": []})).json == []


async def test_who_waits_is_answered_when_there_is_more(api: Api, stream: Stream) -> None:
    first = await ends(api, "open")
    waiting = asyncio.create_task(ends(api, "open", version=first["version"], wait_ms=LONG_MS))
    await watched(stream)
    await api.publish(stream, [b"a"])
    second = await waiting
    assert (first["queues"][0]["next_offset"], second["queues"][0]["next_offset"]) == (0, 1)
    assert second["version"] != first["version"]
    assert stream.watchers == []


async def test_who_does_not_know_the_present_does_not_wait(api: Api, stream: Stream) -> None:
    old = await ends(api, "open")
    await api.publish(stream, [b"a"])
    for version in (old["version"], ""):
        found = await ends(api, "open", version=version, wait_ms=LONG_MS)
        assert found["queues"][0]["next_offset"] == 1


async def test_stream_that_is_deleted_ends_the_wait(api: Api, stream: Stream) -> None:
    first = await ends(api, "open")
    waiting = asyncio.create_task(ends(api, "open", version=first["version"], wait_ms=LONG_MS))
    await watched(stream)
    api.broker.execute(commands.DeleteQueue(vhost="/", name="open"))
    assert (await waiting)["queues"] == []


async def test_wait_ends_with_the_same_when_its_time_is_over(api: Api, stream: Stream) -> None:
    first = await ends(api, "open")
    assert await ends(api, "open", version=first["version"], wait_ms=1) == first


async def test_beyond_the_bound_nobody_waits(
    api: Api, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_ends, "WAITERS_MAX", 0)
    first = await ends(api, "open")
    assert await ends(api, "open", version=first["version"], wait_ms=LONG_MS) == first


async def test_client_that_goes_is_forgotten(api: Api, stream: Stream) -> None:
    first = await ends(api, "open")
    waiting = asyncio.create_task(ends(api, "open", version=first["version"], wait_ms=LONG_MS))
    await watched(stream)
    waiting.cancel()
    async with asyncio.timeout(LONG_MS / 1000 - 1):
        while stream.watchers:  # noqa: ASYNC110 - nor for one that is gone
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("path", [ENDS, SEGMENTS])
async def test_who_may_not_read_one_of_them_is_refused(api: Api, stream: Stream, path: str) -> None:
    declare(api, "closed")
    for wanted in ("closed", "closed-none"):
        answer = await post(api, path, {"queues": ["open", wanted]})
        assert (answer.status, wanted in answer.json["reason"]) == (403, True)
    assert (await post(api, path, {"queues": ["open", "closed"]}, user="guest")).status == 200
    assert (await post(api, path, {"queues": []}, user="")).status == 401


@pytest.mark.parametrize(
    "wanted",
    [
        [],
        {},
        {"queues": "open"},
        {"queues": [1]},
        {"queues": [], "version": 5},
        {"queues": [], "wait_ms": -1},
        {"queues": [], "wait_ms": True},
        {"queues": ["x"] * (names.NAMES_MAX + 1)},
    ],
)
async def test_what_makes_no_sense_is_a_bad_request(api: Api, wanted: object) -> None:
    assert (await post(api, ENDS, wanted)).status == 400


async def test_stream_that_is_named_twice_is_watched_once(api: Api, stream: Stream) -> None:
    version = (await ends(api, "open", "open"))["version"]
    waiting = asyncio.create_task(ends(api, "open", "open", version=version, wait_ms=LONG_MS))
    await watched(stream)
    assert len(stream.watchers) == 1
    await api.publish(stream, [b"news"])
    assert [row["next_offset"] for row in (await waiting)["queues"]] == [1, 1]
    assert not stream.watchers
