"""How a connection ends, when it is not read, and what becomes of its channels, queues and messages."""

from __future__ import annotations

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, make_node
from tests.support.frames import method_frame, published
from warren.amqp import methods as m
from warren.broker import events
from warren.broker.message import Message
from warren.broker.node import Limits, Node
from warren.session.connection import OUTPUT_BYTES_MAX
from warren.session.state import TRANSITIONS, State


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def node(world: FakeWorld) -> Node:
    return make_node(world)


@pytest.fixture
def client(node: Node) -> FakeClient:
    return FakeClient(node).open()


# --- the end ---


def test_every_state_can_come_to_its_end() -> None:
    for state in State:
        assert state is State.CLOSED or State.CLOSED in TRANSITIONS[state]


def test_state_changes_only_by_the_table(client: FakeClient) -> None:
    with pytest.raises(AssertionError, match="cannot become"):
        client.connection.become(State.AWAITING_OPEN)


def test_force_close_says_why_and_waits_for_the_answer(client: FakeClient, node: Node) -> None:
    client.connection.force_close("maintenance")
    assert client.methods(0) == [
        m.ConnectionClose(reply_code=320, reply_text="CONNECTION_FORCED - maintenance")
    ]
    assert not client.link.is_closed
    client.send(m.ConnectionCloseOk(), 0)
    assert client.link.is_closed
    assert not node.clients


def test_both_sides_closing_at_once_is_answered(client: FakeClient) -> None:
    client.connection.force_close("maintenance")
    client.frames()
    client.send(m.ConnectionClose(reply_code=200), 0)
    assert client.methods(0) == [m.ConnectionCloseOk()]
    assert client.link.is_closed


def test_closing_connection_hears_nothing_but_the_end(client: FakeClient) -> None:
    client.connection.force_close("maintenance")
    client.frames()
    client.send(m.QueueDeclare(queue="late", arguments={}))
    client.publish("amq.fanout", "", b"late")
    client.send(m.ConnectionUpdateSecret(new_secret=b"", reason=""), 0)
    assert client.frames() == []
    assert "late" not in client.vhost.queues


def test_our_own_mistake_closes_the_connection_with_541_and_no_other(
    client: FakeClient, node: Node, world: FakeWorld
) -> None:
    other = FakeClient(node).open()
    failures: list[events.Failure] = []
    node.events.subscribe(events.Failure, failures.append)

    world.broken = RuntimeError("a bug")
    client.send(m.QueueDeclare(queue="", arguments={}))
    close = client.expect_close(541, 0)
    assert (close.class_id, close.method_id) == m.QueueDeclare.id
    assert "a bug" not in close.reply_text
    assert [str(failure.error) for failure in failures] == ["a bug"]
    other.call(m.BasicQos(), m.BasicQosOk)


def test_soft_error_closes_the_channel_and_names_the_method(client: FakeClient) -> None:
    client.send(m.QueueDeclare(queue="missing", passive=True, arguments={}))
    assert client.methods() == [
        m.ChannelClose(
            reply_code=404,
            reply_text="NOT_FOUND - no queue 'missing' in vhost '/'",
            class_id=50,
            method_id=10,
        )
    ]


def test_message_that_fails_names_basic_publish(client: FakeClient) -> None:
    client.publish("missing", "k", b"x")
    close = client.expect_close(404)
    assert (close.class_id, close.method_id) == m.BasicPublish.id


def test_closed_channel_can_be_opened_again_after_close_ok(client: FakeClient) -> None:
    client.publish("missing", "k", b"x")
    client.frames()
    client.publish("amq.fanout", "k", b"dropped")
    client.send(m.BasicQos())
    assert client.frames() == []
    client.send(m.ChannelCloseOk())
    client.call(m.ChannelOpen(), m.ChannelOpenOk)


def test_what_a_lost_connection_had_not_acked_returns_in_order(client: FakeClient, node: Node) -> None:
    queue = client.declare("q")
    for number in range(4):
        client.publish("", "q", b"%d" % number)
    client.consume("q")
    client.send(m.BasicAck(delivery_tag=2))
    client.connection.lost()
    assert (queue.message_count, queue.unacked, queue.is_consumed) == (3, 0, False)
    other = FakeClient(node).open()
    other.consume("q")
    assert [(c.body, c.method.redelivered) for c in other.contents()] == [  # type: ignore[attr-defined]
        (b"0", True),
        (b"2", True),
        (b"3", True),
    ]


def test_exclusive_queues_go_with_their_connection(client: FakeClient, node: Node) -> None:
    client.declare("mine", exclusive=True)
    client.declare("shared")
    client.connection.lost()
    assert list(node.vhosts["/"].queues) == ["shared"]


def test_exclusive_queue_that_was_deleted_is_forgotten_by_its_connection(client: FakeClient) -> None:
    client.declare("deleted", exclusive=True)
    client.call(m.QueueDelete(queue="deleted"), m.QueueDeleteOk)
    client.declare("abandoned", exclusive=True, auto_delete=True)
    client.consume("abandoned")
    client.send(m.BasicCancel(consumer_tag="c"))
    assert client.vhost.exclusive_queues == {}


def test_reply_queue_goes_with_its_channel(client: FakeClient) -> None:
    client.consume("amq.rabbitmq.reply-to", no_ack=True)
    assert len(client.vhost.reply_queues) == 1
    client.send(m.ChannelClose(reply_code=200))
    assert client.vhost.reply_queues == {}


@pytest.mark.parametrize("argument", ["x-priority", "x-browse", "x-selector", "x-stream-offset"])
def test_arguments_of_a_reply_consumer_are_not_looked_at(client: FakeClient, argument: str) -> None:
    client.consume("amq.rabbitmq.reply-to", no_ack=True, arguments={argument: 5.5})
    assert isinstance(client.methods()[0], m.BasicConsumeOk)
    assert len(client.vhost.reply_queues) == 1


def test_reply_consumer_that_is_refused_leaves_no_queue_behind(client: FakeClient) -> None:
    client.consume("amq.rabbitmq.reply-to", no_ack=False)
    client.expect_close(406)
    assert client.vhost.reply_queues == {}


def test_connections_of_a_vhost_are_counted(client: FakeClient, node: Node) -> None:
    other = FakeClient(node).open()
    assert node.vhosts["/"].connections == 2
    other.connection.lost()
    client.send(m.ConnectionClose(reply_code=200), 0)
    assert node.vhosts["/"].connections == 0


def test_end_of_the_last_connection_is_told(client: FakeClient, node: Node) -> None:
    ended: list[bool] = []
    node.when_last_client_ends(lambda: ended.append(True))
    assert not ended
    client.connection.lost()
    assert ended
    node.when_last_client_ends(lambda: ended.append(True))
    assert len(ended) == 2


def test_confirm_of_what_was_taken_leaves_before_the_close(client: FakeClient) -> None:
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    broken = method_frame(0, m.TxCommit())
    client.connection.feed(published("amq.fanout", "", b"x") + broken)
    confirm, close = client.methods(0, 1)
    assert confirm == m.BasicAck(delivery_tag=1)
    assert isinstance(close, m.ConnectionClose)


# --- channels ---


def test_no_more_channels_are_opened_than_were_negotiated(world: FakeWorld) -> None:
    client = FakeClient(make_node(world, Limits(channel_max=3)))
    client.greet()
    client.authenticate()
    world.run_threads()
    client.send(m.ConnectionTuneOk(channel_max=3, frame_max=4096, heartbeat=0), 0)
    client.send(m.ConnectionOpen(), 0)
    for number in (1, 2, 3):
        client.send(m.ChannelOpen(), number)
    client.send(m.ChannelClose(reply_code=200), 2)
    client.send(m.ChannelOpen(), 2)
    assert client.connection.state is State.OPEN
    client.frames()
    client.send(m.ChannelOpen(), 4)
    client.expect_close(530, 0)


@pytest.mark.parametrize(
    ("method", "channel", "code"),
    [
        (m.ChannelOpen(), 1, 504),
        (m.BasicQos(), 2, 504),
        (m.ConnectionOpen(), 1, 503),
        (m.QueueDeclareOk(queue="q", message_count=0, consumer_count=0), 1, 503),
        (
            m.BasicDeliver(consumer_tag="", delivery_tag=1, redelivered=False, exchange="", routing_key=""),
            1,
            503,
        ),
    ],
)
def test_method_out_of_place_closes_the_connection(
    client: FakeClient, method: m.Method, channel: int, code: int
) -> None:
    client.send(method, channel)
    client.expect_close(code, 0)


# --- alarms ---


def test_alarm_blocks_connections_that_publish_and_no_others(client: FakeClient, node: Node) -> None:
    other = FakeClient(node).open()
    node.raise_alarm("memory")
    client.publish("amq.fanout", "", b"x")
    assert client.methods(0) == [m.ConnectionBlocked(reason="low on memory")]
    assert not client.link.is_reading
    assert other.methods(0) == []
    assert other.link.is_reading


def test_alarm_leaves_alone_who_published_before_it(client: FakeClient, node: Node) -> None:
    client.declare("q")
    client.publish("", "q", b"1")
    client.publish("", "q", b"2")
    node.raise_alarm("memory")
    client.frames()
    client.send(m.BasicGet(queue="q", no_ack=False))
    client.send(m.BasicAck(delivery_tag=1, multiple=False))
    client.consume("q")
    assert client.bodies() == [b"1", b"2"]
    assert not client.connection.blocked


def test_blocked_publish_is_taken_when_the_alarm_is_cleared(
    client: FakeClient, node: Node, world: FakeWorld
) -> None:
    """Until then the broker does not take the message, nor any frame behind it, on other channels either."""
    client.declare("q")
    node.raise_alarm("memory")
    client.frames()
    client.publish("", "q", b"1")
    client.publish("", "q", b"2")
    client.send(m.BasicQos())
    queue = node.vhosts["/"].queues["q"]
    assert queue.message_count == 0
    assert client.methods() == []
    node.clear_alarm("memory")
    world.run()
    assert queue.message_count == 2
    assert client.methods() == [m.BasicQosOk()]


def test_alarm_blocks_at_the_first_publish_that_follows(client: FakeClient, node: Node) -> None:
    node.raise_alarm("memory")
    assert client.link.is_reading
    client.publish("amq.fanout", "", b"x")
    assert client.methods(0) == [m.ConnectionBlocked(reason="low on memory")]
    assert not client.link.is_reading


def test_blocked_connection_goes_on_when_the_last_alarm_is_cleared(
    client: FakeClient, node: Node, world: FakeWorld
) -> None:
    node.raise_alarm("memory")
    node.raise_alarm("disk")
    client.publish("amq.fanout", "", b"x")
    client.frames()
    node.clear_alarm("memory")
    world.run()
    assert not client.link.is_reading
    node.clear_alarm("disk")
    world.run()
    assert client.methods(0) == [m.ConnectionUnblocked()]
    assert client.link.is_reading


def test_client_that_does_not_understand_blocked_is_blocked_without_a_word(node: Node) -> None:
    client = FakeClient(node).open(capabilities=())
    node.raise_alarm("memory")
    client.publish("amq.fanout", "", b"x")
    assert client.frames() == []
    assert not client.link.is_reading


def test_blocked_consumer_still_gets_messages(client: FakeClient, node: Node) -> None:
    client.declare("q")
    client.consume("q", no_ack=True)
    node.raise_alarm("memory")
    client.publish("", "q", b"1")
    client.frames()
    message = Message(b"\0", b"\x01q", b"\0\0", b"2", False, 0)
    node.vhosts["/"].queues["q"].publish(message)
    node.end_turn()
    assert client.bodies() == [b"2"]


def test_blocked_connection_that_the_broker_closes_is_read_for_its_close_ok(
    client: FakeClient, node: Node, world: FakeWorld
) -> None:
    node.raise_alarm("memory")
    client.publish("amq.fanout", "", b"x")
    client.connection.force_close("maintenance")
    world.run()
    assert client.link.is_reading


def test_closing_connection_is_not_blocked_any_more(client: FakeClient, node: Node) -> None:
    client.publish("amq.fanout", "", b"x")
    client.connection.force_close("maintenance")
    client.frames()
    node.raise_alarm("memory")
    assert client.frames() == []
    assert client.link.is_reading


# --- a client that does not read ---


def test_congested_client_gets_no_more_messages_until_it_reads(client: FakeClient, node: Node) -> None:
    client.declare("q")
    client.consume("q", no_ack=True)
    client.frames()
    client.connection.congestion_changed(congested=True)
    other = FakeClient(node).open()
    other.publish("", "q", b"1")
    assert client.bodies() == []
    client.connection.congestion_changed(congested=False)
    assert client.bodies() == [b"1"]


def test_message_that_a_congested_consumer_cannot_take_goes_to_another(
    client: FakeClient, node: Node
) -> None:
    client.declare("q")
    client.consume("q")
    client.connection.congestion_changed(congested=True)
    other = FakeClient(node).open()
    other.consume("q")
    for number in range(4):
        other.publish("", "q", b"%d" % number)
    assert len(other.bodies()) == 4


def test_deliveries_of_one_turn_are_bounded_and_go_on_in_the_next(
    client: FakeClient, world: FakeWorld
) -> None:
    client.declare("q")
    for _ in range(30):
        client.publish("", "q", bytes(100_000))
    client.consume("q", no_ack=True)
    first = len(client.bodies())
    assert 0 < first < 30
    turns = 0
    while world.soon:
        world.turn()
        turns += 1
    assert first + len(client.bodies()) == 30
    assert turns > 1


def test_client_that_asks_but_does_not_read_is_not_read(client: FakeClient) -> None:
    client.link.unsent = OUTPUT_BYTES_MAX + 1
    client.send(m.BasicQos())
    assert not client.link.is_reading
    client.link.unsent = 0
    client.connection.congestion_changed(congested=False)
    assert client.link.is_reading


def test_one_read_is_answered_with_one_write(client: FakeClient) -> None:
    before = client.link.writes
    client.connection.feed(method_frame(1, m.BasicQos()) * 10)
    assert client.link.writes == before + 1
    assert client.methods() == [m.BasicQosOk()] * 10
