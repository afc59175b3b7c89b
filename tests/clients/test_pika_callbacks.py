"""pika's callback adapter: it sees each confirm, single or cumulative, as it was sent."""

from __future__ import annotations

from typing import Any

import pika

from tests.clients.conftest import WAIT_SECONDS_MAX
from tests.support.process import Address


class ConfirmedPublishing:
    """Publishes all without waiting, then reads the confirms as they come."""

    def __init__(self, broker: Address, queue: str, count: int) -> None:
        self.queue = queue
        self.count = count
        self.outstanding = set(range(1, count + 1))
        self.ready_count = -1
        self.failure: object = None
        self.connection = pika.SelectConnection(
            pika.ConnectionParameters(host=broker.host, port=broker.port),
            on_open_callback=self.open_channel,
            on_open_error_callback=self.fail,
            on_close_callback=lambda connection, _reason: connection.ioloop.stop(),
        )
        self.connection.ioloop.call_later(WAIT_SECONDS_MAX, lambda: self.fail(self.connection, "too slow"))

    def fail(self, connection: pika.SelectConnection, reason: object) -> None:
        self.failure = reason
        connection.ioloop.stop()

    def open_channel(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self.declare)

    def declare(self, channel: Any) -> None:
        self.channel = channel
        channel.confirm_delivery(self.take_confirm)
        channel.queue_declare(self.queue, exclusive=True, callback=self.publish)

    def publish(self, _frame: Any) -> None:
        for number in range(self.count):
            self.channel.basic_publish("", self.queue, b"%d" % number)

    def take_confirm(self, frame: Any) -> None:
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        last = frame.method.delivery_tag
        covered = {tag for tag in self.outstanding if tag <= last} if frame.method.multiple else {last}
        assert covered, f"{last} was confirmed already"
        assert covered <= self.outstanding
        self.outstanding -= covered
        if not self.outstanding:
            self.channel.queue_declare(self.queue, passive=True, callback=self.finish)

    def finish(self, frame: Any) -> None:
        self.ready_count = frame.method.message_count
        self.connection.close()


def test_confirms_cover_each_of_many_outstanding_messages_once(broker: Address, name: str) -> None:
    run = ConfirmedPublishing(broker, name, count=1_000)
    run.connection.ioloop.start()
    run.connection.ioloop.close()
    assert run.failure is None
    assert run.outstanding == set()
    assert run.ready_count == 1_000
