"""Publishing over HTTP: as over AMQP with a confirm."""

from __future__ import annotations

import asyncio
import base64
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_api import Api, make_broker
from warren import commands
from warren.broker.events import MessagePublished

MANY = 1_000  # queues
DEFAULT = "/api/exchanges/%2F/amq.default/publish"


def message(**changes: Any) -> dict[str, Any]:
    given = {"routing_key": "q", "properties": {}, "payload": "hello", "payload_encoding": "string"}
    return given | changes


async def test_message_goes_to_its_queue(api: Api) -> None:
    queue = api.declare("q")
    properties = {
        "content_type": "text/plain",
        "content_encoding": "identity",
        "headers": {"n": 1, "deep": {"list": [True, 1.5, "x"]}},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
        "cluster_id": "cl",
    }
    answer = await api.send("POST", DEFAULT, message(properties=properties))
    assert (answer.status, answer.json) == (200, {"routed": True})
    entry = queue.get(no_ack=True)
    assert entry is not None
    assert entry.message.body == b"hello"
    found = entry.message.decode_properties()
    assert {name: getattr(found, name) for name in properties} == properties


async def test_persistent_message_is_on_disk_when_it_is_answered(api: Api, tmp_path: Path) -> None:
    api.declare("q")
    await api.end_turn()
    await api.send("POST", DEFAULT, message(properties={"delivery_mode": 2}))
    shutil.copytree(api.broker.config.data_dir, tmp_path / "as after a kill")
    async with make_broker(tmp_path / "as after a kill") as other:
        assert other.node.vhosts["/"].queues["q"].message_count == 1


async def test_payload_may_be_base64(api: Api) -> None:
    queue = api.declare("q")
    raw = bytes(range(256))
    body = message(payload=base64.b64encode(raw).decode(), payload_encoding="base64")
    assert (await api.send("POST", DEFAULT, body)).json == {"routed": True}
    entry = queue.get(no_ack=True)
    assert entry is not None
    assert entry.message.body == raw


async def test_message_without_a_queue_is_not_routed(api: Api) -> None:
    answer = await api.send("POST", DEFAULT, message(routing_key="nobody"))
    assert (answer.status, answer.json) == (200, {"routed": False})


async def test_message_counts_as_one_that_a_client_published(api: Api) -> None:
    """With confirms and `mandatory`, as in RabbitMQ."""
    api.declare("q")
    for key in ("q", "q", "nobody"):
        await api.send("POST", DEFAULT, message(routing_key=key))
    counted = (await api.get("/api/overview")).json["message_stats"]
    assert (counted["publish"], counted["confirm"]) == (3, 3)
    assert (counted["return_unroutable"], counted["drop_unroutable"]) == (1, 0)
    exchange = (await api.get("/api/exchanges/%2F/amq.default")).json["message_stats"]
    assert (exchange["publish_in"], exchange["publish_out"]) == (3, 2)
    metrics = (await api.get("/metrics")).body.decode()
    assert 'rabbitmq_global_messages_received_total{protocol="amqp091"} 3' in metrics
    assert 'rabbitmq_global_messages_received_confirm_total{protocol="amqp091"} 3' in metrics


async def test_refused_message_does_not_count_as_confirmed(api: Api) -> None:
    api.declare("q", max_length=1, overflow="reject-publish")
    assert (await api.send("POST", DEFAULT, message())).status == 200
    assert (await api.send("POST", DEFAULT, message())).status == 400
    counted = (await api.get("/api/overview")).json["message_stats"]
    assert (counted["publish"], counted["confirm"]) == (2, 1)


async def test_message_goes_by_bindings_and_cc_and_bcc(api: Api) -> None:
    queues = [api.declare(name) for name in ("a", "b", "c", "d")]
    for name in ("a", "b", "c"):
        api.broker.execute(
            commands.Bind(vhost="/", source="amq.direct", destination=name, to_queue=True, routing_key=name)
        )
    body = message(routing_key="a", properties={"headers": {"CC": ["b"], "BCC": ["c"]}})
    assert (await api.send("POST", "/api/exchanges/%2F/amq.direct/publish", body)).json == {"routed": True}
    assert [queue.message_count for queue in queues] == [1, 1, 1, 0]
    entry = queues[0].get(no_ack=True)
    assert entry is not None
    assert entry.message.decode_properties().headers == {"CC": ["b"]}


async def test_message_to_very_many_queues_reaches_all(api: Api) -> None:
    for n in range(3000):
        name = f"q{n}"
        api.broker.execute(commands.DeclareQueue(vhost="/", name=name))
        api.broker.execute(commands.Bind(vhost="/", source="amq.fanout", destination=name, to_queue=True))
    body = message(payload="x" * 20_000)
    assert (await api.send("POST", "/api/exchanges/%2F/amq.fanout/publish", body)).json == {"routed": True}
    assert all(queue.message_count == 1 for queue in api.vhost.queues.values())


async def test_full_queue_refuses(api: Api) -> None:
    api.declare("q", max_length=1, overflow="reject-publish")
    assert (await api.send("POST", DEFAULT, message())).status == 200
    answer = await api.send("POST", DEFAULT, message())
    assert (answer.status, answer.json["reason"]) == (
        400,
        "rejected Unable to publish message. Check queue limits.",
    )


async def test_exchange_drops_duplicates(api: Api) -> None:
    queue = api.declare("q")
    body = {"durable": True, "arguments": {"x-message-deduplication": True, "x-cache-size": 10}}
    assert (await api.send("PUT", "/api/exchanges/%2F/once", body)).status == 201
    api.broker.execute(
        commands.Bind(vhost="/", source="once", destination="q", to_queue=True, routing_key="q")
    )
    draft = message(properties={"headers": {"x-deduplication-header": "same"}, "delivery_mode": 2})
    for _ in range(2):
        assert (await api.send("POST", "/api/exchanges/%2F/once/publish", draft)).json == {"routed": True}
    assert queue.message_count == 1


async def test_large_message_is_spread_over_turns_and_its_duplicate_waits(api: Api) -> None:
    """The exchange deduplicates, and knows a duplicate only when the message is in all queues."""
    body = {"type": "fanout", "arguments": {"x-message-deduplication": True}}
    assert (await api.send("PUT", "/api/exchanges/%2F/once", body)).status == 201
    queues = [api.declare(f"q{number}") for number in range(MANY)]
    for queue in queues:
        api.broker.execute(commands.Bind(vhost="/", source="once", destination=queue.name, to_queue=True))
    turns, reached = api.broker.node.turns, list[int]()
    end_turn = turns.after

    def note() -> None:
        reached.append(sum(queue.message_count for queue in queues))
        end_turn()

    turns.after = note
    draft = message(properties={"headers": {"x-deduplication-header": 1}}, payload="x" * 100_000)
    url = "/api/exchanges/%2F/once/publish"
    await asyncio.gather(*(api.send("POST", url, draft) for _ in range(2)))
    assert any(0 < count < MANY for count in reached)
    assert [queue.message_count for queue in queues] == [1] * MANY


async def test_alarm_blocks_publishing(api: Api) -> None:
    queue = api.declare("q")
    api.broker.node.raise_alarm("disk")
    answer = await api.send("POST", DEFAULT, message())
    assert (answer.status, "low on disk" in answer.json["reason"]) == (400, True)
    assert queue.message_count == 0


async def test_subscribers_are_told(api: Api) -> None:
    api.declare("q")
    told: list[MessagePublished] = []
    api.broker.subscribe(MessagePublished, told.append)
    await api.send("POST", DEFAULT, message())
    assert [event.queues for event in told] == [("q",)]


async def test_firehose_names_who_published(api: Api) -> None:
    api.declare("q")
    traced = api.declare("traced")
    api.broker.execute(
        commands.Bind(
            vhost="/", source="amq.rabbitmq.trace", destination="traced", to_queue=True, routing_key="#"
        )
    )
    api.broker.execute(commands.SetTracing(vhost="/", on=True))
    await api.send("POST", DEFAULT, message())
    entry = traced.get(no_ack=True)
    assert entry is not None
    headers = entry.message.decode_properties().headers
    assert headers is not None
    assert (headers["user"], headers["routed_queues"]) == ("guest", ["q"])


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": None},
        {"routing_key": None},
        {"properties": None},
        {"payload_encoding": None},
        {"payload_encoding": "rot13"},
        {"payload_encoding": "base64", "payload": "no base64!"},
        {"payload": 5},
        {"payload": "\ud800"},
        {"routing_key": "k" * 256},
        {"properties": "none"},
        {"properties": {"priority": 256}},
        {"properties": {"delivery_mode": "x"}},
        {"properties": {"delivery_mode": 0}},
        {"properties": {"delivery_mode": 3}},
        {"properties": {"timestamp": -1}},
        {"properties": {"expiration": "soon"}},
        {"properties": {"user_id": "somebody"}},
        {"properties": {"message_id": "m" * 256}},
        {"properties": {"headers": []} | {"headers": [1]}},
        {"properties": {"headers": {"CC": "q"}}},
        {"properties": {"reply_to": "amq.rabbitmq.reply-to"}},
    ],
)
async def test_what_makes_no_sense_is_400_and_not_published(api: Api, changes: dict[str, Any]) -> None:
    queue = api.declare("q")
    answer = await api.send("POST", DEFAULT, message(**changes))
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert queue.message_count == 0


async def test_empty_properties_may_be_a_list(api: Api) -> None:
    api.declare("q")
    assert (await api.send("POST", DEFAULT, message(properties=[]))).json == {"routed": True}


async def test_error_names_what_would_close_a_channel(api: Api) -> None:
    answer = await api.send("POST", "/api/exchanges/%2F/absent/publish", message())
    assert (answer.status, answer.json["reason"]) == (
        400,
        "404 NOT_FOUND - no exchange 'absent' in vhost '/'",
    )


async def test_permissions_are_those_of_amqp(api: Api) -> None:
    queue = api.declare("q")
    answer = await api.send("POST", DEFAULT, message(), user="manager")
    assert (answer.status, "403 ACCESS_REFUSED - " in answer.json["reason"]) == (400, True)
    api.grant("manager", configure="", read="", write="amq.default")
    assert (await api.send("POST", DEFAULT, message(), user="manager")).status == 200
    trace = "/api/exchanges/%2F/amq.rabbitmq.trace/publish"
    assert (await api.send("POST", trace, message())).status == 400  # it is internal
    assert queue.message_count == 1


HALF = "\udc80"  # stands for a byte that is not UTF-8


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": HALF},
        {"payload": HALF, "payload_encoding": "base64"},
        {"properties": {"user_id": HALF}},
        {"properties": {"expiration": HALF}},
    ],
)
async def test_halves_of_characters_are_refused(api: Api, changes: dict[str, Any]) -> None:
    queue = api.declare("q")
    assert (await api.send("POST", DEFAULT, message(**changes))).status == 400
    assert queue.message_count == 0
