"""Many more queues than files may be open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.storage.bulk import DURABLE
from tests.storage.home import Home, connected, open_files_below
from tests.support.channel import AmqpChannel
from tests.support.frames import method_frame, published
from tests.support.process import BrokerProcess
from warren.amqp import methods as m

QUEUES = 1_500
OPEN_FILES_MAX = 64
LOOK_SECONDS = 0.005
OTHER_FILES_MAX = 16
"""Beside the files of queues: the lock, the definitions, and the directories whose names a round syncs."""


@pytest.fixture
def home(home: Home) -> Home:
    home.settings["open_files_max"] = OPEN_FILES_MAX
    return home


def names() -> list[str]:
    return [f"q{number}" for number in range(QUEUES)]


def declare_all(channel: AmqpChannel) -> None:
    declares = (m.QueueDeclare(queue=name, durable=True, no_wait=True, arguments={}) for name in names())
    channel.client.send_raw(b"".join(method_frame(1, declare) for declare in declares))
    channel.declare()


def publish_to_all(channel: AmqpChannel, *bodies: bytes) -> None:
    """One message after the other to each queue, all at once, so that few rounds have to write them all."""
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    data = (published("", name, body, DURABLE) for name in names() for body in bodies)
    channel.client.send_raw(b"".join(data))


def wait_for_confirms(channel: AmqpChannel, count: int) -> None:
    while channel.expect(m.BasicAck).delivery_tag < count:
        pass


class Watch:
    """Looks all the time at how many files the broker has open in its data directory."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self.most = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(LOOK_SECONDS):
            self.most = max(self.most, open_files_below(self.process, self.process.data_dir))


@contextmanager
def watched(process: BrokerProcess) -> Iterator[Watch]:
    watch = Watch(process)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        yield watch
    finally:
        watch.ended.set()
        thread.join()


def test_open_files_stay_within_their_limit_and_every_queue_keeps_its_messages(home: Home) -> None:
    bodies = [b"1", b"2", b"3"]
    with home.broker() as process, connected(process) as channel, watched(process) as watch:
        declare_all(channel)
        publish_to_all(channel, *bodies)
        wait_for_confirms(channel, QUEUES * len(bodies))
    assert 0 < watch.most <= OPEN_FILES_MAX + OTHER_FILES_MAX
    with home.broker() as process, connected(process) as channel, watched(process) as watch:
        for name in names():
            gets = [m.BasicGet(queue=name, no_ack=True)] * len(bodies)
            channel.client.send_raw(b"".join(method_frame(1, get) for get in gets))
        for _ in names():
            assert [channel.expect_content(m.BasicGetOk).body for _ in bodies] == bodies
    assert 0 < watch.most <= OPEN_FILES_MAX + OTHER_FILES_MAX


def test_queues_can_be_deleted_while_they_wait_to_be_written(home: Home) -> None:
    home.settings["open_files_max"] = 16
    with home.broker() as process, connected(process) as channel, connected(process) as other:
        declare_all(channel)
        publish_to_all(channel, b"x")
        deletes = (m.QueueDelete(queue=name, no_wait=True) for name in reversed(names()))
        other.client.send_raw(b"".join(method_frame(1, delete) for delete in deletes))
        wait_for_confirms(channel, QUEUES)
        other.declare()
    with home.life() as channel:
        assert list((home.data_dir / "queues").iterdir()) == []
        declare_all(channel)
