"""A publisher that never pauses: the backlog stays bounded, and nobody waits for ever."""

from __future__ import annotations

import threading

from tests.stress.conftest import Connect
from tests.support.channel import AmqpChannel
from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from tests.support.frames import HEADER, method_frame, published
from warren.amqp import methods as m
from warren.broker.flow import HIGH_MESSAGES

MESSAGES = 200_000
READ_MESSAGES = 2_000  # what one read from a socket brings
TURN_SECONDS = 0.001
READ = published("", "busy", b"x" * 16) * READ_MESSAGES


def opened(broker: FakeBroker) -> FakeClient:
    client = broker.connect().open()
    client.declare("busy")
    return client


class Consumer:
    """Acks at most so many messages a turn."""

    def __init__(self, broker: FakeBroker, acks_a_turn: int) -> None:
        self.acks_a_turn = acks_a_turn
        self.got = self.acked = 0
        self.client = opened(broker)
        self.client.call(m.BasicQos(prefetch_count=1_000), m.BasicQosOk)
        self.client.consume("busy")

    def take(self) -> None:
        self.got += sum(frame.kind == HEADER for frame in self.client.frames())

    def turn(self) -> None:
        self.take()
        acks = min(self.got - self.acked, self.acks_a_turn)
        if acks:
            self.acked += acks
            self.client.feed(method_frame(1, m.BasicAck(delivery_tag=self.acked, multiple=True)))


def publish_until_held(publisher: FakeClient) -> None:
    while publisher.link.is_reading:
        publisher.feed(READ)


def test_backlog_is_bounded_while_consumers_keep_up() -> None:
    """They take half of what the publisher could send, but more than the share that counts as slow."""
    broker = FakeBroker()
    publisher = opened(broker)
    consumer = Consumer(broker, acks_a_turn=READ_MESSAGES // 2)
    sent = deepest = 0
    while consumer.acked < MESSAGES:
        if sent < MESSAGES and publisher.link.is_reading:
            publisher.feed(READ)
            sent += READ_MESSAGES
        deepest = max(deepest, broker.vhost.queues["busy"].message_count)
        consumer.turn()
        broker.advance(TURN_SECONDS)
    assert deepest <= HIGH_MESSAGES + 2 * READ_MESSAGES


def test_consumer_that_is_slow_does_not_hold_publishers_for_good() -> None:
    broker = FakeBroker()
    publisher = opened(broker)
    consumer = Consumer(broker, acks_a_turn=1)
    sent, held = 0, 0.0
    while sent < MESSAGES:
        if publisher.link.is_reading:
            publisher.feed(READ)
            sent += READ_MESSAGES
            held = 0.0
        held += TURN_SECONDS
        assert held < 1.0, "unread for a second"
        consumer.turn()
        broker.advance(TURN_SECONDS)
    publisher.run()
    consumer.take()
    assert consumer.got + broker.vhost.queues["busy"].message_count == MESSAGES


def test_consumer_that_leaves_lets_the_publishers_go() -> None:
    broker = FakeBroker()
    publisher, consumer = opened(broker), Consumer(broker, acks_a_turn=0)
    publish_until_held(publisher)
    consumer.client.hang_up()
    assert publisher.link.is_reading


def test_publisher_that_dies_while_held_is_forgotten() -> None:
    broker = FakeBroker()
    publisher, consumer = opened(broker), Consumer(broker, acks_a_turn=0)
    publish_until_held(publisher)
    publisher.hang_up()
    assert not broker.vhost.queues["busy"].flow.held
    assert list(broker.node.clients.values()) == [consumer.client.connection]


def test_all_messages_of_a_free_running_publisher_arrive_in_order(connect: Connect) -> None:
    """Over sockets: none is lost however often the publisher is held and let go."""
    count = 50_000
    consumer = connect().channel()
    queue = consumer.declare("busy", exclusive=False).queue
    consumer.call(m.BasicQos(prefetch_count=500), m.BasicQosOk)
    consumer.consume(queue)
    publisher = threading.Thread(target=publish_numbers, args=(connect().channel(), queue, count))
    publisher.start()
    try:
        for number in range(count):
            delivery = consumer.expect_delivery()
            assert delivery.body == b"%d" % number
            consumer.send(m.BasicAck(delivery_tag=delivery.method.delivery_tag))
    finally:
        publisher.join()


def publish_numbers(channel: AmqpChannel, queue: str, count: int) -> None:
    for start in range(0, count, 100):
        numbers = range(start, start + 100)
        channel.client.send_raw(b"".join(published("", queue, b"%d" % number) for number in numbers))
