"""Who does not go on, or does not answer, is dropped in time, whatever it says. The clock is the test's."""

from __future__ import annotations

import pytest

from tests.support.fakes import FakeBroker
from tests.support.frames import handshake
from warren.amqp import methods as m
from warren.session.liveness import CLOSE_SECONDS_MAX, HANDSHAKE_SECONDS_MAX

SECOND = 1.0
WORDS = b"".join(handshake())


@pytest.mark.parametrize("said", range(len(WORDS)))
def test_client_that_never_finishes_the_handshake_is_dropped(said: int) -> None:
    broker = FakeBroker()
    client = broker.connect()
    client.feed(WORDS[:said])
    broker.pass_time(HANDSHAKE_SECONDS_MAX - SECOND)
    assert not client.link.is_closed
    broker.pass_time(2 * SECOND)
    assert client.link.is_closed
    assert not broker.node.clients


def test_client_that_says_the_handshake_too_slowly_is_dropped() -> None:
    """Each byte is a sign of life, but does not buy more time."""
    broker = FakeBroker()
    client = broker.connect()
    for octet in WORDS:
        client.feed(bytes((octet,)))
        broker.pass_time(SECOND)
        if client.link.is_closed:
            break
    assert client.link.is_closed
    assert not broker.node.clients


def test_client_that_talks_on_but_never_answers_connection_close_is_dropped() -> None:
    broker = FakeBroker()
    client = broker.connect().open()
    client.send(m.QueueDeclare(queue="x", arguments={}), 7)
    broker.pass_time(CLOSE_SECONDS_MAX)
    assert not client.link.is_closed
    client.send(m.QueueDeclare(queue="x", arguments={}), 7)
    broker.pass_time(SECOND)
    assert client.link.is_closed
    assert not broker.node.clients


def test_client_that_never_answers_channel_close_stays_connected() -> None:
    broker = FakeBroker()
    client = broker.connect().open()
    client.send(m.BasicGet(queue="missing"))
    broker.pass_time(10 * CLOSE_SECONDS_MAX)
    client.call(m.ChannelOpen(), m.ChannelOpenOk, channel=2)
