"""Getting messages over HTTP, with all of RabbitMQ's ackmodes and encodings."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from tests.support.http_api import Answer, Api
from warren import commands
from warren.amqp.errors import ResourceLocked
from warren.broker.client import Origin
from warren.broker.queue import Hold, Queue
from warren.management.getting import GOT_A_TURN, PIECE_BYTES, Got, Wish, get_messages

GET = "/api/queues/%2F/q/get"


async def get(api: Api, **changes: Any) -> list[dict[str, Any]]:
    answer = await ask(api, **changes)
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json
    return found


async def ask(api: Api, **changes: Any) -> Answer:
    given = {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"}
    return await api.send("POST", GET, given | changes)


async def test_message_is_described(api: Api) -> None:
    await api.publish(api.declare("q"), [b"one", b"two"], headers={"n": 1}, message_id="m")
    assert await get(api, count=1, ackmode="ack_requeue_false") == [
        {
            "payload": "one",
            "payload_bytes": 3,
            "payload_encoding": "string",
            "redelivered": False,
            "exchange": "",
            "routing_key": "q",
            "message_count": 1,
            "properties": {"delivery_mode": 2, "headers": {"n": 1}, "message_id": "m"},
        }
    ]


async def test_message_without_properties_has_an_empty_list_of_them(api: Api) -> None:
    api.declare("q")
    body = {"routing_key": "q", "payload": "egg", "payload_encoding": "string", "properties": {}}
    assert (await api.post("/api/exchanges/%2F/amq.default/publish", body)).json == {"routed": True}
    assert (await get(api))[0]["properties"] == []


@pytest.mark.parametrize("ackmode", ["ack_requeue_true", "reject_requeue_true"])
async def test_messages_return_in_order_and_are_redelivered(api: Api, ackmode: str) -> None:
    bodies = [str(n).encode() for n in range(2 * GOT_A_TURN + 1)]
    await api.publish(api.declare("q"), bodies)
    for redelivered in (False, True):
        found = await get(api, count=1000, ackmode=ackmode)
        assert [row["payload"].encode() for row in found] == bodies
        assert {row["redelivered"] for row in found} == {redelivered}
    queue = api.vhost.queues["q"]
    assert (queue.message_count, queue.unacked) == (len(bodies), 0)


async def test_messages_that_are_acked_are_gone(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"1", b"2", b"3"])
    assert [row["payload"] for row in await get(api, count="2", ackmode="ack_requeue_false")] == ["1", "2"]
    assert (queue.message_count, queue.unacked) == (1, 0)
    assert [row["payload"] for row in await get(api, ackmode="ack_requeue_false")] == ["3"]
    assert await get(api) == []


async def test_messages_that_are_rejected_are_dead_lettered(api: Api) -> None:
    dead = api.declare("dead")
    queue = api.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    await api.publish(queue, [b"1", b"2"])
    assert len(await get(api, ackmode="reject_requeue_false")) == 2
    await api.end_turn()
    assert (queue.message_count, queue.unacked, dead.message_count) == (0, 0, 2)


async def test_payload_that_is_no_text_is_base64(api: Api) -> None:
    raw = b"\xff\x00" * 10
    await api.publish(api.declare("q"), [raw, b"text"])
    found = await get(api)
    assert [row["payload_encoding"] for row in found] == ["base64", "string"]
    assert base64.b64decode(found[0]["payload"]) == raw
    found = await get(api, encoding="base64")
    assert [base64.b64decode(row["payload"]) for row in found] == [raw, b"text"]


@pytest.mark.parametrize("encoding", ["auto", "base64"])
@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 2])
async def test_long_payload_is_whole(api: Api, encoding: str, size: int) -> None:
    text = ('ü€"\\\n日' * size)[:size]
    await api.publish(api.declare("q"), [text.encode(), text.encode() + b"\xff"])
    found = await get(api, encoding=encoding)
    assert found[1]["payload_encoding"] == "base64"
    assert base64.b64decode(found[1]["payload"]) == text.encode() + b"\xff"
    payload = found[0]["payload"]
    assert (payload if encoding == "auto" else base64.b64decode(payload).decode()) == text


async def test_payload_is_cut_off(api: Api) -> None:
    await api.publish(api.declare("q"), [b"abcdef", "ü".encode()])
    found = await get(api, truncate=1)
    assert [(row["payload"], row["payload_bytes"]) for row in found] == [("a", 6), ("ww==", 2)]


async def test_delivery_count_of_a_quorum_queue_is_told(api: Api) -> None:
    await api.publish(api.declare("q", queue_type="quorum"), [b"1"])
    await get(api)
    assert (await get(api))[0]["properties"]["headers"] == {"x-delivery-count": 1}


def begin(api: Api, queue: Queue) -> asyncio.Task[Got]:
    wish, origin = Wish(1000, "ack_requeue_true", "auto", None), Origin("HTTP", 0, "guest")
    return asyncio.create_task(get_messages(api.broker.node, queue, wish, origin))


async def test_messages_return_if_the_client_hangs_up(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"x"] * (3 * GOT_A_TURN))
    getting = begin(api, queue)
    await asyncio.sleep(0)
    assert queue.unacked == GOT_A_TURN
    getting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getting
    await api.end_turn()
    assert (queue.message_count, queue.unacked) == (3 * GOT_A_TURN, 0)


async def test_getting_from_a_queue_that_another_node_leads_by_now_is_an_error(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"x"])
    hold = Hold([queue])
    getting = begin(api, queue)
    await asyncio.sleep(0)
    api.broker.node.vhosts["/"].retire_queue(queue)
    with pytest.raises(ResourceLocked, match="is not led by this node"):
        await getting
    hold.end()


async def test_getting_waits_while_messages_return_to_the_queue(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"1"])
    queue.returning += 1
    getting = begin(api, queue)
    for _turn in range(5):
        await asyncio.sleep(0)
    assert not getting.done()
    queue.returning -= 1
    assert len((await getting).entries) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"count": None},
        {"ackmode": None},
        {"encoding": None},
        {"count": -1},
        {"count": "many"},
        {"ackmode": "ack"},
        {"encoding": "gzip"},
        {"truncate": "x"},
    ],
)
async def test_what_makes_no_sense_is_400_and_takes_nothing(api: Api, changes: dict[str, Any]) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"1"])
    assert (await ask(api, **changes)).status == 400
    assert (queue.message_count, queue.unacked, queue.delivered) == (1, 0, 0)


async def test_queues_that_cannot_be_got_from_are_refused(api: Api) -> None:
    api.declare("q", queue_type="stream")
    assert (await ask(api)).status == 400
    api.broker.execute(commands.DeleteQueue(vhost="/", name="q"))
    api.declare("q", single_active_consumer=True)
    assert (await ask(api)).status == 400
    api.broker.execute(commands.DeleteQueue(vhost="/", name="q"))
    assert (await ask(api)).status == 404
    owner = api.broker.node.new_client_id()
    api.broker.execute(commands.DeclareQueue(vhost="/", name="q", owner=owner))
    assert (await ask(api)).status == 400


async def test_reading_needs_the_permission_to_read(api: Api) -> None:
    await api.publish(api.declare("q"), [b"1"])
    given = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert (await api.send("POST", GET, given, user="manager")).status == 401
    assert (await api.send("POST", GET, given, user="monitor")).status == 401
    assert api.vhost.queues["q"].message_count == 1
