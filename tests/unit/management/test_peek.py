"""Looking at messages over HTTP, without taking any."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.support.http_api import Api
from warren.broker.queue import Queue
from warren.management import peek

PATH = "/api/queues/%2F/q/messages"


async def filled(api: Api, count: int) -> Queue:
    queue = api.declare("q")
    for number in range(count):
        await api.publish(queue, [b"%d" % number], headers={"number": number})
    return queue


async def payloads(api: Api, query: str) -> list[str]:
    answer = await api.get(f"{PATH}?{query}")
    assert answer.status == 200, answer.body
    return [row["payload"] for row in answer.json]


async def test_message_is_shown_as_get_shows_it_and_stays(api: Api) -> None:
    queue = await filled(api, 2)
    for _ in range(2):
        assert (await api.get(f"{PATH}?count=1")).json == [
            {
                "payload_bytes": 1,
                "redelivered": False,
                "exchange": "",
                "routing_key": "q",
                "message_count": 2,
                "properties": {"delivery_mode": 2, "headers": {"number": 0}},
                "payload": "0",
                "payload_encoding": "string",
                "position": 1,
            }
        ]
    entry = queue.get(no_ack=False)
    assert entry is not None
    assert (entry.delivery_count, queue.delivered) == (0, 1)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", range(10)),
        ("count=3", range(3)),
        ("count=0", range(0)),
        ("offset=97", range(97, 100)),
        ("offset=100", range(0)),
        ("position=51&count=2", range(50, 52)),
        ("position=51&offset=5&count=2", range(55, 57)),
        ("selector=" + quote("number >= 40 AND number < 45"), range(40, 45)),
        ("selector=" + quote("number >= 40") + "&offset=3&count=2", range(43, 45)),
    ],
)
async def test_position_offset_count_and_selector(api: Api, query: str, expected: range) -> None:
    await filled(api, 100)
    assert await payloads(api, query) == [str(number) for number in expected]


async def test_more_messages_than_are_looked_at_in_a_turn(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(api, 30)
    monkeypatch.setattr(peek, "LOOKS_A_TURN", 4)
    monkeypatch.setattr(peek, "BYTES_A_TURN", 2)
    assert await payloads(api, "count=100") == [str(number) for number in range(30)]


async def test_bodies_are_text_or_base64_and_can_be_cut(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"\xff\xfe", "aé".encode()])
    rows = (await api.get(PATH)).json
    assert [(row["payload"], row["payload_encoding"]) for row in rows] == [
        ("//4=", "base64"),
        ("aé", "string"),
    ]
    assert await payloads(api, "truncate=2") == ["//4=", "a"], "no half of a character"
    assert await payloads(api, "encoding=base64&truncate=1") == ["/w==", "YQ=="]


async def test_message_that_was_delivered_before_is_redelivered(api: Api) -> None:
    queue = await filled(api, 1)
    entry = queue.get(no_ack=False)
    assert entry is not None
    assert (await api.get(PATH)).json == [], "it is out"
    queue.requeue(entry)
    assert (await api.get(PATH)).json[0]["redelivered"] is True


async def test_stream_is_looked_at_from_an_offset(api: Api) -> None:
    stream = api.declare("q", queue_type="stream")
    await api.publish(stream, [b"%d" % number for number in range(20)], headers={"kind": "x"})
    rows = (await api.get(f"{PATH}?offset=15&count=2")).json
    assert [(row["payload"], row["position"]) for row in rows] == [("15", 16), ("16", 17)]
    assert rows[0]["properties"] == {"delivery_mode": 2, "headers": {"kind": "x"}}


@pytest.mark.parametrize(
    "query", ["count=x", "offset=-1", "position=1.5", "encoding=hex", "selector=a+%3D", "truncate=٣"]
)
async def test_query_that_makes_no_sense_is_refused(api: Api, query: str) -> None:
    api.declare("q")
    assert (await api.get(f"{PATH}?{query}")).status == 400


async def test_user_needs_to_read_the_queue(api: Api) -> None:
    api.declare("q")
    assert (await api.get(PATH, user="manager")).status == 401
    assert (await api.get("/api/queues/%2F/absent/messages")).status == 404
