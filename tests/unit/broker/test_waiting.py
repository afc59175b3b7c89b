"""A channel that waits, for a disk for example: what its client and the other channels notice of that."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from tests.support.frames import HEARTBEAT, HEARTBEAT_FRAME, method_frame, published
from warren.amqp import methods as m
from warren.amqp.errors import InternalError, PreconditionFailed
from warren.session.channel import Channel
from warren.session.connection import CHANNEL_METHODS, DEFERRED_BYTES_MAX, OUTPUT_BYTES_MAX
from warren.session.state import State

INTERVAL = 10
CLOSE = m.ChannelClose(reply_code=200)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    yield broker
    assert broker.world.errors == []


@pytest.fixture
def client(broker: FakeBroker) -> FakeClient:
    """A client whose channels 1 and 2 are open; channel 1 waits."""
    client = broker.connect().open()
    client.call(m.ChannelOpen(), m.ChannelOpenOk, 2)
    client.declare("q")
    client.channel.wait()
    return client


@pytest.fixture
def waiting_commits(monkeypatch: pytest.MonkeyPatch) -> list[Channel]:
    """Has every tx.commit wait; the channels that called it."""
    committed: list[Channel] = []

    def commit(channel: Channel, _method: m.Method) -> None:
        committed.append(channel)
        channel.wait()

    monkeypatch.setitem(CHANNEL_METHODS, m.TxCommit, commit)
    return committed


def fill(client: FakeClient) -> None:
    """Have the connection defer more than it may."""
    client.publish("", "q", bytes(DEFERRED_BYTES_MAX))


# --- order ---


def test_waiting_channel_is_answered_when_it_goes_on(client: FakeClient) -> None:
    client.publish("", "q", b"x")
    client.send(m.BasicGet(queue="q", no_ack=True))
    assert client.frames() == []
    client.channel.go_on()
    assert client.bodies() == [b"x"]


def test_other_channels_are_answered_while_one_waits(client: FakeClient) -> None:
    client.send(m.BasicQos())
    client.call(m.BasicQos(), m.BasicQosOk, 2)
    client.call(m.ConnectionUpdateSecret(new_secret=b"", reason=""), m.ConnectionUpdateSecretOk, 0)


def test_waiting_channel_still_gets_messages(broker: FakeBroker) -> None:
    client = broker.connect().open()
    client.declare("q")
    client.consume("q")
    client.frames()
    client.channel.wait()
    broker.connect().open().publish("", "q", b"x")
    assert client.bodies() == [b"x"]


def test_channel_may_wait_once_for_each_of_many_methods_of_one_read(
    client: FakeClient, waiting_commits: list[Channel]
) -> None:
    client.channel.go_on()
    client.connection.feed((method_frame(1, m.TxCommit()) + method_frame(1, m.BasicQos())) * 3)
    for count in (1, 2, 3):
        assert len(waiting_commits) == count
        assert client.frames() == []
        client.channel.reply(m.TxCommitOk())
        client.channel.go_on()
        assert client.methods() == [m.TxCommitOk(), m.BasicQosOk()]


def test_reply_and_what_follows_from_going_on_are_one_write(client: FakeClient) -> None:
    client.send(m.BasicQos())
    before = client.link.writes
    client.channel.reply(m.TxCommitOk())
    client.channel.go_on()
    assert client.methods() == [m.TxCommitOk(), m.BasicQosOk()]
    assert client.link.writes == before + 1


def test_messages_that_were_deferred_are_confirmed(client: FakeClient) -> None:
    client.send(m.ConfirmSelect(no_wait=True))
    client.publish("", "q", b"1")
    client.publish("", "q", b"2")
    client.channel.go_on()
    assert client.methods() == [m.BasicAck(delivery_tag=2, multiple=True)]


def test_going_on_without_having_waited_does_nothing(client: FakeClient) -> None:
    client.channel.go_on()
    client.channel.reply(m.TxCommitOk())
    client.channel.go_on()
    assert client.frames() == []
    client.send(m.BasicQos())
    assert client.methods() == [m.TxCommitOk(), m.BasicQosOk()]


# --- how much ---


def test_connection_whose_channel_defers_too_much_is_not_read_until_it_goes_on(client: FakeClient) -> None:
    client.send(m.BasicQos())
    assert client.link.is_reading
    fill(client)
    assert client.connection.not_reading_because == {"waiting"}
    assert not client.link.is_reading
    client.channel.go_on()
    assert client.connection.not_reading_because == set()
    assert client.link.is_reading
    assert client.methods() == [m.BasicQosOk()]
    assert client.vhost.queues["q"].message_count == 1


def test_limit_is_for_all_channels_of_a_connection_together(client: FakeClient) -> None:
    other = client.connection.channels[2]
    assert isinstance(other, Channel)
    other.wait()
    half = bytes(DEFERRED_BYTES_MAX // 2)
    client.publish("", "q", half, channel=1)
    assert client.link.is_reading
    client.publish("", "q", half, channel=2)
    assert not client.link.is_reading
    other.go_on()
    assert client.link.is_reading
    assert client.channel.waiting


def test_many_empty_frames_are_bounded_as_well(client: FakeClient) -> None:
    frames = published("", "q", b"", channel=1) * 1000
    for _ in range(1000):
        if not client.link.is_reading:
            break
        client.connection.feed(frames)
    assert not client.link.is_reading
    assert client.connection.deferred_bytes < 2 * DEFERRED_BYTES_MAX


def test_connection_that_is_not_read_for_another_reason_too_stays_unread(client: FakeClient) -> None:
    fill(client)
    client.connection.stop_reading("flow")
    client.channel.go_on()
    assert client.connection.not_reading_because == {"flow"}
    assert not client.link.is_reading


def test_deferred_frames_wait_for_a_client_that_does_not_take_its_answers(
    broker: FakeBroker, client: FakeClient
) -> None:
    """The connection stops in the middle of the deferred frames, and goes on there before later frames."""
    client.publish("", "q", bytes(OUTPUT_BYTES_MAX + 1))
    client.send(m.BasicGet(queue="q", no_ack=True))
    client.send(m.BasicQos())
    client.link.unsent = OUTPUT_BYTES_MAX + 1
    client.channel.go_on()
    client.send(m.BasicGet(queue="q", no_ack=True))
    assert [type(method) for method in client.methods()] == [m.BasicGetOk]
    client.link.unsent = 0
    client.connection.congestion_changed(congested=False)
    broker.world.run()
    assert client.methods() == [m.BasicQosOk(), m.BasicGetEmpty()]
    assert client.link.is_reading


# --- signs of life ---


def test_heartbeats_keep_the_connection_of_a_waiting_channel_alive_both_ways(broker: FakeBroker) -> None:
    client = broker.connect().open(heartbeat=INTERVAL)
    client.channel.wait()
    client.send(m.BasicQos())
    for _ in range(5):
        broker.pass_time(INTERVAL)
        assert [frame.kind for frame in client.frames()] == [HEARTBEAT] * 2
        client.connection.feed(HEARTBEAT_FRAME)
    assert client.connection.state is State.OPEN
    assert client.channel.waiting


def test_client_that_is_not_read_while_a_channel_waits_is_not_taken_for_dead(broker: FakeBroker) -> None:
    client = broker.connect().open(heartbeat=INTERVAL)
    client.declare("q")
    client.channel.wait()
    fill(client)
    broker.pass_time(5 * INTERVAL)
    assert client.connection.state is State.OPEN


def test_silent_client_with_a_waiting_channel_is_dropped(broker: FakeBroker) -> None:
    client = broker.connect().open(heartbeat=INTERVAL)
    client.channel.wait()
    broker.pass_time(4 * INTERVAL)
    assert client.link.is_closed


# --- the end of a channel ---


def test_close_of_a_waiting_channel_is_answered_when_it_goes_on(client: FakeClient) -> None:
    client.publish("", "q", b"x")
    client.send(CLOSE)
    assert client.frames() == []
    client.channel.go_on()
    assert client.methods() == [m.ChannelCloseOk()]
    assert client.vhost.queues["q"].message_count == 1
    assert 1 not in client.connection.channels


def test_channel_opened_again_behind_a_deferred_close_is_another_one(
    client: FakeClient, waiting_commits: list[Channel]
) -> None:
    client.connection.feed(
        b"".join(method_frame(1, method) for method in (CLOSE, m.ChannelOpen(), m.TxCommit(), m.BasicQos()))
    )
    first = client.channel
    first.go_on()
    assert client.methods() == [m.ChannelCloseOk(), m.ChannelOpenOk()]
    assert waiting_commits == [client.channel]
    first.go_on()
    assert client.frames() == []
    client.send(m.BasicGet(queue="q"))
    client.channel.go_on()
    assert client.methods() == [m.BasicQosOk(), m.BasicGetEmpty()]


def test_failing_channel_drops_what_was_deferred(client: FakeClient) -> None:
    channel = client.channel
    client.publish("", "q", b"x")
    client.send(m.BasicQos())
    client.connection.on_error(1, PreconditionFailed("no disk"))
    client.expect_close(406)
    assert (channel.waiting, client.connection.deferred_bytes) == (False, 0)
    assert client.vhost.queues["q"].message_count == 0
    channel.go_on()
    assert client.frames() == []


def test_failing_channel_that_defers_nothing_hears_close_ok(client: FakeClient) -> None:
    client.connection.on_error(1, PreconditionFailed("no disk"))
    client.send(m.BasicQos())
    client.send(m.ChannelCloseOk())
    client.frames()
    client.call(m.ChannelOpen(), m.ChannelOpenOk)


def test_failing_channel_answers_a_close_that_was_deferred(client: FakeClient) -> None:
    client.publish("", "q", b"x")
    client.send(CLOSE)
    client.connection.on_error(1, PreconditionFailed("no disk"))
    close, answer = client.methods()
    assert isinstance(close, m.ChannelClose)
    assert answer == m.ChannelCloseOk()
    client.call(m.ChannelOpen(), m.ChannelOpenOk)


def test_handler_that_waits_and_then_fails_closes_the_channel(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(channel: Channel, _method: m.Method) -> None:
        channel.wait()
        raise PreconditionFailed("no disk")

    monkeypatch.setitem(CHANNEL_METHODS, m.TxCommit, commit)
    channel = client.channel
    channel.go_on()
    client.connection.feed(method_frame(1, m.TxCommit()) + published("", "q", b"x") + method_frame(1, CLOSE))
    close, answer = client.methods()
    assert isinstance(close, m.ChannelClose)
    assert answer == m.ChannelCloseOk()
    assert not channel.waiting


def test_deferred_frame_that_fails_closes_the_channel_and_the_rest_is_dropped(client: FakeClient) -> None:
    client.publish("missing", "k", b"x")
    client.publish("", "q", b"dropped")
    client.send(m.BasicQos())
    client.channel.go_on()
    close = client.expect_close(404)
    assert (close.class_id, close.method_id) == m.BasicPublish.id
    assert client.vhost.queues["q"].message_count == 0
    assert client.connection.deferred_bytes == 0


def test_connection_that_was_not_read_for_a_channel_is_read_again_when_it_fails(client: FakeClient) -> None:
    fill(client)
    client.connection.on_error(1, PreconditionFailed("no disk"))
    assert client.link.is_reading


# --- the end of a connection ---


def test_lost_connection_drops_what_was_deferred(client: FakeClient) -> None:
    channel = client.channel
    client.publish("", "q", b"x")
    client.hang_up()
    assert (channel.waiting, channel.deferred, client.connection.deferred_bytes) == (False, None, 0)
    channel.go_on()
    assert client.vhost.queues["q"].message_count == 0


def test_connection_closed_by_its_client_ends_while_a_channel_waits(client: FakeClient) -> None:
    channel = client.channel
    client.publish("", "q", b"x")
    client.send(m.ConnectionClose(reply_code=200), 0)
    assert client.methods(0) == [m.ConnectionCloseOk()]
    assert client.link.is_closed
    channel.go_on()
    assert client.vhost.queues["q"].message_count == 0


def test_connection_that_the_broker_closes_does_not_wait_for_its_channels(client: FakeClient) -> None:
    channel = client.channel
    fill(client)
    client.connection.force_close("maintenance")
    assert client.link.is_reading
    client.expect_close(320, 0)
    channel.go_on()
    assert client.frames() == []
    client.send(m.ConnectionCloseOk(), 0)
    assert client.link.is_closed
    assert client.vhost.queues["q"].message_count == 0


def test_deferred_frame_that_closes_the_connection_is_the_last(client: FakeClient) -> None:
    client.send(m.ChannelOpen())
    client.publish("", "q", b"x")
    client.channel.go_on()
    client.expect_close(504, 0)
    assert client.vhost.queues["q"].message_count == 0
    assert client.connection.deferred_bytes == 0


def test_hard_error_of_what_a_channel_waited_for_closes_the_connection(client: FakeClient) -> None:
    client.publish("", "q", b"x")
    client.connection.on_error(1, InternalError("no disk"))
    client.connection.node.end_turn()
    client.expect_close(541, 0)
    assert client.connection.deferred_bytes == 0


def test_connection_lost_in_the_middle_of_going_on_leaves_no_cycle(client: FakeClient) -> None:
    """The connection ends while it is stopped, with deferred frames left."""
    client.publish("", "q", bytes(OUTPUT_BYTES_MAX + 1))
    client.send(m.BasicGet(queue="q", no_ack=True))
    client.send(m.BasicQos())
    client.channel.go_on()
    assert client.connection.deferred_bytes > 0
    client.hang_up()
    gone = weakref.ref(client.connection)
    gc.collect()
    gc.disable()
    try:
        del client.connection
        assert gone() is None
    finally:
        gc.enable()
