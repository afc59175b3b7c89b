"""The watermarks of memory and disk change while the broker runs: an operator writes them into the file of
settings and sends SIGHUP. Clients are blocked and let on at once, and stay connected.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.clients.conftest import serve_until
from tests.support.management_client import ManagementClient
from tests.support.process import BrokerProcess

HIGH = {"memory_watermark": 2**50, "disk_free_limit": 1}
REACHED = {"memory_watermark": 1_000_000, "disk_free_limit": 2**60}
ALARMS = {"memory_watermark": "mem_alarm", "disk_free_limit": "disk_free_alarm"}
LIMITS = {"memory_watermark": "mem_limit", "disk_free_limit": "disk_free_limit"}


class Operator:
    """Changes settings of a broker that runs."""

    def __init__(self, settings: Path) -> None:
        self.settings = settings
        self.write({})

    def write(self, changed: dict[str, int]) -> None:
        lines = [f"{name} = {value}" for name, value in (HIGH | changed).items()]
        self.settings.write_text("\n".join(lines))

    def reload(self, broker: BrokerProcess, changed: dict[str, int]) -> None:
        self.write(changed)
        broker.process.send_signal(signal.SIGHUP)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path / "warren.toml")


@pytest.fixture
def broker(tmp_path: Path, operator: Operator) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", "--config", str(operator.settings)) as process:
        yield process
        process.check_log()


@pytest.mark.parametrize("setting", ALARMS)
def test_watermark_is_reloaded(broker: BrokerProcess, operator: Operator, setting: str, name: str) -> None:
    api = ManagementClient(broker.http_url)

    def node() -> tuple[bool, int]:
        """Whether the alarm is on, and the limit in force."""
        [row] = api.call("GET", "nodes")
        return row[ALARMS[setting]], row[LIMITS[setting]]

    seen: list[str] = []
    with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
        connection.add_on_connection_blocked_callback(lambda *_: seen.append("blocked"))
        connection.add_on_connection_unblocked_callback(lambda *_: seen.append("unblocked"))
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True)
        assert node() == (False, HIGH[setting])
        operator.reload(broker, {setting: REACHED[setting]})
        serve_until(lambda: connection.process_data_events(0.05), lambda: node() == (True, REACHED[setting]))
        channel.basic_publish("", name, b"waits")
        serve_until(lambda: connection.process_data_events(0.05), lambda: seen == ["blocked"])
        operator.reload(broker, {})
        serve_until(lambda: connection.process_data_events(0.05), lambda: seen == ["blocked", "unblocked"])
        assert node() == (False, HIGH[setting])
        assert channel.queue_declare(name, passive=True).method.message_count == 1
