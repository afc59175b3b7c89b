"""A stream that this node has led, until another object takes its place."""

from __future__ import annotations

import pytest

from tests.support.fakes import FakeWorld, make_node
from warren.amqp.errors import ResourceLocked
from warren.broker.entry import Entry
from warren.broker.message import Message
from warren.broker.outcome import REFUSED
from warren.broker.stream import Stream

MESSAGE = Message(b"\0", b"\x01s", b"\0\0", b"body", True)


def test_stream_without_its_log_takes_nothing_and_says_why() -> None:
    vhost = make_node(FakeWorld()).vhosts["/"]
    arguments = {"x-queue-type": "stream"}
    stream = Stream("s", "/", vhost.surroundings, durable=True, arguments=arguments)
    vhost.add_queue(stream)
    vhost.retire_queue(stream)
    assert stream.publish(MESSAGE) == REFUSED
    assert stream.lags() == {}
    with pytest.raises(ResourceLocked, match="not led by this node"):
        stream.next_offset  # noqa: B018 - it raises
    stream.settle(Entry(MESSAGE, stream, 1))
    assert stream.length() == 0
