"""Limits of vhosts and users: what is refused, with which words, and who only has to wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker, add_user
from tests.support.frames import method_frame, published
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.errors import PreconditionFailed
from warren.broker import commands
from warren.broker.events import UserLimitsChanged, VhostLimitsChanged
from warren.broker.rate import AT_ONCE_BYTES_MIN


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    add_user(broker.node, "ann")
    yield broker
    broker.stop()
    assert broker.world.errors == []
    assert (broker.vhost.connections, [user.connections for user in broker.node.users.values()]) == (
        0,
        [0, 0],
    )
    assert [user.channels for user in broker.node.users.values()] == [0, 0]


def limit_vhost(
    broker: FakeBroker, max_connections: int | None = None, max_queues: int | None = None
) -> None:
    broker.node.execute(
        commands.SetVhostLimits(vhost="/", max_connections=max_connections, max_queues=max_queues)
    )


def limit_user(broker: FakeBroker, user: str = "ann", **limits: int) -> None:
    broker.node.execute(commands.SetUserLimits(user=user, **limits))


def refusal(broker: FakeBroker, user: str = "ann") -> m.ConnectionClose:
    """What is said to who may not open the vhost; it leaves as it is told to."""
    client = broker.connect()
    client.greet()
    client.authenticate(user)
    broker.world.run_threads()
    client.tune()
    client.frames()
    client.send(m.ConnectionOpen(virtual_host="/"), 0)
    close = client.expect_close(530, 0)
    assert isinstance(close, m.ConnectionClose)
    client.send(m.ConnectionCloseOk(), 0)
    assert client.link.is_closed
    return close


# --- vhosts ---


def test_connection_over_the_limit_of_its_vhost_is_530_until_another_one_ends(broker: FakeBroker) -> None:
    limit_vhost(broker, max_connections=2)
    first, _second = broker.connect().open("ann"), broker.connect().open("guest")
    close = refusal(broker)
    assert close.reply_text == (
        "NOT_ALLOWED - access to vhost '/' refused for user 'ann': connection limit (2) is reached"
    )
    assert (close.class_id, close.method_id) == m.ConnectionOpen.id
    first.hang_up()
    broker.connect().open("ann")
    refusal(broker)


def test_limit_of_zero_lets_nobody_in(broker: FakeBroker) -> None:
    limit_vhost(broker, max_connections=0)
    refusal(broker)


@pytest.mark.parametrize("none", [None, -1])
def test_limit_that_is_taken_away_lets_everybody_in(broker: FakeBroker, none: int | None) -> None:
    limit_vhost(broker, max_connections=0, max_queues=0)
    limit_vhost(broker, max_connections=none, max_queues=none)
    broker.connect().open("ann").declare("q")


def test_connections_that_are_there_stay_when_the_limit_is_lowered(broker: FakeBroker) -> None:
    clients = [broker.connect().open("ann") for _ in range(3)]
    limit_vhost(broker, max_connections=1)
    assert [client.methods(0) for client in clients] == [[], [], []]
    for client in clients[:2]:
        client.hang_up()
    refusal(broker)


def test_queue_over_the_limit_of_its_vhost_is_406_until_another_one_goes(broker: FakeBroker) -> None:
    limit_vhost(broker, max_queues=2)
    client = broker.connect().open("ann")
    client.declare("a")
    client.declare("b", exclusive=True)
    client.send(m.QueueDeclare(queue="c", arguments={}))
    assert client.expect_close(406).reply_text == (
        "PRECONDITION_FAILED - cannot declare queue 'c': queue limit in vhost '/' (2) is reached"
    )
    client.send(m.ChannelCloseOk())
    client.call(m.ChannelOpen(), m.ChannelOpenOk)
    client.call(m.QueueDelete(queue="a"), m.QueueDeleteOk)
    client.declare("c")


def test_queue_that_is_there_may_be_declared_at_the_limit(broker: FakeBroker) -> None:
    client = broker.connect().open("ann")
    client.declare("q")
    limit_vhost(broker, max_queues=0)
    client.declare("q")
    client.call(m.QueueDeclare(queue="q", passive=True, arguments={}), m.QueueDeclareOk)


# --- the node ---


def test_connection_over_the_limit_of_the_node_is_530_until_another_one_ends(broker: FakeBroker) -> None:
    broker.node.limits = replace(broker.node.limits, connections_max=2)
    first, _second = broker.connect().open("ann"), broker.connect().open("guest")
    assert refusal(broker).reply_text == (
        "NOT_ALLOWED - connection refused: node connection limit (2) is reached"
    )
    first.hang_up()
    broker.connect().open("ann")


# --- users ---


def test_connection_over_the_limit_of_its_user_is_530_until_another_one_ends(broker: FakeBroker) -> None:
    limit_user(broker, max_connections=1)
    first = broker.connect().open("ann")
    broker.connect().open("guest")
    assert refusal(broker).reply_text == (
        "NOT_ALLOWED - connection refused for user 'ann': user connection limit (1) is reached"
    )
    first.send(m.ConnectionClose(reply_code=200), 0)
    broker.connect().open("ann")
    refusal(broker)


def test_channel_over_the_limit_of_its_user_closes_its_connection_with_530(broker: FakeBroker) -> None:
    limit_user(broker, max_channels=2)
    first, second = broker.connect().open("ann"), broker.connect().open("ann")
    second.send(m.ChannelOpen(), 2)
    assert second.expect_close(530, 0).reply_text == (
        "NOT_ALLOWED - number of channels opened for user 'ann' has reached "
        "the maximum allowed user limit of (2)"
    )
    assert first.methods(0) == []
    first.call(m.ChannelOpen(), m.ChannelOpenOk, 2)


@pytest.mark.parametrize("how", ["client", "broker"])
def test_channel_that_is_closed_makes_room_for_another(broker: FakeBroker, how: str) -> None:
    limit_user(broker, max_channels=1)
    client = broker.connect().open("ann")
    if how == "client":
        client.call(m.ChannelClose(reply_code=200), m.ChannelCloseOk)
    else:
        client.send(m.QueueDeclare(queue="none", passive=True, arguments={}))
        client.expect_close(404)
        client.send(m.ChannelCloseOk())
    client.call(m.ChannelOpen(), m.ChannelOpenOk, 2)


def test_connections_and_channels_of_a_user_that_was_deleted_are_not_those_of_the_next_one(
    broker: FakeBroker,
) -> None:
    old = broker.connect().open("ann")
    broker.node.execute(commands.DeleteUser(name="ann"))
    add_user(broker.node, "ann")
    limit_user(broker, max_connections=1, max_channels=1)
    broker.connect().open("ann")
    old.hang_up()
    assert broker.node.users["ann"].connections == 1
    refusal(broker)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_connections": -2}, "max-connections: -2 is not within 0 and"),
        ({"max_channels": "5"}, "max-channels: expected a whole number, not '5' (str)"),
        ({"max_publish_rate": 0}, "max-publish-rate: 0 is not within 1 and"),
        ({"max_consume_bytes": 1.5}, "max-consume-bytes: expected a whole number, not 1.5 (float)"),
    ],
)
def test_limit_that_makes_no_sense_is_refused(
    broker: FakeBroker, limits: dict[str, int], reason: str
) -> None:
    with pytest.raises(PreconditionFailed) as raised:
        limit_user(broker, "ann", **limits)
    assert reason in str(raised.value)
    assert broker.node.users["ann"].limits.max_connections is None


def test_changes_of_limits_are_told(broker: FakeBroker) -> None:
    seen: list[object] = []
    broker.node.events.subscribe(VhostLimitsChanged, seen.append)
    broker.node.events.subscribe(UserLimitsChanged, seen.append)
    for _ in range(2):
        limit_vhost(broker, max_queues=5)
        limit_user(broker, max_channels=5)
    assert seen == [VhostLimitsChanged("/"), UserLimitsChanged("ann")]


# --- rates of publishing ---


def publisher(broker: FakeBroker, user: str = "ann") -> FakeClient:
    client = broker.connect().open(user)
    client.declare("q")
    return client


def batch(count: int, body: bytes = b"") -> bytes:
    return published("", "q", body) * count


def received(broker: FakeBroker) -> int:
    return broker.vhost.queues["q"].message_count


def test_publisher_over_its_rate_is_not_read_until_it_is_paid_and_nothing_is_lost(
    broker: FakeBroker,
) -> None:
    limit_user(broker, max_publish_rate=10)
    client = publisher(broker)
    for _ in range(5):
        client.feed(batch(10))
    assert received(broker) == 20, "a second's worth was saved up, and one read went beyond"
    for seconds in range(3):
        assert not client.link.is_reading
        broker.advance(1.0)
        client.run()
        assert received(broker) == min(30 + 10 * seconds, 50)
    broker.advance(1.0)
    assert client.link.is_reading
    assert received(broker) == 50
    assert client.frames() == [], "and nothing was said of it"


def test_publisher_within_its_rate_is_never_held(broker: FakeBroker) -> None:
    limit_user(broker, max_publish_rate=10)
    client = publisher(broker)
    for _ in range(20):
        client.feed(batch(5))
        assert client.link.is_reading
        broker.advance(0.5)
    assert received(broker) == 100


def test_bytes_are_counted_as_they_come_in(broker: FakeBroker) -> None:
    limit_user(broker, max_publish_bytes=1_000)
    client = publisher(broker)
    client.feed(batch(1, bytes(3_000)))
    assert not client.link.is_reading
    broker.advance(2.0)
    assert not client.link.is_reading
    broker.advance(0.5)
    assert client.link.is_reading


def test_rate_is_shared_by_all_connections_of_a_user_and_by_no_other(broker: FakeBroker) -> None:
    limit_user(broker, max_publish_rate=10)
    first, second, other = publisher(broker), publisher(broker), publisher(broker, "guest")
    first.feed(batch(10))
    assert first.link.is_reading
    second.feed(batch(5))
    assert not second.link.is_reading
    other.feed(batch(100))
    assert other.link.is_reading
    first.feed(batch(5))
    broker.advance(0.6)
    assert (first.link.is_reading, second.link.is_reading) == (False, True)
    broker.advance(0.5)
    assert first.link.is_reading


def test_messages_of_a_transaction_and_without_a_route_count_as_well(broker: FakeBroker) -> None:
    limit_user(broker, max_publish_rate=10)
    client = publisher(broker)
    client.call(m.TxSelect(), m.TxSelectOk)
    client.feed(published("", "nowhere") * 11)
    assert client.link.is_reading
    client.send(m.TxCommit())
    assert not client.link.is_reading


def test_messages_of_a_channel_that_closes_behind_them_count_once(broker: FakeBroker) -> None:
    limit_user(broker, max_publish_rate=10)
    client = publisher(broker)
    for _ in range(5):
        broker.advance(1.0)
        client.feed(batch(10))
    assert client.link.is_reading
    client.feed(batch(5) + method_frame(1, m.ChannelClose(reply_code=200)))
    assert not client.link.is_reading
    broker.advance(0.6)
    assert client.link.is_reading


def test_connection_that_is_held_is_not_taken_for_dead(broker: FakeBroker) -> None:
    limit_user(broker, max_publish_rate=1)
    client = broker.connect().open("ann", heartbeat=1)
    client.feed(published("", "nowhere") * 31)
    broker.pass_time(20)
    assert not client.link.is_closed
    broker.pass_time(11)
    assert client.link.is_reading


def test_connection_that_is_held_can_be_closed(broker: FakeBroker) -> None:
    limit_user(broker, max_publish_rate=1)
    client = publisher(broker)
    client.feed(batch(100))
    client.connection.force_close("enough")
    assert client.link.is_reading
    client.send(m.ConnectionCloseOk(), 0)
    assert client.link.is_closed
    broker.advance(1_000)


def test_rate_set_on_an_open_connection_counts_from_then_on(broker: FakeBroker) -> None:
    client = publisher(broker)
    client.feed(batch(1_000))
    limit_user(broker, max_publish_rate=10)
    client.feed(batch(10))
    assert client.link.is_reading
    client.feed(batch(1))
    assert not client.link.is_reading


def test_rate_that_is_raised_or_taken_away_frees_who_waits_at_once(broker: FakeBroker) -> None:
    limit_user(broker, max_publish_rate=1)
    client = publisher(broker)
    client.feed(batch(100))
    assert not client.link.is_reading
    limit_user(broker, max_publish_rate=100)
    assert client.link.is_reading
    client.feed(batch(200))
    assert not client.link.is_reading
    broker.advance(0.5)
    limit_user(broker)
    assert client.link.is_reading
    client.feed(batch(1_000))
    assert client.link.is_reading
    broker.advance(200.0)
    assert client.link.is_reading


def test_who_waits_for_a_new_rate_is_not_freed_when_it_would_have_been_by_the_old(broker: FakeBroker) -> None:
    limit_user(broker, max_publish_rate=10)
    client = publisher(broker)
    client.feed(batch(30))
    limit_user(broker, max_publish_rate=1)
    client.feed(batch(31))
    broker.advance(29.0)
    assert not client.link.is_reading
    broker.advance(1.1)
    assert client.link.is_reading


def test_reads_are_small_where_the_rate_is(broker: FakeBroker) -> None:
    client = publisher(broker)
    assert len(client.connection.writable_view()) > 100_000
    limit_user(broker, max_publish_rate=1)
    assert len(client.connection.writable_view()) == AT_ONCE_BYTES_MIN
    limit_user(broker, max_publish_rate=10**9)
    assert len(client.connection.writable_view()) > 100_000


def test_large_frame_takes_few_reads_all_the_same(broker: FakeBroker) -> None:
    limit_user(broker, max_publish_rate=1)
    client = publisher(broker)
    reads, data = 0, batch(1, bytes(100_000))
    while data:
        view = client.connection.writable_view()
        size = min(len(view), len(data))
        view[:size] = data[:size]
        client.connection.received(size)
        data = data[size:]
        reads += 1
    assert received(broker) == 1
    assert reads < 20


# --- rates of consuming ---


def fill(broker: FakeBroker, count: int, body: bytes = b"") -> None:
    publisher(broker, "guest").publish("", "q", body)
    for _ in range(count - 1):
        queue = classic(broker.vhost.queues["q"])
        queue.publish(queue.lane.ready.head.message)  # type: ignore[union-attr]


def delivered(broker: FakeBroker, client: FakeClient) -> int:
    broker.world.run()
    return len(client.bodies())


def test_consumer_over_its_rate_gets_no_more_until_it_is_paid_and_gets_all(broker: FakeBroker) -> None:
    limit_user(broker, max_consume_rate=10)
    fill(broker, 100)
    client = broker.connect().open("ann")
    client.consume("q", no_ack=True)
    got = delivered(broker, client)
    assert 10 <= got <= 20
    seconds = 0
    while got < 100:
        assert client.link.is_reading
        broker.advance(1.0)
        seconds += 1
        got += delivered(broker, client)
        assert got <= 10 * (seconds + 2)
    assert seconds >= 8
    broker.advance(2.0)
    assert delivered(broker, client) == 0


def test_bytes_are_counted_as_they_are_sent(broker: FakeBroker) -> None:
    limit_user(broker, max_consume_bytes=1_000)
    fill(broker, 3, bytes(2_000))
    client = broker.connect().open("ann")
    client.consume("q", no_ack=True)
    got = [delivered(broker, client)]
    for _ in range(6):
        broker.advance(1.0)
        got.append(delivered(broker, client))
    assert got == [1, 0, 1, 0, 1, 0, 0]


def test_consumer_that_is_held_leaves_the_messages_to_others(broker: FakeBroker) -> None:
    limit_user(broker, max_consume_rate=10)
    fill(broker, 1_000)
    slow, fast = broker.connect().open("ann"), broker.connect().open("guest")
    slow.consume("q", no_ack=True)
    fast.consume("q", no_ack=True)
    assert delivered(broker, slow) + delivered(broker, fast) == 1_000
    assert received(broker) == 0


def test_who_takes_messages_one_by_one_is_held_by_not_being_read(broker: FakeBroker) -> None:
    limit_user(broker, max_consume_rate=10)
    fill(broker, 100)
    client = broker.connect().open("ann")
    for _ in range(11):
        client.feed(method_frame(1, m.BasicGet(queue="q", no_ack=True)))
    assert not client.link.is_reading
    broker.advance(0.2)
    assert client.link.is_reading
    assert received(broker) == 89


def test_socket_and_rate_must_both_let_a_consumer_go_on(broker: FakeBroker) -> None:
    limit_user(broker, max_consume_rate=10)
    fill(broker, 100)
    client = broker.connect().open("ann")
    client.consume("q", no_ack=True)
    assert delivered(broker, client)
    client.connection.congestion_changed(congested=True)
    broker.advance(5.0)
    assert delivered(broker, client) == 0
    client.connection.congestion_changed(congested=False)
    assert delivered(broker, client)
    client.connection.congestion_changed(congested=True)
    client.connection.congestion_changed(congested=False)
    assert delivered(broker, client) == 0


def test_consuming_goes_on_at_once_when_its_rate_is_taken_away(broker: FakeBroker) -> None:
    limit_user(broker, max_consume_rate=1)
    fill(broker, 100)
    client = broker.connect().open("ann")
    client.consume("q", no_ack=True)
    got = delivered(broker, client)
    limit_user(broker)
    assert got + delivered(broker, client) == 100
