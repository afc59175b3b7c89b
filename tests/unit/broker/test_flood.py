"""Publishers that never stop hold up nobody: what one read asks for is done in bounded turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker, FakeWorld
from tests.support.frames import method_frame, published
from tests.support.machine import Machine
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.broker import dead_letters
from warren.broker.commands import SetTracing
from warren.broker.node import Node
from warren.broker.post import FULL_MS
from warren.broker.turns import QUEUES_A_STEP, SHARE_MAX, WORK_A_TURN_MAX

QUEUES = 1_000
MESSAGES = 100
MANY_CHANNELS = 2_000
SPECIAL = 5_000  # messages that find their way one by one
PERSISTENT_WORK = 6  # in message.py, where it is a C number
COPY_WORK = 30  # the least that a copy for the firehose costs
PERSISTENTLY = BasicProperties(delivery_mode=PERSISTENT)
DEDUPLICATING: Table = {"x-message-deduplication": True}
DELAYING: Table = {"x-delayed-type": "fanout"}


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


def most_in_a_turn(world: FakeWorld, count: Callable[[], int], act: Callable[[], object]) -> int:
    """Act, and run the event loop until it rests. Return the largest growth of a count in one turn."""
    before = count()
    act()
    most = count() - before
    while world.soon:
        before = count()
        world.turn()
        most = max(most, count() - before)
    return most


@pytest.mark.parametrize(("properties", "work"), [(None, 1), (PERSISTENTLY, PERSISTENT_WORK)])
def test_no_turn_does_more_than_its_budget(
    broker: FakeBroker, properties: BasicProperties | None, work: int
) -> None:
    client = broker.connect().open()
    data = published("amq.fanout", "", b"x", properties) * MESSAGES
    most = most_in_a_turn(broker.world, lambda: enqueued(broker), lambda: client.connection.feed(data))
    assert most <= WORK_A_TURN_MAX // work + QUEUES
    assert enqueued(broker) == QUEUES * MESSAGES


# --- messages that find their way one by one ---


def same(exchange: str, key: str, properties: BasicProperties | None = None) -> bytes:
    return published(exchange, key, b"x", properties) * SPECIAL


def with_unique_keys(exchange: str, key: str) -> bytes:
    return b"".join(published(exchange, key.format(number), b"x") for number in range(SPECIAL))


def to_headers(client: FakeClient) -> bytes:
    """A hundred bindings that a message has to be compared with, since it equals half of what each wants."""
    for number in range(100):
        for argument in ("a", "b"):
            arguments: Table = {argument: 1, "x-match": "any", "c": number}
            client.send(m.QueueBind(queue="q0", exchange="amq.headers", no_wait=True, arguments=arguments))
    return same("amq.headers", "", BasicProperties(headers={"a": 1}))


def to_consistent_hash(client: FakeClient) -> bytes:
    client.declare_exchange("hash", "x-consistent-hash")
    for number in range(100):
        client.send(
            m.QueueBind(queue=f"q{number}", exchange="hash", routing_key="1", arguments={}, no_wait=True)
        )
    return with_unique_keys("hash", "{}")


def to_topic(client: FakeClient) -> bytes:
    for pattern in ("a.#", "*.b.#", "#.c", "a.*.c.*"):
        client.bind("q0", "amq.topic", pattern)
    return with_unique_keys("amq.topic", "a.b.{}.d")


def to_default(client: FakeClient) -> bytes:
    return (published("", "q0", b"x") + published("", "q1", b"x")) * (SPECIAL // 2)


def with_copies(client: FakeClient) -> bytes:
    return same("", "q0", BasicProperties(headers={"CC": ["q1"], "BCC": ["q2"]}))


def to_delayed(client: FakeClient) -> bytes:
    client.call(
        m.ExchangeDeclare(exchange="delayed", type="x-delayed-message", arguments=DELAYING),
        m.ExchangeDeclareOk,
    )
    return same("delayed", "", BasicProperties(headers={"x-delay": 1_000}))


def in_a_transaction(client: FakeClient) -> bytes:
    client.call(m.TxSelect(), m.TxSelectOk)
    return same("", "q0")


def with_replies(client: FakeClient) -> bytes:
    client.consume("amq.rabbitmq.reply-to", no_ack=True)
    return same("", "q0", BasicProperties(reply_to="amq.rabbitmq.reply-to"))


@pytest.mark.parametrize(
    ("prepare", "work"),
    [
        (to_headers, 200),
        (to_consistent_hash, 200),
        (to_topic, 60),
        (to_default, 20),
        (with_copies, 45),
        (to_delayed, 35),
        (in_a_transaction, 25),
        (with_replies, 25),
    ],
)
def test_finding_the_way_of_a_message_is_work(
    broker: FakeBroker, prepare: Callable[[FakeClient], bytes], work: int
) -> None:
    client = broker.connect().open()
    data = prepare(client)
    broker.world.run()
    most = most_in_a_turn(broker.world, lambda: handled(client), lambda: client.connection.feed(data))
    assert most <= WORK_A_TURN_MAX // work + 1
    assert handled(client) == SPECIAL


def handled(client: FakeClient) -> int:
    """How many messages were published, or wait for the commit."""
    transaction = client.channel.transaction
    return client.connection.published_total() + len(() if transaction is None else transaction.publishes)


def bind_all(client: FakeClient, exchange: str) -> None:
    for number in range(QUEUES):
        client.send(m.QueueBind(queue=f"q{number}", exchange=exchange, no_wait=True, arguments={}))


@pytest.mark.parametrize(("size", "messages"), [(1, MESSAGES), (100_000, 2)])
def test_messages_of_a_delayed_exchange_are_released_in_bounded_turns(
    broker: FakeBroker, size: int, messages: int
) -> None:
    client = broker.connect().open()
    client.declare_exchange("delayed", "x-delayed-message", arguments=DELAYING)
    bind_all(client, "delayed")
    for _ in range(messages):
        client.publish("delayed", "", bytes(size), BasicProperties(headers={"x-delay": 1_000}))
    broker.world.run()
    most = most_in_a_turn(broker.world, lambda: enqueued(broker), lambda: broker.world.advance(2))
    assert most <= WORK_A_TURN_MAX // (1 + size // 1024) + QUEUES_A_STEP
    assert enqueued(broker) == QUEUES * messages


# --- the firehose ---


def trace(node: Node, client: FakeClient, pattern: str, copies: int = 1) -> None:
    """Switch the firehose on, with so many queues for copies."""
    for number in range(copies):
        client.declare(f"trace{number}")
        client.bind(f"trace{number}", "amq.rabbitmq.trace", pattern)
    node.execute(SetTracing(vhost="/", on=True))


@pytest.mark.parametrize("copies", [1, 100])
def test_copies_of_published_messages_are_work(broker: FakeBroker, copies: int) -> None:
    client = broker.connect().open()
    trace(broker.node, client, "publish.#", copies)
    data = same("", "q0")
    most = most_in_a_turn(broker.world, lambda: handled(client), lambda: client.connection.feed(data))
    assert most <= WORK_A_TURN_MAX // (COPY_WORK + copies) + 1


@pytest.mark.parametrize(
    "arguments",
    [{}, {"x-max-priority": 2}, {"x-group-header": "group"}],
    ids=["plain", "with rules", "groups"],
)
def test_copies_of_delivered_messages_are_work(broker: FakeBroker, arguments: Table) -> None:
    client = broker.connect().open()
    client.declare("many", arguments=arguments)
    client.feed(same("", "many"))
    trace(broker.node, client, "deliver.#")
    delivered = client.connection.delivered_total
    most = most_in_a_turn(broker.world, delivered, lambda: client.consume("many", no_ack=True))
    assert most <= WORK_A_TURN_MAX // COPY_WORK + 1
    assert delivered() == SPECIAL


def test_copies_of_what_a_stream_delivers_are_work(tmp_path: Path) -> None:
    machine = Machine(tmp_path, segment_bytes=1_000_000)
    client = machine.connect()
    client.send(m.QueueDeclare(queue="stream", durable=True, arguments={"x-queue-type": "stream"}))
    machine.run()
    client.feed(same("", "stream"))
    machine.run()
    client.frames()
    trace(machine.node, client, "deliver.#")
    client.call(m.BasicQos(prefetch_count=SPECIAL), m.BasicQosOk)
    delivered = client.connection.delivered_total
    first: Table = {"x-stream-offset": "first"}
    most = most_in_a_turn(machine.world, delivered, lambda: client.consume("stream", arguments=first))
    assert most <= WORK_A_TURN_MAX // COPY_WORK + 1
    assert delivered() == SPECIAL
    machine.close()


def test_copies_of_messages_that_a_client_gets_are_work(broker: FakeBroker) -> None:
    client = broker.connect().open()
    client.feed(same("", "q0"))
    trace(broker.node, client, "deliver.#", 500)
    data = method_frame(1, m.BasicGet(queue="q0", no_ack=True)) * SPECIAL
    most = most_in_a_turn(
        broker.world, client.connection.delivered_total, lambda: client.connection.feed(data)
    )
    assert most <= WORK_A_TURN_MAX // (COPY_WORK + 500) + 1


# --- the rest ---


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


def in_transaction(client: FakeClient) -> str:
    client.call(m.TxSelect(), m.TxSelectOk)
    return "amq.fanout"


def through_deduplication(client: FakeClient) -> str:
    client.declare_exchange("once", "fanout", arguments=DEDUPLICATING)
    bind_all(client, "once")
    return "once"


@pytest.mark.parametrize(
    "ways", [(in_transaction,), (through_deduplication,), (through_deduplication, in_transaction)]
)
@pytest.mark.parametrize(("size", "properties"), [(100_000, None), (10_000, PERSISTENTLY)])
def test_large_message_is_spread_in_transactions_and_through_deduplication(
    broker: FakeBroker,
    ways: tuple[Callable[[FakeClient], str], ...],
    size: int,
    properties: BasicProperties | None,
) -> None:
    client = broker.connect().open()
    exchange, *_ = [way(client) for way in ways]

    def act() -> None:
        client.publish(exchange, "", bytes(size), properties)
        client.publish(exchange, "", b"x", properties)
        if client.channel.transaction is not None:
            client.send(m.TxCommit())

    def large_ones() -> int:
        return sum(queue.body_bytes() for queue in broker.vhost.queues.values()) // size

    work = (1 + size // 1024) * (1 if properties is None else PERSISTENT_WORK)
    most = most_in_a_turn(broker.world, large_ones, act)
    assert most <= WORK_A_TURN_MAX // work + QUEUES_A_STEP
    assert enqueued(broker) == 2 * QUEUES
    for queue in broker.vhost.queues.values():
        first = queue.get(no_ack=True)
        assert first is not None
        assert len(first.message.body) == size, "the order is kept"


def test_duplicate_of_a_message_that_is_on_its_way_waits_until_that_is_there(broker: FakeBroker) -> None:
    first, second = (broker.connect(name).open() for name in ("first", "second"))
    exchange = through_deduplication(first)
    once = BasicProperties(headers={"x-deduplication-header": 1})
    for client in (first, second):
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        client.publish(exchange, "", bytes(100_000), once)
        client.publish(exchange, "", b"another")
    assert 0 < enqueued(broker) < QUEUES
    assert (first.methods(), second.methods()) == ([], [])
    broker.world.run()
    assert enqueued(broker) == 3 * QUEUES
    for client in (first, second):
        assert client.methods() == [m.BasicAck(delivery_tag=2, multiple=True)]


def test_large_message_reaches_all_queues_though_its_connection_ends_meanwhile(broker: FakeBroker) -> None:
    client = broker.connect().open()
    client.connection.feed(published("amq.fanout", "", bytes(100_000)))
    client.connection.lost()
    broker.world.run()
    assert enqueued(broker) == QUEUES


# --- dead letters ---


def dying_queue(client: FakeClient, exchange: str, bodies: list[bytes], headers: Table | None = None) -> None:
    """A queue whose messages all go to very many queues when they die. The client has them now."""
    client.declare("dying", arguments={"x-dead-letter-exchange": exchange})
    for body in bodies:
        client.publish("", "dying", body, BasicProperties(headers=headers))
    client.consume("dying")
    assert client.bodies() == bodies


LARGE, SMALL = bytes(100_000), b"small"


def reject(client: FakeClient, count: int) -> None:
    for tag in range(1, count + 1):
        client.send(m.BasicReject(delivery_tag=tag, requeue=False))


def test_dead_letters_for_very_many_queues_are_spread_over_turns_and_stay_in_order(
    broker: FakeBroker,
) -> None:
    client = broker.connect().open()
    dying_queue(client, "amq.fanout", [LARGE, SMALL, LARGE])

    def large_ones() -> int:
        return sum(queue.body_bytes() for queue in broker.vhost.queues.values()) // len(LARGE)

    most = WORK_A_TURN_MAX // (1 + len(LARGE) // 1024) + QUEUES_A_STEP
    assert most_in_a_turn(broker.world, large_ones, lambda: reject(client, 3)) <= most
    assert enqueued(broker) == 3 * QUEUES
    for queue in broker.vhost.queues.values():
        if queue.name != "dying":
            got = [entry.message.body for _ in range(3) if (entry := queue.get(no_ack=True)) is not None]
            assert got == [LARGE, SMALL, LARGE]


def test_queue_keeps_what_expires_while_very_many_letters_stand_in_line(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "LINE_LONG", 2)
    client = broker.connect().open()
    dying_queue(client, "amq.fanout", [LARGE, LARGE, LARGE])
    expiring: Table = {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 0}
    queue = client.declare("expiring", arguments=expiring)
    reject(client, 3)
    client.publish("", "expiring", SMALL)
    assert queue.message_count == 1, "it has not died"
    broker.world.run()
    broker.advance(FULL_MS / 1000)
    assert queue.message_count == 0
    assert enqueued(broker) == 4 * QUEUES


def test_letter_that_fails_does_not_keep_the_others_in_line(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.connect().open()
    dying_queue(client, "amq.fanout", [LARGE, SMALL, SMALL])
    letters = broker.vhost.surroundings.dead_letters
    find = letters._targets_of  # type: ignore[attr-defined]
    reject(client, 3)
    finds = Mock(side_effect=[RuntimeError("no"), find(letters.line[1])])  # type: ignore[attr-defined]
    monkeypatch.setattr(letters, "_targets_of", finds)
    broker.world.run()
    assert [str(error) for error in broker.world.errors] == ["no"]
    broker.world.errors.clear()
    assert enqueued(broker) == 2 * QUEUES


def test_letter_that_equals_a_message_on_its_way_waits_until_that_is_there(broker: FakeBroker) -> None:
    client = broker.connect().open()
    exchange = through_deduplication(client)
    headers: Table = {"x-deduplication-header": 1}
    dying_queue(client, exchange, [SMALL], headers)
    other = broker.connect("other").open()
    other.publish(exchange, "", LARGE, BasicProperties(headers=headers))
    assert 0 < enqueued(broker) < QUEUES
    reject(client, 1)
    broker.world.run()
    assert enqueued(broker) == QUEUES, "the letter is a duplicate"


def test_message_that_equals_a_letter_on_its_way_waits_until_that_is_there(broker: FakeBroker) -> None:
    client = broker.connect().open()
    exchange = through_deduplication(client)
    headers: Table = {"x-deduplication-header": 1}
    dying_queue(client, exchange, [LARGE], headers)
    reject(client, 1)
    assert 0 < enqueued(broker) < QUEUES
    broker.connect("other").open().publish(exchange, "", SMALL, BasicProperties(headers=headers))
    broker.world.run()
    assert enqueued(broker) == QUEUES, "the message is a duplicate"


# --- the end ---


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
