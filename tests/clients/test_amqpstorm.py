"""AMQPStorm, a threaded client: every error a user meets, with its code, and what goes on after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amqpstorm.channel import Channel
from amqpstorm.connection import Connection
from amqpstorm.exception import AMQPChannelError, AMQPConnectionError, AMQPMessageError
from amqpstorm.message import Message

from tests.clients.conftest import LARGE_BODY, serve_until
from tests.support.process import Address

Act = Callable[[Channel, str], object]


def connect(broker: Address, **options: Any) -> Connection:
    return Connection(
        broker.host, **{"username": "guest", "password": "guest", "port": broker.port, **options}
    )


@pytest.fixture
def connection(broker: Address) -> Iterator[Connection]:
    with connect(broker) as connection:
        yield connection


@pytest.fixture
def channel(connection: Connection) -> Channel:
    return connection.channel()


@pytest.fixture
def other(connection: Connection) -> Channel:
    """Another channel of the same connection."""
    return connection.channel()


@pytest.fixture
def queue(channel: Channel, name: str) -> str:
    """A queue, and an exchange of the same name that is bound to it and goes when it goes."""
    channel.queue.declare(name, exclusive=True)
    channel.exchange.declare(name, "direct", auto_delete=True)
    channel.queue.bind(name, name, "key")
    return name


def publish(channel: Channel, queue: str, *bodies: str) -> None:
    for body in bodies:
        channel.basic.publish(body, queue)


def ready_count(channel: Channel, queue: str) -> int:
    count: int = channel.queue.declare(queue, passive=True)["message_count"]
    return count


def take(channel: Channel, queue: str) -> Message:
    message = channel.basic.get(queue)
    assert isinstance(message, Message), "the queue is empty"
    return message


def drain(channel: Channel, queue: str) -> list[tuple[Any, bool | None]]:
    """Take all that is ready, as pairs of body and redelivered."""
    taken = []
    while isinstance(message := channel.basic.get(queue, no_ack=True), Message):
        taken.append((message.body, message.redelivered))
    return taken


def run(channel: Channel, name: str, act: Act) -> None:
    """Do it, and if it has no answer of its own, wait for the error to come.

    A request instead could cross the broker's close and reach it on a channel that is closed by then, for
    which it closes the connection. So this waits for messages, which ends without a word if it was the
    connection that failed.
    """

    def wait() -> None:
        list(channel.build_inbound_messages(break_on_empty=True, empty_timeout=None))
        channel.check_for_errors()

    act(channel, name)
    serve_until(wait, lambda: False)


def reply_code(channel: Channel, name: str, act: Act) -> int | None:
    """The code that closed the channel."""
    with pytest.raises(AMQPChannelError) as refused:
        run(channel, name, act)
    assert not channel.is_open
    return refused.value.error_code


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda c, q: c.queue.declare(f"{q}-no", passive=True), id="declare queue passively"),
        pytest.param(
            lambda c, q: c.exchange.declare(f"{q}-no", passive=True), id="declare exchange passively"
        ),
        pytest.param(lambda c, q: c.basic.consume(queue=f"{q}-no"), id="consume"),
        pytest.param(lambda c, q: c.basic.get(f"{q}-no"), id="get"),
        pytest.param(lambda c, q: c.queue.purge(f"{q}-no"), id="purge"),
        pytest.param(lambda c, q: c.queue.bind(f"{q}-no", "amq.direct", "k"), id="bind a missing queue"),
        pytest.param(lambda c, q: c.queue.bind(q, f"{q}-no", "k"), id="bind to a missing exchange"),
        pytest.param(
            lambda c, q: c.exchange.bind(f"{q}-no", "amq.direct", "k"), id="bind a missing exchange"
        ),
        pytest.param(lambda c, q: c.basic.publish("x", "k", f"{q}-no"), id="publish"),
    ],
)
def test_naming_what_does_not_exist_closes_the_channel_with_404(
    connection: Connection, channel: Channel, queue: str, act: Act
) -> None:
    assert reply_code(channel, queue, act) == 404
    assert drain(connection.channel(), queue) == []


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(
            lambda c, q: c.queue.declare(q, exclusive=True, auto_delete=True), id="queue, auto_delete"
        ),
        pytest.param(lambda c, q: c.exchange.declare(q, "fanout", auto_delete=True), id="exchange, type"),
        pytest.param(
            lambda c, q: c.exchange.declare(q, "direct", auto_delete=True, durable=True),
            id="exchange, durable",
        ),
        pytest.param(lambda c, q: c.exchange.declare(q, "direct"), id="exchange, auto_delete"),
        pytest.param(
            lambda c, q: c.exchange.declare(
                q, "direct", auto_delete=True, arguments={"alternate-exchange": "x"}
            ),
            id="exchange, alternate-exchange",
        ),
    ],
)
def test_declaring_again_with_other_settings_closes_the_channel_with_406(
    connection: Connection, channel: Channel, queue: str, act: Act
) -> None:
    assert reply_code(channel, queue, act) == 406
    assert drain(connection.channel(), queue) == []


def test_declaring_again_with_equal_settings_keeps_what_is_there(channel: Channel, queue: str) -> None:
    publish(channel, queue, "kept")
    channel.exchange.declare(queue, "direct", auto_delete=True)
    assert channel.queue.declare(queue, exclusive=True)["message_count"] == 1


def test_declaring_a_transient_queue_durable_closes_the_channel_with_406_and_says_so(
    connection: Connection, channel: Channel, name: str
) -> None:
    channel.queue.declare(name)
    with pytest.raises(AMQPChannelError) as refused:
        channel.queue.declare(name, durable=True)
    connection.channel().queue.delete(name)
    assert refused.value.error_code == 406
    assert str(refused.value).endswith(
        f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{name}' in vhost '/': "
        "received 'true' but current is 'false'"
    )


def consume_and_delete_if_unused(channel: Channel, queue: str) -> None:
    channel.basic.consume(queue=queue)
    channel.queue.delete(queue, if_unused=True)


def publish_and_delete_if_empty(channel: Channel, queue: str) -> None:
    publish(channel, queue, "message")
    channel.queue.delete(queue, if_empty=True)


def ack_twice(channel: Channel, queue: str) -> None:
    publish(channel, queue, "message")
    message = take(channel, queue)
    message.ack()
    message.ack()


def confirm_then_transact(channel: Channel, queue: str) -> None:
    channel.confirm_deliveries()
    channel.tx.select()


def transact_then_confirm(channel: Channel, queue: str) -> None:
    channel.tx.select()
    channel.confirm_deliveries()


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(consume_and_delete_if_unused, id="delete a queue in use, if unused"),
        pytest.param(publish_and_delete_if_empty, id="delete a queue with messages, if empty"),
        pytest.param(
            lambda c, q: c.exchange.delete(q, if_unused=True), id="delete a bound exchange, if unused"
        ),
        pytest.param(lambda c, _: c.basic.ack(7), id="ack an unknown tag"),
        pytest.param(lambda c, _: c.basic.nack(7, multiple=True), id="nack up to an unknown tag"),
        pytest.param(lambda c, _: c.basic.reject(7), id="reject an unknown tag"),
        pytest.param(ack_twice, id="ack twice"),
        pytest.param(lambda c, _: c.tx.commit(), id="commit without select"),
        pytest.param(lambda c, _: c.tx.rollback(), id="roll back without select"),
        pytest.param(confirm_then_transact, id="transactions on a confirming channel"),
        pytest.param(transact_then_confirm, id="confirms on a transactional channel"),
        pytest.param(
            lambda c, q: c.basic.publish("x", q, properties={"user_id": "other"}), id="another's user_id"
        ),
        pytest.param(
            lambda c, q: c.basic.publish("x", q, properties={"headers": {"CC": "text"}}),
            id="CC that is no array",
        ),
        pytest.param(
            lambda c, q: c.basic.publish("x", q, properties={"reply_to": "amq.rabbitmq.reply-to"}),
            id="reply-to without a consumer of replies",
        ),
    ],
)
def test_failed_precondition_closes_the_channel_with_406(
    connection: Connection, channel: Channel, queue: str, act: Act
) -> None:
    assert reply_code(channel, queue, act) == 406
    assert connection.channel().queue.declare(queue, passive=True)["queue"] == queue


def consume_beside_an_exclusive_consumer(channel: Channel, queue: str) -> None:
    channel.basic.consume(queue=queue, exclusive=True)
    channel.basic.consume(queue=queue)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda c, q: c.queue.declare(f"amq.{q}"), id="declare a queue amq.*"),
        pytest.param(lambda c, q: c.exchange.declare(f"amq.{q}"), id="declare an exchange amq.*"),
        pytest.param(lambda c, _: c.exchange.delete("amq.direct"), id="delete an exchange amq.*"),
        pytest.param(lambda c, _: c.exchange.delete(""), id="delete the default exchange"),
        pytest.param(lambda c, q: c.queue.bind(q, "", "k"), id="bind to the default exchange"),
        pytest.param(consume_beside_an_exclusive_consumer, id="consume beside an exclusive consumer"),
    ],
)
def test_what_is_reserved_closes_the_channel_with_403(
    connection: Connection, channel: Channel, queue: str, act: Act
) -> None:
    assert reply_code(channel, queue, act) == 403
    assert drain(connection.channel(), queue) == []


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda c, q: c.queue.declare(q, exclusive=True), id="declare"),
        pytest.param(lambda c, q: c.queue.declare(q, passive=True), id="declare passively"),
        pytest.param(lambda c, q: c.queue.bind(q, "amq.direct", "k"), id="bind"),
        pytest.param(lambda c, q: c.basic.consume(queue=q), id="consume"),
        pytest.param(lambda c, q: c.basic.get(q), id="get"),
        pytest.param(lambda c, q: c.queue.purge(q), id="purge"),
        pytest.param(lambda c, q: c.queue.delete(q), id="delete"),
    ],
)
def test_exclusive_queue_of_another_connection_closes_the_channel_with_405(
    broker: Address, channel: Channel, queue: str, act: Act
) -> None:
    publish(channel, queue, "still there")
    with connect(broker) as stranger:
        assert reply_code(stranger.channel(), queue, act) == 405
        assert stranger.channel().is_open
    assert drain(channel, queue) == [("still there", False)]


def test_exclusive_queue_goes_with_its_connection(broker: Address, channel: Channel, name: str) -> None:
    with connect(broker) as owner:
        owner.channel().queue.declare(name, exclusive=True)
    assert reply_code(channel, name, lambda c, q: c.queue.declare(q, passive=True)) == 404


@pytest.mark.parametrize(
    ("code", "act"),
    [
        pytest.param(
            503, lambda c, q: c.exchange.declare(f"{q}-odd", "no-such-type"), id="unknown exchange type"
        ),
        pytest.param(
            530,
            lambda c, q: [c.basic.consume(queue=q, consumer_tag="same") for _ in range(2)],
            id="consumer tag twice",
        ),
        pytest.param(540, lambda c, q: c.basic.publish("x", q, immediate=True), id="immediate publish"),
    ],
)
def test_what_the_protocol_forbids_closes_the_connection(
    connection: Connection, channel: Channel, queue: str, code: int, act: Act
) -> None:
    with pytest.raises(AMQPConnectionError) as refused:
        run(channel, queue, act)
    assert refused.value.error_code == code
    assert connection.is_closed


def test_wrong_password_closes_the_connection_with_403(broker: Address) -> None:
    with pytest.raises(AMQPConnectionError) as refused:
        connect(broker, password="wrong")
    assert refused.value.error_code == 403


def test_unknown_vhost_closes_the_connection_with_530(broker: Address, name: str) -> None:
    with pytest.raises(AMQPConnectionError) as refused:
        connect(broker, virtual_host=name)
    assert refused.value.error_code == 530


def test_error_on_one_channel_leaves_consumers_on_others_alone(
    connection: Connection, channel: Channel, other: Channel, queue: str
) -> None:
    got: list[Any] = []
    channel.basic.consume(lambda message: got.append(message.body), queue, no_ack=True)
    assert reply_code(other, f"{queue}-no", lambda c, q: c.basic.get(q)) == 404
    publish(connection.channel(), queue, "goes on")
    serve_until(channel.process_data_events, lambda: got == ["goes on"])


def test_confirmed_publish_says_true(channel: Channel, queue: str) -> None:
    channel.confirm_deliveries()
    assert [channel.basic.publish(str(number), queue) for number in range(20)] == [True] * 20


def test_confirmed_mandatory_publish_without_a_queue_says_312(channel: Channel, queue: str) -> None:
    channel.confirm_deliveries()
    with pytest.raises(AMQPMessageError) as unroutable:
        channel.basic.publish("back", f"{queue}-no", mandatory=True)
    assert unroutable.value.error_code == 312
    assert channel.basic.publish("goes on", queue, mandatory=True) is True


def test_consumer_is_told_when_its_queue_is_deleted(
    connection: Connection, channel: Channel, queue: str
) -> None:
    tag = channel.basic.consume(lambda _: None, queue)
    assert channel.consumer_tags == [tag]
    connection.channel().queue.delete(queue)
    serve_until(channel.process_data_events, lambda: channel.consumer_tags == [])
    assert channel.is_open


def test_large_body_comes_back_as_it_was(channel: Channel, queue: str) -> None:
    channel.basic.publish(LARGE_BODY, queue, properties={"content_encoding": "binary"})
    message = channel.basic.get(queue, auto_decode=False)
    assert isinstance(message, Message)
    assert message.body == LARGE_BODY


def test_leaving_a_transaction_commits_it(channel: Channel, queue: str) -> None:
    with channel.tx:
        publish(channel, queue, "1", "2")
        assert ready_count(channel, queue) == 0
    assert drain(channel, queue) == [("1", False), ("2", False)]


def test_rollback_drops_publishes_and_the_next_transaction_starts_empty(channel: Channel, queue: str) -> None:
    channel.tx.select()
    publish(channel, queue, "dropped")
    channel.tx.rollback()
    publish(channel, queue, "kept")
    channel.tx.commit()
    assert drain(channel, queue) == [("kept", False)]


def test_rollback_takes_back_acks_and_requeues_nothing(channel: Channel, other: Channel, queue: str) -> None:
    publish(channel, queue, "again")
    other.tx.select()
    take(other, queue).ack()
    other.tx.rollback()
    assert ready_count(channel, queue) == 0
    other.close()
    assert drain(channel, queue) == [("again", True)]


def test_ack_in_a_transaction_counts_from_its_commit(channel: Channel, other: Channel, queue: str) -> None:
    publish(channel, queue, "done")
    other.tx.select()
    take(other, queue).ack()
    other.tx.commit()
    other.close()
    assert drain(channel, queue) == []
