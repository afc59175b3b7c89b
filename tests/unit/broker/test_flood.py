"""Publishers that never stop hold up nobody: what one read asks for is done in bounded turns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from tests.support.frames import method_frame, published
from warren.amqp import methods as m
from warren.broker.turns import SHARE_MAX, WORK_A_TURN_MAX

QUEUES = 1_000
MESSAGES = 100
MANY_CHANNELS = 2_000


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    maker = broker.connect("maker").open()
    for number in range(QUEUES):
        maker.declare(f"q{number}")
        maker.send(m.QueueBind(queue=f"q{number}", exchange="amq.fanout", no_wait=True, arguments={}))
    yield broker
    assert broker.world.errors == []
    broker.stop()


def enqueued(broker: FakeBroker) -> int:
    return sum(queue.message_count for queue in broker.vhost.queues.values())


def flood(client: FakeClient, messages: int = MESSAGES) -> None:
    client.connection.feed(published("amq.fanout", "", b"x") * messages)


def test_no_turn_does_more_than_its_budget(broker: FakeBroker) -> None:
    flood(broker.connect().open())
    before = 0
    while broker.world.soon:
        now = enqueued(broker)
        assert now - before <= WORK_A_TURN_MAX + QUEUES
        before = now
        broker.world.turn()
    assert enqueued(broker) == QUEUES * MESSAGES


def test_new_client_is_served_at_once_while_others_flood(broker: FakeBroker) -> None:
    for _ in range(20):
        flood(broker.connect().open())
    client = broker.connect("new").open()
    client.declare("mine")
    client.publish("", "mine", b"1")
    client.consume("mine", no_ack=True)
    assert client.bodies() == [b"1"]
    assert enqueued(broker) < 20 * QUEUES * MESSAGES, "and the flood is not over"


def test_publishers_take_turns(broker: FakeBroker) -> None:
    publishers = [broker.connect(f"publisher {number}").open() for number in range(8)]
    for client in publishers:
        flood(client)
    while broker.world.soon:
        counts = [client.connection.published_total() for client in publishers]
        in_line = [count for count in counts if count < MESSAGES]
        if in_line:
            assert max(in_line) - min(in_line) <= WORK_A_TURN_MAX // QUEUES + SHARE_MAX // QUEUES
        broker.world.turn()
    assert enqueued(broker) == len(publishers) * QUEUES * MESSAGES


def test_flooding_connection_is_not_read_until_its_turn_is_over(broker: FakeBroker) -> None:
    client = broker.connect().open()
    flood(client)
    assert not client.link.is_reading
    broker.world.run()
    assert client.link.is_reading


def test_alarm_raised_in_the_middle_of_a_read_stops_it_there(broker: FakeBroker) -> None:
    client = broker.connect().open()
    flood(client)
    before = client.connection.published_total()
    broker.node.raise_alarm("memory")
    broker.world.run()
    assert client.connection.blocked
    assert client.connection.published_total() == before
    broker.node.clear_alarm("memory")
    broker.world.run()
    assert client.connection.published_total() == MESSAGES


def test_memory_is_looked_at_during_a_flood(broker: FakeBroker) -> None:
    looks: list[int] = []
    broker.node.turns.look_around = lambda: looks.append(enqueued(broker))
    flood(broker.connect().open(), 1_000)
    broker.world.run()
    gaps = [after - before for before, after in zip([0, *looks], looks, strict=False)]
    assert max(gaps) <= 200_000


def test_connection_that_ends_in_the_middle_of_its_read_leaves_the_line(broker: FakeBroker) -> None:
    client = broker.connect().open()
    flood(client)
    client.connection.lost()
    before = enqueued(broker)
    broker.world.run()
    assert enqueued(broker) == before


def test_connection_closed_by_the_broker_in_the_middle_of_its_read_hears_why(broker: FakeBroker) -> None:
    client = broker.connect().open()
    flood(client)
    client.frames()
    client.connection.force_close("maintenance")
    broker.world.run()
    assert client.link.is_reading
    assert [type(method) for method in client.methods(0)] == [m.ConnectionClose]
    client.send(m.ConnectionCloseOk(), 0)
    assert client.link.is_closed


def test_one_large_message_for_very_many_queues_is_spread_over_turns(broker: FakeBroker) -> None:
    client = broker.connect().open()
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.connection.feed(published("amq.fanout", "", bytes(100_000)) + published("amq.fanout", "", b"x"))
    assert 0 < enqueued(broker) < QUEUES
    assert client.methods() == []
    broker.world.run()
    assert enqueued(broker) == 2 * QUEUES
    assert client.methods() == [m.BasicAck(delivery_tag=2, multiple=True)]
    for queue in broker.vhost.queues.values():
        first = queue.get(no_ack=True)
        assert first is not None
        assert len(first.message.body) == 100_000, "the order is kept"


def test_large_message_reaches_all_queues_though_its_connection_ends_meanwhile(broker: FakeBroker) -> None:
    client = broker.connect().open()
    client.connection.feed(published("amq.fanout", "", bytes(100_000)))
    client.connection.lost()
    broker.world.run()
    assert enqueued(broker) == QUEUES


def test_nothing_is_said_behind_connection_close(broker: FakeBroker) -> None:
    """The connection's channels end one after the other; the last of them has a message under way."""
    client = broker.connect().open()
    for number in range(2, MANY_CHANNELS + 1):
        client.call(m.ChannelOpen(), m.ChannelOpenOk, number)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk, MANY_CHANNELS)
    client.connection.feed(published("amq.fanout", "", bytes(41_000), channel=MANY_CHANNELS))
    assert 0 < enqueued(broker) < QUEUES
    client.connection.feed(method_frame(MANY_CHANNELS + 1, m.BasicQos()))  # there is no such channel
    broker.world.run()
    assert enqueued(broker) == QUEUES
    said = [type(method) for method in client.methods(0, MANY_CHANNELS)]
    assert said == [m.ConnectionClose]


def test_methods_are_work_too(broker: FakeBroker) -> None:
    """Thousands of declares in one read are spread over turns."""
    client = broker.connect().open()
    frames = b"".join(
        method_frame(1, m.QueueDeclare(queue=f"many {number}", no_wait=True, arguments={}))
        for number in range(2_000)
    )
    client.connection.feed(frames)
    assert len(broker.vhost.queues) < QUEUES + 1_000
    broker.world.run()
    assert len(broker.vhost.queues) == QUEUES + 2_000


def test_every_queue_that_a_read_reached_can_hold_its_publisher_back(broker: FakeBroker) -> None:
    """Not only the queue of the last message: here, the queue of the first messages is the busy one."""
    consumer = broker.connect().open()
    consumer.declare("busy")
    consumer.send(m.BasicQos(prefetch_count=1))
    consumer.consume("busy")
    client = broker.connect().open()
    client.declare("idle")
    client.connection.feed(published("", "busy", b"x") * 5_000 + published("", "idle", b"x"))
    broker.world.run()
    assert "flow" in client.connection.not_reading_because
