"""Every series that the dashboard and the alert rules name is served, and so are those of RabbitMQ's own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.http_api import Api

PACKAGING = Path(__file__).parents[3] / "packaging"
DASHBOARD = PACKAGING / "grafana" / "warren.json"
ALERTS = PACKAGING / "prometheus" / "alerts.yml"
SERIES = re.compile(r"\b(?:rabbitmq|warren|erlang)_[a-z0-9_]+")
LABELS = {"rabbitmq_node", "rabbitmq_cluster"}
OVERVIEW = """
    build_info identity_info queue_messages_ready queue_messages_unacked queue_messages channels
    connections queues consumers resident_memory_limit_bytes process_resident_memory_bytes
    disk_space_available_bytes disk_space_available_limit_bytes process_max_fds process_open_fds
    process_max_tcp_sockets process_open_tcp_sockets channels_opened_total channels_closed_total
    connections_opened_total connections_closed_total queues_declared_total queues_created_total
    queues_deleted_total global_publishers global_consumers global_messages_received_total
    global_messages_received_confirm_total global_messages_confirmed_total global_messages_routed_total
    global_messages_unroutable_dropped_total global_messages_unroutable_returned_total
    global_messages_delivered_total global_messages_redelivered_total
    global_messages_delivered_consume_auto_ack_total global_messages_delivered_consume_manual_ack_total
    global_messages_delivered_get_auto_ack_total global_messages_delivered_get_manual_ack_total
    global_messages_get_empty_total global_messages_acknowledged_total
"""
"""What the panels of RabbitMQ-Overview ask for, without `rabbitmq_`."""


async def served(api: Api) -> set[str]:
    text = (await api.get("/metrics", user="")).body.decode()
    return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def series_in(*expressions: str) -> set[str]:
    return {name for expression in expressions for name in SERIES.findall(expression)} - LABELS


async def test_every_series_of_the_dashboard_is_served(api: Api) -> None:
    asked = series_in(*(target["expr"] for panel in panels() for target in panel.get("targets", ())))
    assert len(asked) > 30
    assert asked <= await served(api)


async def test_every_series_of_the_alerts_is_served(api: Api) -> None:
    asked = series_in(*(rule["expr"] for rule in rules()))
    assert len(asked) > 10
    assert asked <= await served(api)


async def test_every_series_of_rabbitmqs_overview_is_served(api: Api) -> None:
    assert {f"rabbitmq_{name}" for name in OVERVIEW.split()} <= await served(api)


def test_panels_have_their_own_place_and_explain_themselves() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _y in cells) < 24
        taken |= cells
        assert panel["type"] == "row" or panel["description"]


def test_alerts_look_at_shovels_and_federation_links() -> None:
    asked = series_in(*(rule["expr"] for rule in rules()))
    assert {"rabbitmq_shovel_dynamic", "rabbitmq_shovel_static", "warren_federation_links"} <= asked


def test_alerts_say_how_bad_it_is_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is part of Debian's package prometheus"
)
def test_promtool_takes_the_alerts() -> None:
    checked = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
