"""`/metrics` in the form that Prometheus reads."""

from __future__ import annotations

import re

import pytest

from tests.support.http_api import Api
from warren.server.metrics import Metric

SAMPLE = re.compile(r'([a-z_]+)(?:\{kind="([a-z_]+)"\})? (\d+(?:\.\d+)?)')


async def metrics(api: Api) -> dict[str, float]:
    """The samples by name; each must follow its HELP and TYPE lines."""
    async with api.session.get(f"http://{api.broker.services['http'].address}/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = (await answer.text()).splitlines()
    found: dict[str, float] = {}
    described: set[str] = set()
    for line in lines:
        if line.startswith("# TYPE "):
            described.add(line.split()[2])
        elif not line.startswith("#"):
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            name, kind, number = sample.groups()
            assert name in described
            found[f"{name} {kind}" if kind else name] = float(number)
    return found


async def test_nobody_needs_to_log_in_to_see_how_much_there_is(api: Api) -> None:
    await api.publish(api.declare("some"), [b"egg"] * 30)
    found = await metrics(api)
    assert found["rabbitmq_queues"] == 1
    assert found["rabbitmq_queue_messages_ready"] == 30
    assert found["rabbitmq_queue_messages_unacked"] == 0
    assert found["rabbitmq_connections"] == found["rabbitmq_channels"] == found["rabbitmq_consumers"] == 0
    assert found["rabbitmq_process_resident_memory_bytes"] > 0
    assert 0 < found["warren_memory_used_bytes"] < found["rabbitmq_resident_memory_limit_bytes"]
    assert found["warren_memory_bytes other"] > 0
    assert found["rabbitmq_disk_space_available_bytes"] > found["rabbitmq_disk_space_available_limit_bytes"]


async def test_alarms_are_metrics(api: Api) -> None:
    names = ("rabbitmq_alarms_memory_used_watermark", "rabbitmq_alarms_free_disk_space_watermark")
    before = await metrics(api)
    api.broker.node.raise_alarm("disk")
    after = await metrics(api)
    assert [(before[name], after[name]) for name in names] == [(0, 0), (0, 1)]


async def test_slow_turns_are_counted(api: Api) -> None:
    watchdog = api.broker.world.watchdog
    now = watchdog.now()
    watchdog.now = lambda: now  # a clock that stands still, so that no other turn is slow on a busy machine
    watchdog.known_until = watchdog.longest_seconds = 0.0
    before = (await metrics(api))["warren_slow_turns_total"]
    watchdog.ended(now - 1.5, lambda: {"what": "a turn of 1.5 s"})
    after = await metrics(api)
    assert after["warren_slow_turns_total"] == before + 1
    assert after["warren_slow_turn_seconds_max"] == pytest.approx(1.5)
    (node,) = (await api.get("/api/nodes")).json
    assert (node["slow_turns"], node["slow_turn_ms_max"]) == (before + 1, 1_500)


async def test_anybody_may_add_a_number(api: Api) -> None:
    api.broker.metrics.add(
        Metric(name="warren_eggs", text="Eggs", read=lambda: {"brown": 3, "white": 4.5}, label="kind")
    )
    found = await metrics(api)
    assert (found["warren_eggs brown"], found["warren_eggs white"]) == (3, 4.5)
