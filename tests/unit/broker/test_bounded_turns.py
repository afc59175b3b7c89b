"""Whatever a single frame, a deadline or a consumer asks for is done in turns that are bounded by work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from tests.support.frames import method_frame, published
from tests.support.jobs import start_job
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.commands import COMMAND_WORK
from warren.broker.groups import STEP_WORK, STEPS_AT_A_TIME_MAX
from warren.broker.message_job import LOOKS_MAX, Kind, State
from warren.broker.queue import Queue
from warren.broker.turns import DRAINED_MIN, WORK_A_TURN_MAX
from warren.broker.vhost import TELL_WORK
from warren.session.consumer_timeout import check_timeout

pytestmark = pytest.mark.slow

GONE_AT_A_TIME_MAX, GONE_WORK = 200, 3  # in rulebook.py, where they are C numbers
TRIED_FOR_A_UNIT = 10  # in classic_queue.py, likewise
MANY = 30_000
GET = m.BasicGet(queue="q", no_ack=True)
EXPIRING: Table = {"x-message-ttl": 1_000}
GROUPED: Table = {"x-group-header": "group"}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    yield broker
    assert broker.world.errors == []
    broker.stop()


@pytest.fixture
def client(broker: FakeBroker) -> FakeClient:
    return broker.connect().open()


def publish_many(client: FakeClient, queue: str, count: int, body: bytes = b"x") -> None:
    for _ in range(count // 100):
        client.feed(100 * published("", queue, body))


def most_in_a_turn(broker: FakeBroker, count: Callable[[], int]) -> int:
    """Run the event loop until it rests. Return the largest change of a count in one turn."""
    most, before = 0, count()
    while broker.world.soon:
        broker.world.turn()
        now = count()
        most, before = max(most, abs(now - before)), now
    return most


def expire_silently(broker: FakeBroker) -> None:
    """Let all messages expire, without a timer that tells the queues."""
    broker.world.ahead_ms += 60_000


# --- basic.get ---


def get_behind_expired(broker: FakeBroker, client: FakeClient) -> Queue:
    """Ask by basic.get for a fresh message behind very many expired ones."""
    queue = client.declare("q", arguments=EXPIRING)
    publish_many(client, "q", MANY)
    expire_silently(broker)
    client.publish("", "q", b"fresh")
    client.send(GET)
    return queue


def test_get_behind_very_many_expired_messages_is_answered_after_several_turns(
    broker: FakeBroker, client: FakeClient
) -> None:
    queue = get_behind_expired(broker, client)
    assert client.contents() == [], "not in this turn"
    assert queue.message_count >= MANY - 10 * GONE_AT_A_TIME_MAX
    assert most_in_a_turn(broker, lambda: queue.message_count) <= WORK_A_TURN_MAX // GONE_WORK
    assert client.bodies() == [b"fresh"]
    assert queue.message_count == 0


def test_get_that_takes_several_turns_takes_nothing_for_a_client_that_is_gone(
    broker: FakeBroker, client: FakeClient
) -> None:
    queue = get_behind_expired(broker, client)
    client.hang_up()
    assert queue.unacked == 0
    other = broker.connect("other").open()
    other.send(GET)
    broker.world.run()
    assert other.bodies() == [b"fresh"]


def test_get_from_a_queue_that_is_deleted_meanwhile_is_told_so(
    broker: FakeBroker, client: FakeClient
) -> None:
    get_behind_expired(broker, client)
    broker.connect("other").open().send(m.QueueDelete(queue="q"))
    broker.world.run()
    assert client.expect_close(404).reply_text == "NOT_FOUND - no queue 'q' in vhost '/'"


def test_get_of_a_group_waits_until_those_before_it_were_passed_over(
    broker: FakeBroker, client: FakeClient
) -> None:
    client.declare("q", arguments=GROUPED)
    taker = broker.connect("taker").open()
    taker.send(m.BasicQos(prefetch_count=1))
    taker.consume("q")
    client.feed(3 * STEPS_AT_A_TIME_MAX * published("", "q", b"a", of_group("a")))
    client.publish("", "q", b"b", of_group("b"))
    taker.send(m.BasicCancel(consumer_tag="c"))
    client.send(GET)
    broker.world.run()
    assert client.bodies() == [b"b"]


def test_get_waits_for_messages_that_another_client_is_giving_back(
    broker: FakeBroker, client: FakeClient
) -> None:
    client.declare("q")
    publish_many(client, "q", MANY, b"first")
    taker = broker.connect("taker").open()
    taker.consume("q")
    broker.world.run()
    taker.frames()
    client.publish("", "q", b"last")
    taker.send(m.BasicCancel(consumer_tag="c"))
    taker.send(m.BasicNack(delivery_tag=0, multiple=True, requeue=True))
    client.send(GET)
    assert client.contents() == [], "it is not known yet which message is the first"
    broker.world.run()
    assert client.bodies() == [b"first"]


# --- giving back ---


def test_queue_whose_messages_come_last_delivers_nothing_before_they_are_back(
    broker: FakeBroker, client: FakeClient
) -> None:
    """A channel ends that has to give back to another queue first, more than fits into a turn."""
    for queue in ("a", "b"):
        client.declare(queue)
    publish_many(client, "a", MANY)
    publish_many(client, "b", 100, b"first")
    taker = broker.connect("taker").open()
    for queue in ("a", "b"):
        taker.consume(queue, queue)
        broker.world.run()
    taker.send(m.BasicCancel(consumer_tag="b"))
    client.publish("", "b", b"last")
    other = broker.connect("other").open()
    taker.connection.lost()
    other.consume("b")
    broker.world.run()
    assert other.bodies() == [b"first"] * 100 + [b"last"]


def test_what_a_channel_gives_back_when_it_ends_is_waited_for_behind_its_other_chores(
    broker: FakeBroker, client: FakeClient
) -> None:
    client.declare("q")
    publish_many(client, "q", MANY, b"first")
    taker = broker.connect("taker").open()
    taker.consume("q")
    broker.world.run()
    taker.send(m.BasicCancel(consumer_tag="c"))
    client.publish("", "q", b"last")
    taker.send(m.BasicNack(delivery_tag=MANY - 100, multiple=True, requeue=False))
    taker.connection.lost()
    other = broker.connect("other").open()
    other.consume("q")
    broker.world.run()
    assert other.bodies() == [b"first"] * 100 + [b"last"]


# --- deadlines ---


def test_messages_of_very_many_queues_that_expire_together_go_over_several_turns(
    broker: FakeBroker, client: FakeClient
) -> None:
    queues = [client.declare(f"q{number}", arguments=EXPIRING) for number in range(300)]
    for queue in queues:
        client.feed(100 * published("", queue.name, b"x"))

    def left() -> int:
        return sum(queue.message_count for queue in queues)

    assert left() == MANY
    broker.world.advance(1.1)
    assert left() > 0
    assert most_in_a_turn(broker, left) <= WORK_A_TURN_MAX // GONE_WORK + GONE_AT_A_TIME_MAX
    assert left() == 0


def test_very_many_queues_that_expire_together_go_over_several_turns(
    broker: FakeBroker, client: FakeClient
) -> None:
    for number in range(4_000):
        client.declare(f"q{number}", arguments={"x-expires": 1_000})
    queues = broker.vhost.queues
    broker.world.run()
    broker.world.advance(1.1)
    assert queues
    assert most_in_a_turn(broker, lambda: len(queues)) <= WORK_A_TURN_MAX // COMMAND_WORK + 1
    assert not queues


# --- deliveries ---


def connect_many(broker: FakeBroker, count: int, queue: str, prefetch: int = 0) -> list[FakeClient]:
    clients = []
    for number in range(count):
        client = broker.connect(f"consumer {number}").open()
        if prefetch:
            client.send(m.BasicQos(prefetch_count=prefetch))
        client.consume(queue)
        clients.append(client)
    broker.world.run()
    return clients


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 1}], ids=["plain", "rules"])
def test_very_many_messages_go_to_very_many_consumers_over_several_turns(
    broker: FakeBroker, client: FakeClient, arguments: Table
) -> None:
    queue = client.declare("q", arguments=arguments)
    publish_many(client, "q", 4 * MANY)
    consumers = connect_many(broker, 40, "q", prefetch=1)
    for consumer in consumers:
        consumer.send(m.BasicCancel(consumer_tag="c"))
        consumer.send(m.BasicQos(prefetch_count=0))
        consumer.connection.stop_delivering("test")
        consumer.consume("q")
    broker.world.run()
    for consumer in consumers:
        consumer.connection.output.congested = False
    queue.touch()
    broker.node.end_turn()
    first = 4 * MANY - queue.message_count
    assert DRAINED_MIN <= first <= WORK_A_TURN_MAX
    most = most_in_a_turn(broker, lambda: queue.message_count)
    assert most <= WORK_A_TURN_MAX + len(consumers) * DRAINED_MIN
    assert queue.message_count == 0


def test_consumers_that_cannot_take_count_as_work(broker: FakeBroker, client: FakeClient) -> None:
    queue = client.declare("q")
    connect_many(broker, 20 * TRIED_FOR_A_UNIT, "q", prefetch=1)
    publish_many(client, "q", 1_000)
    broker.world.run()
    budget = broker.node.turns.budget
    before = budget.draining
    queue.touch()
    broker.node.end_turn()
    assert before - budget.draining == 20


# --- groups ---


def of_group(name: str) -> BasicProperties:
    return BasicProperties(headers={"group": name})


def test_turn_of_a_queue_with_very_many_groups_that_wait_costs_what_it_delivers(
    broker: FakeBroker, client: FakeClient
) -> None:
    """Ten thousand groups have messages out with consumers at their limit, and each has more that wait."""
    queue = client.declare("q", arguments=GROUPED)
    takers = connect_many(broker, 2, "q", prefetch=5_000)
    for _ in range(2):
        for number in range(10_000):
            client.publish("", "q", b"%d" % number, of_group(str(number)))
    broker.world.run()
    assert queue.unacked == 10_000
    budget = broker.node.turns.budget
    before = budget.left
    takers[0].send(m.BasicAck(delivery_tag=1))
    assert queue.unacked == 10_000, "one was acked, and one delivered"
    assert before - budget.left < 20 * STEP_WORK


def test_group_of_a_consumer_that_cancelled_waits_until_it_has_settled(
    broker: FakeBroker, client: FakeClient
) -> None:
    client.declare("q", arguments=GROUPED)
    first, second = connect_many(broker, 2, "q")
    for number in range(3):
        client.publish("", "q", b"%d" % number, of_group("a"))
    (holder, other) = (first, second) if first.channel.deliveries.outstanding else (second, first)
    assert holder.bodies() == [b"0", b"1", b"2"]
    holder.send(m.BasicCancel(consumer_tag="c"))
    client.publish("", "q", b"3", of_group("a"))
    assert other.bodies() == []
    holder.send(m.BasicAck(delivery_tag=3, multiple=True))
    assert other.bodies() == [b"3"]


# --- ends ---


def test_purge_of_very_many_messages_that_come_back_later_takes_several_turns(
    broker: FakeBroker, client: FakeClient
) -> None:
    queue = client.declare("q", arguments={"x-retry-delay-min": 60_000})
    publish_many(client, "q", MANY)
    taker = broker.connect("taker").open()
    taker.consume("q")
    broker.world.run()
    taker.send(m.BasicCancel(consumer_tag="c"))
    taker.send(m.BasicNack(delivery_tag=0, multiple=True, requeue=True))
    broker.world.run()
    client.send(m.QueuePurge(queue="q"))
    assert client.methods() == [], "it is still forgetting them"
    broker.world.run()
    assert client.methods() == [m.QueuePurgeOk(message_count=MANY)]
    broker.advance(120)
    assert (queue.message_count, queue.unacked) == (0, 0)


def test_purge_of_very_many_groups_takes_several_turns(broker: FakeBroker, client: FakeClient) -> None:
    queue = client.declare("q", arguments=GROUPED)
    first, second = (broker.connect(name).open() for name in ("first", "second"))
    first.consume("q")
    publish_groups(client, b"out", range(MANY))
    broker.world.run()
    first.send(m.BasicCancel(consumer_tag="c"))
    second.consume("q")
    publish_groups(client, b"waits", range(MANY))
    broker.world.run()
    book = classic(queue).book
    assert book is not None
    groups = book.groups
    assert groups is not None
    assert len(groups.known) == groups.passed == MANY

    client.send(m.QueuePurge(queue="q"))
    assert len(groups.purged) > MANY // 2, "it is still forgetting them"
    broker.connect("publisher").open().publish("", "q", b"new", of_group("7"))
    assert most_in_a_turn(broker, lambda: len(groups.purged)) <= WORK_A_TURN_MAX // STEP_WORK
    assert client.methods() == [m.QueuePurgeOk(message_count=MANY)]
    assert (len(groups.known), groups.passed, queue.unacked) == (MANY, 1, MANY)
    assert second.bodies() == []
    first.frames()
    first.send(m.BasicAck(delivery_tag=0, multiple=True))
    broker.world.run()
    assert second.bodies() == [b"new"], "its group was with the first consumer until now"


def publish_groups(client: FakeClient, body: bytes, numbers: range) -> None:
    """A message of each of these groups."""
    for number in numbers:
        client.publish("", "q", body, of_group(str(number)))


def test_very_many_deliveries_are_looked_at_for_timeouts_over_several_turns(
    broker: FakeBroker, client: FakeClient
) -> None:
    client.declare("q", arguments={"x-consumer-timeout": 90_000})
    publish_many(client, "q", 3 * MANY)
    taker = broker.connect("taker").open()
    taker.consume("q")
    broker.world.run()
    taker.frames()
    broker.advance(89)
    for _ in range(2):
        broker.node.check_consumers()
        assert broker.world.soon, "it is still looking; and it does not begin again meanwhile"
    turns = 0
    while broker.world.soon:
        broker.world.turn()
        turns += 1
    assert turns > 3 * MANY // WORK_A_TURN_MAX
    assert taker.methods() == []
    broker.advance(2)
    broker.node.check_consumers()
    broker.world.run()
    assert m.ChannelClose in {type(method) for method in taker.methods()}


def test_channel_that_fails_while_its_deliveries_are_looked_at_does_not_time_out_as_well(
    broker: FakeBroker, client: FakeClient
) -> None:
    client.declare("q", arguments={"x-consumer-timeout": 1_000})
    publish_many(client, "q", MANY)
    taker = broker.connect("taker").open()
    taker.consume("q")
    broker.world.run()
    taker.frames()
    broker.advance(60)
    steps = check_timeout(taker.channel, broker.node.clock.refresh(), 0)
    next(steps)
    taker.send(m.BasicAck(delivery_tag=MANY + 1))
    assert taker.channel.deliveries.outstanding, "not all are back in the queue yet"
    assert list(steps) == []
    broker.world.run()
    (answer,) = taker.methods()
    assert isinstance(answer, m.ChannelClose)
    assert "unknown delivery tag" in answer.reply_text


def consumers_of(queue: Queue, client: FakeClient) -> int:
    return sum(consumer.queue is queue for consumer in client.channel.consumers.values())


def start_many_consumers(client: FakeClient, queue: str, count: int) -> None:
    frames = (
        method_frame(1, m.BasicConsume(queue=queue, consumer_tag=str(number), no_wait=True, arguments={}))
        for number in range(count)
    )
    client.feed(b"".join(frames))


@pytest.mark.parametrize("arguments", [{}, {"x-single-active-consumer": True}], ids=["plain", "one active"])
def test_very_many_consumers_of_a_deleted_queue_are_told_over_several_turns(
    broker: FakeBroker, client: FakeClient, arguments: Table
) -> None:
    queue = client.declare("q", arguments=arguments)
    listener = broker.connect("listener").open()
    start_many_consumers(listener, "q", 4_000)
    listener.frames()
    client.send(m.QueueDelete(queue="q"))
    assert consumers_of(queue, listener) > 0
    most = most_in_a_turn(broker, lambda: consumers_of(queue, listener))
    assert most <= WORK_A_TURN_MAX // TELL_WORK + 1
    cancelled = [method.consumer_tag for method in listener.methods() if isinstance(method, m.BasicCancel)]
    assert cancelled == [str(number) for number in range(4_000)]


def test_channel_with_very_many_consumers_ends_over_several_turns(
    broker: FakeBroker, client: FakeClient
) -> None:
    queue = client.declare("q")
    listener = broker.connect("listener").open()
    start_many_consumers(listener, "q", 4_000)
    listener.send(m.ChannelClose(reply_code=200, reply_text="", class_id=0, method_id=0))
    assert len(queue.consumers) > 0
    assert listener.methods() == []
    client.publish("", "q", b"x")
    broker.world.run()
    assert listener.methods() == [m.ChannelCloseOk()]
    assert (queue.consumers, queue.message_count) == ([], 1)


@pytest.mark.parametrize("kind", Kind)
def test_job_deals_with_a_bounded_number_of_messages_in_a_turn(
    broker: FakeBroker, client: FakeClient, kind: Kind
) -> None:
    client.declare("q")
    client.declare("other")
    publish_many(client, "q", MANY)
    broker.world.run()
    job = start_job(broker.node, kind, "q", None if kind is Kind.DELETE else "other")
    assert 0 < most_in_a_turn(broker, lambda: job.done) <= LOOKS_MAX
    assert (job.state, job.done) == (State.DONE, MANY)
