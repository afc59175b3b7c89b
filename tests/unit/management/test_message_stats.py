"""Counts and rates in the API, and samples of the past."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

import pika
import pytest

from tests.support.http_api import Api
from warren.broker.history import TICK_SECONDS
from warren.broker.tally import FIGURES
from warren.management.message_stats import OF_CHANNELS, OF_EXCHANGES, OF_QUEUES, Stats
from warren.session.connection import Connection, connections_of

PikaChannel: TypeAlias = Any  # pika has no types


async def with_pika(api: Api, work: Callable[[PikaChannel], Any]) -> Any:
    """Run `work` in a thread with a channel; what it returns."""

    def run() -> Any:
        with pika.BlockingConnection(pika.URLParameters(api.broker.url)) as connection:
            return work(connection.channel())

    return await asyncio.to_thread(run)


def traffic(channel: PikaChannel) -> None:
    """10 publishes, of which 1 is dropped and 1 returned; 3 acks, 1 redelivery, gets of both kinds."""
    channel.queue_declare("q")
    channel.confirm_delivery()
    for number in range(8):
        channel.basic_publish("", "q", b"%d" % number)
    channel.basic_publish("", "nowhere", b"dropped")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("amq.direct", "nowhere", b"returned", mandatory=True)
    taken = channel.consume("q", inactivity_timeout=30)
    for _ in range(3):
        method, _properties, _body = next(taken)
        channel.basic_ack(method.delivery_tag)
    channel.cancel()  # gives the others back
    method, _properties, _body = channel.basic_get("q")
    channel.basic_ack(method.delivery_tag)
    channel.basic_get("q", auto_ack=True)
    channel.queue_purge("q")
    channel.basic_get("q")


@pytest.fixture
async def used(api: Api) -> Api:
    await with_pika(api, traffic)
    await api.broker.sampler.take()
    return api


async def test_queue_counts_what_went_through_it(used: Api) -> None:
    stats = (await used.get("/api/queues/%2F/q")).json["message_stats"]
    counts = {name: stats[name] for name in OF_QUEUES}
    assert counts["publish"] == 8
    assert (counts["get"], counts["get_no_ack"], counts["get_empty"]) == (1, 1, 1)
    assert counts["ack"] == 4
    assert counts["deliver_no_ack"] == 0
    assert counts["deliver_get"] == counts["deliver"] + 2
    assert counts["redeliver"] >= 1
    assert set(stats) == set(OF_QUEUES) | {f"{name}_details" for name in OF_QUEUES}


async def test_queue_tells_rates_of_the_last_tick(used: Api) -> None:
    row = (await used.get("/api/queues/%2F/q")).json
    assert row["message_stats"]["publish_details"] == {"rate": 8 / TICK_SECONDS}
    assert row["messages_details"] == {"rate": 0.0}
    await used.publish(used.vhost.queues["q"], [b"egg"] * 10)
    await used.broker.sampler.take()
    row = (await used.get("/api/queues/%2F/q")).json
    assert row["message_stats"]["publish"] == 18
    assert row["messages_details"] == row["messages_ready_details"] == {"rate": 2.0}
    assert row["messages_unacknowledged_details"] == {"rate": 0.0}


async def test_queue_that_was_never_used_has_no_message_stats(api: Api) -> None:
    queue = api.declare("unused")
    await api.broker.sampler.take()
    row = (await api.get("/api/queues/%2F/unused")).json
    assert "message_stats" not in row
    assert row["messages_details"] == {"rate": 0.0}
    assert queue.history is None


async def test_list_has_statistics_and_sorts_by_them(used: Api) -> None:
    await used.publish(used.declare("busier"), [b"egg"] * 50)
    rows = (await used.get("/api/queues?sort=message_stats.publish&sort_reverse=true&columns=name")).json
    assert [row["name"] for row in rows][:2] == ["busier", "q"]


async def test_samples_come_newest_first_with_averages(api: Api) -> None:
    queue = api.declare("q")
    for count in (10, 20, 30):
        await api.publish(queue, [b"egg"] * count)
        await api.broker.sampler.take()
    path = "/api/queues/%2F/q?msg_rates_age=10&msg_rates_incr=5&lengths_age=10&lengths_incr=5"
    row = (await api.get(path)).json
    published, ready = row["message_stats"]["publish_details"], row["messages_ready_details"]
    for details in (published, ready):
        assert [sample["sample"] for sample in details["samples"]] == [60, 30, 10]
        first, second, third = (sample["timestamp"] for sample in details["samples"])
        assert first - second == second - third == 1_000 * TICK_SECONDS
        assert details["rate"] == 6.0
        assert details["avg_rate"] == 5.0
        assert details["avg"] == pytest.approx(100 / 3)


@pytest.mark.parametrize(
    ("age", "incr", "samples", "seconds"),
    [(60, 5, 13, 5), (60, 20, 4, 20), (600, 5, 11, 60), (3_600, 60, 61, 60), (86_400, 1_800, 49, 1_800)],
)
async def test_samples_are_as_fine_as_the_history_has_them(
    api: Api, age: int, incr: int, samples: int, seconds: int
) -> None:
    await api.publish(api.declare("q"), [b"egg"])
    await api.broker.sampler.take()
    path = f"/api/queues/%2F/q?msg_rates_age={age}&msg_rates_incr={incr}"
    found = (await api.get(path)).json["message_stats"]["publish_details"]["samples"]
    assert len(found) == samples
    assert found[0]["timestamp"] - found[1]["timestamp"] == 1_000 * seconds


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("msg_rates_age=0&msg_rates_incr=5", "age 0, incr 5"),
        ("node_stats_age=60&node_stats_incr=-5", "age 60, incr -5"),
        ("lengths_age=2505&lengths_incr=5", "age 2505, incr 5"),
    ],
)
async def test_ages_that_make_no_sense_are_refused(api: Api, query: str, told: str) -> None:
    answer = await api.get(f"/api/overview?{query}")
    expected = {"error": "invalid_range_parameters", "reason": f"Invalid range parameters: {told}"}
    assert (answer.status, answer.json) == (400, expected)


@pytest.mark.parametrize(
    "query", ["lengths_age=60", "lengths_age=x&lengths_incr=5", "lengths_age=&lengths_incr="]
)
async def test_without_two_numbers_no_samples_are_asked_for(api: Api, query: str) -> None:
    found = (await api.get(f"/api/overview?{query}")).json["queue_totals"]["messages_details"]
    assert found == {"rate": 0.0}


async def test_overview_adds_up_what_clients_did(used: Api) -> None:
    overview = (await used.get("/api/overview")).json
    stats = overview["message_stats"]
    assert (stats["publish"], stats["confirm"]) == (10, 10)
    assert (stats["drop_unroutable"], stats["return_unroutable"]) == (1, 1)
    assert stats["ack"] == 4
    assert stats["publish_details"]["rate"] == 2.0
    churn = overview["churn_rates"]
    assert (churn["connection_created"], churn["connection_closed"]) == (1, 1)
    assert (churn["channel_created"], churn["channel_closed"]) == (1, 1)
    assert (churn["queue_declared"], churn["queue_created"], churn["queue_deleted"]) == (1, 1, 0)


async def test_overview_counts_queues_that_were_declared_over_http(api: Api) -> None:
    for _ in range(2):
        await api.send("PUT", "/api/queues/%2F/q", {"durable": True})
    churn = (await api.get("/api/overview")).json["churn_rates"]
    assert (churn["queue_declared"], churn["queue_created"]) == (2, 1)


async def test_overview_counts_only_vhosts_that_the_user_sees(used: Api) -> None:
    seen = (await used.get("/api/overview", user="manager")).json
    assert seen["message_stats"]["publish"] == 10
    await used.request("PUT", "/api/vhosts/other")
    used.broker.node.vhosts["other"].tally.clients.published = 5
    assert (await used.get("/api/overview", user="manager")).json["message_stats"]["publish"] == 10
    assert (await used.get("/api/overview", user="monitor")).json["message_stats"]["publish"] == 15


async def test_exchange_counts_what_came_in_and_went_out(used: Api) -> None:
    stats = Stats(used.broker.sampler.timeline)
    default = stats.of_exchange(used.vhost.exchanges[""])["message_stats"]
    assert [default[name] for name in OF_EXCHANGES] == [9, 8]
    assert default["publish_out_details"] == {"rate": 1.6}
    assert stats.of_exchange(used.vhost.exchanges["amq.direct"])["message_stats"]["publish_in"] == 1
    assert stats.of_exchange(used.vhost.exchanges["amq.fanout"]) == {}


async def test_transactions_count_for_the_exchange_of_each_message(api: Api) -> None:
    def publish(channel: PikaChannel) -> None:
        channel.queue_declare("q")
        channel.queue_bind("q", "amq.fanout")
        channel.tx_select()
        channel.basic_publish("", "q", b"one")
        channel.basic_publish("amq.fanout", "", b"two")
        channel.basic_publish("amq.fanout", "", b"three")
        channel.tx_commit()

    await with_pika(api, publish)
    exchanges = api.vhost.exchanges
    assert exchanges[""].tally.figures()[:2] == (1, 1)
    assert exchanges["amq.fanout"].tally.figures()[:2] == (2, 2)


async def test_channel_and_connection_count_what_they_did(api: Api) -> None:
    def open_one(channel: PikaChannel) -> dict[str, Any]:
        traffic(channel)
        return asyncio.run_coroutine_threadsafe(look(), loop).result()

    async def look() -> dict[str, Any]:
        await api.broker.sampler.take()
        stats = Stats(api.broker.sampler.timeline)
        connection: Connection = connections_of(api.broker.node)[0]
        (channel,) = connection.open_channels()
        return {"channel": stats.of_channel(channel), "connection": stats.of_connection(connection)}

    loop = asyncio.get_running_loop()
    found = await with_pika(api, open_one)
    counts = found["channel"]["message_stats"]
    assert {
        name: counts[name] for name in ("publish", "confirm", "ack", "get", "get_no_ack", "get_empty")
    } == {
        "publish": 10,
        "confirm": 10,
        "ack": 4,
        "get": 1,
        "get_no_ack": 1,
        "get_empty": 1,
    }
    assert set(counts) == set(OF_CHANNELS) | {f"{name}_details" for name in OF_CHANNELS}
    connection = found["connection"]
    assert connection["message_stats"]["publish"] == 10
    assert connection["recv_oct"] > connection["recv_cnt"] > 0
    assert connection["send_oct"] > connection["send_cnt"] > 0
    assert connection["recv_oct_details"]["rate"] == connection["recv_oct"] / TICK_SECONDS


async def test_connection_keeps_counting_when_a_channel_is_closed(api: Api) -> None:
    def publish(channel: PikaChannel) -> int:
        channel.basic_publish("", "nowhere", b"egg")
        other = channel.connection.channel()
        channel.close()
        other.basic_publish("", "nowhere", b"egg")
        other.close()
        return connections_of(api.broker.node)[0].tally().published

    assert await with_pika(api, publish) == 2


async def test_a_deleted_vhost_leaves_its_counts(api: Api) -> None:
    await api.request("PUT", "/api/vhosts/other")
    api.broker.node.vhosts["other"].tally.clients.published = 7
    await api.request("DELETE", "/api/vhosts/other")
    assert api.broker.node.gone.clients.published == 7


async def test_a_row_has_no_column_that_nobody_counts(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"egg"])
    await api.broker.sampler.take()
    assert queue.history is not None
    kept = [name for name, column in zip(FIGURES, queue.history.columns, strict=False) if column is not None]
    assert kept == ["publish"]
    assert Stats(api.broker.sampler.timeline).of_queue(queue)["message_stats"]["ack"] == 0


async def test_queue_that_nobody_uses_any_more_tells_since_when(used: Api) -> None:
    timeline = used.broker.sampler.timeline
    assert "idle_since" not in (await used.get("/api/queues/%2F/q")).json
    used_at_ms = timeline.time_ms
    await used.broker.sampler.take()
    idle = (await used.get("/api/queues/%2F/q")).json["idle_since"]
    told_ms = 1000 * datetime.fromisoformat(idle).timestamp()
    assert told_ms == pytest.approx(timeline.time_ms - 1000 * TICK_SECONDS)
    assert told_ms == pytest.approx(used_at_ms, abs=1000 * TICK_SECONDS)
    await used.publish(used.vhost.queues["q"], [b"egg"])
    await used.broker.sampler.take()
    assert "idle_since" not in (await used.get("/api/queues/%2F/q")).json


async def test_vhost_tells_lengths_messages_and_bytes(used: Api) -> None:
    await used.publish(used.vhost.queues["q"], [b"egg"] * 10)
    await used.broker.sampler.take()
    row = (await used.get("/api/vhosts/%2F?msg_rates_age=5&msg_rates_incr=5")).json
    assert (row["messages"], row["messages_ready"], row["messages_unacknowledged"]) == (10, 10, 0)
    assert row["messages_ready_details"]["rate"] == 10 / TICK_SECONDS
    assert [sample["sample"] for sample in row["messages_details"]["samples"]] == [10, 0]
    assert row["message_stats"]["publish"] == 10
    assert [vhost["messages"] for vhost in (await used.get("/api/vhosts")).json] == [10]


async def test_vhost_counts_the_bytes_of_each_connection_once(api: Api) -> None:
    """Be the connection sampled or not, open or closed."""

    def look_twice(channel: PikaChannel) -> None:
        for _ in range(2):
            channel.basic_publish("", "nowhere", bytes(1000))
            channel.queue_declare("q")  # the publish is handled when this is answered
            asyncio.run_coroutine_threadsafe(api.broker.sampler.take(), loop).result()
        channel.basic_publish("", "nowhere", bytes(1000))

    loop = asyncio.get_running_loop()
    await with_pika(api, look_twice)
    await with_pika(api, lambda channel: channel.queue_declare("q"))
    await api.broker.sampler.take()
    row = (await api.get("/api/vhosts/%2F?data_rates_age=10&data_rates_incr=5")).json
    gone = api.broker.node.gone.bytes
    assert (row["recv_oct"], row["send_oct"]) == (gone.received, gone.sent)
    received = [sample["sample"] for sample in row["recv_oct_details"]["samples"]]
    assert received[0] == gone.received
    assert received == sorted(received, reverse=True)
    assert received[2] > 1000
