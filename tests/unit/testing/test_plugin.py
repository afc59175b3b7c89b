"""The pytest plugin for other projects: pytest finds the fixture `warren_broker` by itself."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from warren.server.config_error import ConfigError
from warren.testing import BrokerThread, RoomInBroker

pytest_plugins = ["pytester"]

QUEUE = "orders"


def messages_after_publishing(url: str) -> int:
    """Publish one more message to a queue; return how many it has then."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(QUEUE, durable=True)
        channel.basic_publish("", QUEUE, b"one")
        declared = channel.queue_declare(QUEUE, passive=True)
        return int(declared.method.message_count)


@pytest.mark.parametrize("attempt", [1, 2])
def test_each_test_has_a_vhost_of_its_own(warren_broker: RoomInBroker, attempt: int) -> None:
    assert messages_after_publishing(warren_broker.url) == 1, attempt


def test_vhost_goes_with_the_test_though_a_client_is_connected(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as thread:
        with thread.room() as room:
            connection = pika.BlockingConnection(pika.URLParameters(room.url))
            connection.channel().queue_declare(QUEUE)
        assert room.vhost not in thread.call(lambda broker: set(broker.node.vhosts))
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="is deleted"):
            connection.process_data_events(time_limit=None)


def test_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, where a directory should be")
    with pytest.raises((ConfigError, OSError)), BrokerThread(tmp_path / "data"):
        pytest.fail("it has started")


def test_project_needs_nothing_but_the_name_of_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pika

        def test_order_is_sent(warren_broker):
            with pika.BlockingConnection(pika.URLParameters(warren_broker.url)) as connection:
                channel = connection.channel()
                channel.queue_declare("orders")
                channel.basic_publish("", "orders", b"one")
                assert channel.basic_get("orders", auto_ack=True)[2] == b"one"
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
