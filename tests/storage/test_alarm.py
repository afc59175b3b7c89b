"""A disk that has too little room: who publishes has to wait, who consumes goes on."""

from __future__ import annotations

import shutil
import signal

import pytest

from tests.storage.bulk import DURABLE, NumberConsumer, NumberPublisher
from tests.storage.home import Home, connected
from tests.support.channel import AmqpChannel
from tests.support.errors import SilenceError
from warren.amqp import methods as m

MESSAGES = 1_000


@pytest.fixture
def home(home: Home) -> Home:
    """A full queue, and a broker to come that finds too little room."""
    with home.life() as channel:
        channel.declare("q", exclusive=False, durable=True)
        NumberPublisher(channel, "q").publish(range(MESSAGES))
    home.settings["disk_free_limit"] = shutil.disk_usage(home.path).total * 2
    return home


def publish_until_blocked(channel: AmqpChannel) -> m.ConnectionBlocked:
    """What is published before the alarm is raised is confirmed."""
    while True:
        channel.publish("", "q", b"first", DURABLE)
        frame = channel.client.read_any_frame()
        if frame.channel == 0:
            blocked = m.decode_method(frame.payload)
            assert isinstance(blocked, m.ConnectionBlocked), frame
            return blocked


def test_publisher_is_blocked_for_the_disk_and_consumer_goes_on(home: Home) -> None:
    with home.broker(ends_by=signal.SIGKILL) as process, connected(process) as publishing:
        publishing.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        assert "disk" in publish_until_blocked(publishing).reason
        publishing.publish("", "q", b"second", DURABLE)
        with connected(process) as consuming:
            numbers = [delivered.number for delivered in NumberConsumer(consuming, "q").drain(MESSAGES)]
            assert numbers == list(range(MESSAGES))
        with connected(process) as other:
            assert b"second" not in other.drain("q")
            publishing.client.wait_seconds_max = 0.1
            with pytest.raises(SilenceError):  # it is not read
                publishing.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    assert '"alarm raised"' in home.log()
