"""`/metrics` and the paths below it, in the form that Prometheus reads."""

from __future__ import annotations

import asyncio
import math
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import aiohttp
import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.http_api import Api, make_broker
from warren import commands
from warren.management.prometheus import OF_NODE
from warren.management.prometheus_groups import EVERY_OBJECT, GROUPS
from warren.management.prometheus_service import prometheus_service
from warren.management.prometheus_text import escape, labels_text
from warren.relay.service import Relays
from warren.server.metrics import Histogram, Metric

TYPES = ("classic", "quorum", "stream")


async def text_of(api: Api, path: str = "", user: str = "monitor") -> str:
    answer = await api.get(f"/metrics{path}", user=user)
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return answer.body.decode()


async def samples(api: Api, path: str = "", user: str = "monitor") -> list[Sample]:
    """All samples. No family may come twice, and no series."""
    families = list(text_string_to_metric_families(await text_of(api, path, user)))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert all(family.type in {"gauge", "counter", "histogram"} for family in families)
    found = [sample for family in families for sample in family.samples]
    series = [(sample.name, *sorted(sample.labels.items())) for sample in found]
    assert len(series) == len(set(series))
    return found


async def numbers(api: Api, path: str = "") -> dict[str, float]:
    """The samples by name; those with labels are added up."""
    added: dict[str, float] = {}
    for sample in await samples(api, path):
        added[sample.name] = added.get(sample.name, 0) + sample.value
    return added


def publish_and_consume(api: Api) -> None:
    with pika.BlockingConnection(pika.URLParameters(api.broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.confirm_delivery()
        for _ in range(20):
            channel.basic_publish("", "q", b"egg")
        channel.basic_publish("", "nowhere", b"egg")
        for _ in range(5):
            method, _properties, _body = channel.basic_get("q")
            channel.basic_ack(method.delivery_tag)
        channel.basic_get("q", auto_ack=True)


async def test_nobody_needs_to_log_in_to_see_how_much_there_is(api: Api) -> None:
    await api.publish(api.declare("some"), [b"egg"] * 30)
    assert await samples(api, user="")
    found = await numbers(api)
    assert found["rabbitmq_queues"] == 1
    assert found["rabbitmq_queue_messages_ready"] == found["rabbitmq_queue_messages"] == 30
    assert found["rabbitmq_queue_messages_ready_bytes"] == 90
    assert found["rabbitmq_queue_messages_unacked"] == 0
    assert found["rabbitmq_connections"] == found["rabbitmq_channels"] == found["rabbitmq_consumers"] == 0
    assert found["rabbitmq_process_resident_memory_bytes"] > 0
    assert 0 < found["warren_memory_used_bytes"] < found["rabbitmq_resident_memory_limit_bytes"]
    assert found["warren_memory_bytes"] > 0
    assert found["rabbitmq_disk_space_available_bytes"] > found["rabbitmq_disk_space_available_limit_bytes"]
    assert 0 < found["rabbitmq_process_open_fds"] < found["rabbitmq_process_max_fds"]


async def test_metrics_of_the_whole_broker_name_no_queue_vhost_or_user(api: Api) -> None:
    api.declare("secret")
    for path in ("", "/memory-breakdown"):
        assert "secret" not in await text_of(api, path, user="")


async def test_global_counters_tell_what_clients_did_even_when_they_are_gone(api: Api) -> None:
    await asyncio.to_thread(publish_and_consume, api)
    found = await numbers(api)
    expected = {
        "rabbitmq_global_messages_received_total": 21,
        "rabbitmq_global_messages_received_confirm_total": 21,
        "rabbitmq_global_messages_confirmed_total": 21,
        "rabbitmq_global_messages_routed_total": 20,
        "rabbitmq_global_messages_unroutable_dropped_total": 1,
        "rabbitmq_global_messages_unroutable_returned_total": 0,
        "rabbitmq_global_messages_delivered_total": 6,
        "rabbitmq_global_messages_delivered_get_manual_ack_total": 5,
        "rabbitmq_global_messages_delivered_get_auto_ack_total": 1,
        "rabbitmq_global_messages_delivered_consume_manual_ack_total": 0,
        "rabbitmq_global_messages_acknowledged_total": 5,
        "rabbitmq_channel_messages_published_total": 21,
        "rabbitmq_channel_get_ack_total": 5,
        "rabbitmq_channel_get_total": 1,
        "rabbitmq_queue_messages_published_total": 20,
        "rabbitmq_connections_opened_total": 1,
        "rabbitmq_connections_closed_total": 1,
        "rabbitmq_channels_opened_total": 1,
        "rabbitmq_queues_declared_total": 1,
        "rabbitmq_queues_created_total": 1,
        "rabbitmq_queues_deleted_total": 0,
        "rabbitmq_queue_messages_ready": 14,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["rabbitmq_connection_incoming_bytes_total"] > 21 * 30
    assert found["rabbitmq_connection_outgoing_packets_total"] > 0


async def test_global_counters_have_rabbitmqs_labels(api: Api) -> None:
    by_name: dict[str, list[dict[str, str]]] = {}
    for sample in await samples(api):
        by_name.setdefault(sample.name, []).append(sample.labels)
    assert by_name["rabbitmq_global_messages_received_total"] == [{"protocol": "amqp091"}]
    assert by_name["rabbitmq_global_messages_acknowledged_total"] == [
        {"protocol": "amqp091", "queue_type": f"rabbit_{kind}_queue"} for kind in TYPES
    ]
    (identity,) = by_name["rabbitmq_identity_info"]
    assert (identity["rabbitmq_node"], identity["rabbitmq_cluster"]) == ("warren", "warren")
    assert identity["rabbitmq_cluster_permanent_id"]
    (build,) = by_name["rabbitmq_build_info"]
    assert build["product_name"] == "WarrenMQ"


async def test_counters_never_go_down(api: Api) -> None:
    await asyncio.to_thread(publish_and_consume, api)
    before = await numbers(api)
    api.broker.execute(commands.DeleteQueue(vhost="/", name="q"))
    await api.request("DELETE", "/api/vhosts/%2F")
    after = await numbers(api)
    fell = {name for name in before if name.endswith("_total") and after[name] < before[name]}
    assert not fell


async def test_each_queue_has_its_series(api: Api) -> None:
    await api.publish(api.declare("a"), [b"egg"] * 3)
    api.declare('quo"ted\\')
    ready = {
        sample.labels["queue"]: sample.value
        for sample in await samples(api, "/per-object")
        if sample.name == "rabbitmq_queue_messages_ready"
    }
    assert ready == {"a": 3, 'quo"ted\\': 0}


async def test_each_connection_and_channel_has_its_series(api: Api) -> None:
    def work() -> list[Sample]:
        with pika.BlockingConnection(pika.URLParameters(api.broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            channel.basic_qos(prefetch_count=7)
            channel.basic_consume("q", lambda *_args: None)
            channel.basic_publish("", "q", b"egg")
            channel.queue_declare("q", passive=True)
            return asyncio.run_coroutine_threadsafe(samples(api, "/per-object"), loop).result()

    loop = asyncio.get_running_loop()
    found = {sample.name: sample for sample in await asyncio.to_thread(work)}
    published = found["rabbitmq_channel_messages_published_total"]
    assert published.value == 1
    assert published.labels["channel"].endswith(" (1)")
    assert found["rabbitmq_consumer_prefetch"].value == 7
    assert found["rabbitmq_channel_consumers"].value == 1
    assert found["rabbitmq_channel_messages_unacked"].value == 1
    assert found["rabbitmq_connection_channels"].value == 1
    assert found["rabbitmq_connection_incoming_bytes_total"].value > 0


@pytest.mark.parametrize("group", [*GROUPS, *OF_NODE, "connection_churn_metrics"])
async def test_detailed_gives_each_family(api: Api, group: str) -> None:
    api.declare("q")
    found = await samples(api, f"/detailed?family={group}")
    names = {sample.name for sample in found} - {"rabbitmq_identity_info", "rabbitmq_build_info"}
    assert all(name.startswith(("rabbitmq_detailed_", "rabbitmq_cluster_")) for name in names)
    assert names or group.startswith(("channel_", "connection_"))  # there are neither


async def test_detailed_gives_only_what_is_asked_for(api: Api) -> None:
    await api.request("PUT", "/api/vhosts/other")
    api.declare("q")
    api.broker.execute(commands.DeclareQueue(vhost="other", name="q"))
    path = (
        "/detailed?family=queue_coarse_metrics&family=queue_consumer_count&family=queue_metrics&vhost=other"
    )
    found = [sample for sample in await samples(api, path) if "queue" in sample.labels]
    assert {sample.labels["vhost"] for sample in found} == {"other"}
    assert {sample.name for sample in found} == {
        "rabbitmq_detailed_queue_messages_ready",
        "rabbitmq_detailed_queue_messages_unacked",
        "rabbitmq_detailed_queue_messages",
        "rabbitmq_detailed_queue_consumers",
        "rabbitmq_detailed_queue_messages_ready_bytes",
    }


async def test_detailed_gives_nothing_unless_asked(api: Api) -> None:
    api.declare("q")
    for path in ("/detailed", "/detailed?family=nonsense"):
        found = {sample.name for sample in await samples(api, path)}
        assert found == {"rabbitmq_identity_info", "rabbitmq_build_info"}


async def test_memory_is_broken_down(api: Api) -> None:
    found = await numbers(api, "/memory-breakdown")
    assert found["rabbitmq_memory_other_bytes"] > 0
    assert "rabbitmq_memory_messages_ready_bytes" in found


async def test_readers_of_streams_tell_how_far_they_are_behind(api: Api) -> None:
    stream = api.declare("events", queue_type="stream")
    await api.publish(stream, [b"egg"] * 10)
    answer = await api.request("PUT", "/api/streams/%2F/events/offsets/archive", data=b'{"offset": 6}')
    assert answer.status == 204
    assert (await numbers(api))["warren_stream_reader_lag_max"] == 3
    (lag,) = [s for s in await samples(api, "/per-object") if s.name == "warren_stream_reader_lag"]
    assert (lag.labels, lag.value) == ({"vhost": "/", "queue": "events", "reader": "archive"}, 3)


async def test_a_stream_consumer_tells_how_far_it_is_behind(api: Api) -> None:
    def work() -> float:
        with pika.BlockingConnection(pika.URLParameters(api.broker.url)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=2)
            first = {"x-stream-offset": "first"}
            channel.basic_consume("events", lambda *_args: None, consumer_tag="slow", arguments=first)
            channel.queue_declare("events", passive=True)
            found = asyncio.run_coroutine_threadsafe(numbers(api), loop).result()
            return found["warren_stream_reader_lag_max"]

    loop = asyncio.get_running_loop()
    await api.publish(api.declare("events", queue_type="stream"), [b"egg"] * 10)
    assert await asyncio.to_thread(work) == 8


async def test_alarms_are_metrics(api: Api) -> None:
    names = ("rabbitmq_alarms_memory_used_watermark", "rabbitmq_alarms_free_disk_space_watermark")
    before = await numbers(api)
    api.broker.node.raise_alarm("disk")
    after = await numbers(api)
    assert [(before[name], after[name]) for name in names] == [(0, 0), (0, 1)]
    assert after["rabbitmq_alarms_file_descriptor_limit"] == 0


async def test_slow_turns_are_counted(api: Api) -> None:
    watchdog = api.broker.world.watchdog
    now = watchdog.now()
    watchdog.now = lambda: now  # a clock that stands still, so that no other turn is slow on a busy machine
    watchdog.known_until = watchdog.longest_seconds = 0.0
    before = (await numbers(api))["warren_slow_turns_total"]
    watchdog.ended(now - 1.5, lambda: {"what": "a turn of 1.5 s"})
    after = await numbers(api)
    assert after["warren_slow_turns_total"] == before + 1
    assert after["warren_slow_turn_seconds_max"] == pytest.approx(1.5)
    (node,) = (await api.get("/api/nodes")).json
    assert (node["slow_turns"], node["slow_turn_ms_max"]) == (before + 1, 1_500)


async def test_late_beats_are_a_histogram(api: Api) -> None:
    watchdog = api.broker.world.watchdog
    before = (await numbers(api))["warren_loop_lag_seconds_count"]
    watchdog.beat(watchdog.now())
    after = await numbers(api)
    assert after["warren_loop_lag_seconds_count"] > before
    assert after["warren_loop_lag_seconds_sum"] >= 0


async def test_disk_rounds_are_a_histogram(api: Api) -> None:
    queue = api.declare("q")
    before = await numbers(api)
    await api.publish(queue, [b"egg"])
    after = await numbers(api)
    assert after["warren_disk_round_seconds_count"] > before["warren_disk_round_seconds_count"]
    assert after["warren_disk_round_seconds_sum"] > before["warren_disk_round_seconds_sum"]
    assert after["warren_disk_written_bytes_total"] > before["warren_disk_written_bytes_total"]


def test_histogram_counts_values_by_their_size() -> None:
    histogram = Histogram(0.1, 1.0)
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    found = [(suffix, labels.get("le"), number) for suffix, labels, number in histogram.samples()]
    assert found[:3] == [("_bucket", "0.1", 2), ("_bucket", "1.0", 3), ("_bucket", "+Inf", 4)]
    assert found[3][:2] == ("_sum", None)
    assert math.isclose(found[3][2], 7.65)
    assert found[4] == ("_count", None, 4)


async def test_anybody_may_add_a_number(api: Api) -> None:
    api.broker.metrics.add(
        Metric(name="warren_eggs", text="Eggs", read=lambda: {"brown": 3, "white": 4.5}, label="kind")
    )
    eggs = [s for s in await samples(api) if s.name == "warren_eggs"]
    assert [(s.labels, s.value) for s in eggs] == [({"kind": "brown"}, 3), ({"kind": "white"}, 4.5)]


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("plain", "plain"),
        ('a"b', r"a\"b"),
        ("a\\b", r"a\\b"),
        ("a\nb", r"a\nb"),
        ("ü", "ü"),
        ("\udcff", r"\\udcff"),
    ],
)
def test_labels_are_escaped(value: str, escaped: str) -> None:
    assert escape(value) == escaped
    assert labels_text({"name": value}) == f'{{name="{escaped}"}}'


def test_no_metric_of_objects_is_in_two_groups() -> None:
    assert set(EVERY_OBJECT) <= set(GROUPS)


async def test_metrics_of_objects_need_a_login(api: Api) -> None:
    for path in ("/metrics/per-object", "/metrics/detailed?family=queue_metrics"):
        assert (await api.get(path, user="")).status == 401
        assert (await api.get(path, user="manager")).status == 401


async def test_a_port_of_their_own_needs_no_login(api: Api) -> None:
    api.declare("q")
    api.broker.config = replace(api.broker.config, prometheus_port=0)
    service = prometheus_service(api.broker)
    await service.start()
    try:
        for path in ("", "/per-object", "/detailed?family=queue_metrics", "/memory-breakdown"):
            async with api.session.get(f"http://{service.address}/metrics{path}") as answer:
                assert answer.status == 200
                assert list(text_string_to_metric_families(await answer.text()))
        async with api.session.get(f"http://{service.address}/api/queues") as answer:
            assert answer.status == 404
    finally:
        await service.stop()


async def test_broker_starts_the_service_if_its_port_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories = {"prometheus": prometheus_service, "relays": Relays}
    monkeypatch.setattr("warren.server.app.load_service", factories.__getitem__)
    async with (
        make_broker(tmp_path / "data", http_port=-1, prometheus_port=0) as broker,
        aiohttp.ClientSession() as session,
        session.get(f"http://{broker.services['prometheus'].address}/metrics") as answer,
    ):
        assert answer.status == 200
        assert b"rabbitmq_queues 0\n" in await answer.read()


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is part of Debian's package prometheus"
)
@pytest.mark.parametrize("path", ["", "/per-object", "/memory-breakdown"])
async def test_promtool_can_read_it(api: Api, path: str) -> None:
    """promtool also has opinions about names: RabbitMQ's are as they are."""
    await asyncio.to_thread(publish_and_consume, api)
    text = await text_of(api, path)
    checked = await asyncio.to_thread(
        subprocess.run,
        ["promtool", "check", "metrics"],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    assert b"error while" not in checked.stderr, checked.stderr
    ours = [line for line in (checked.stdout + checked.stderr).splitlines() if line.startswith(b"warren_")]
    assert not ours


async def test_node_keeps_its_name_when_the_cluster_is_renamed(api: Api) -> None:
    await api.put("/api/cluster-name", {"name": "north"})
    (identity,) = [each.labels for each in await samples(api) if each.name == "rabbitmq_identity_info"]
    assert (identity["rabbitmq_node"], identity["rabbitmq_cluster"]) == ("warren", "north")
