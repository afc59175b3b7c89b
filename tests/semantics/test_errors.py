"""Which mistake is answered with which code, what it closes, and in which words."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import Unique
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table

DEFAULT_EXCHANGE = "ACCESS_REFUSED - operation not permitted on the default exchange"
RESERVED = "ACCESS_REFUSED - {} name '{}' contains reserved prefix 'amq.*'"


def test_soft_error_closes_the_channel_and_leaves_the_others_alone(
    channel: AmqpChannel, second: AmqpChannel
) -> None:
    channel.send(m.BasicAck(delivery_tag=1))
    channel.expect_close(406)
    second.declare()
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)


def test_hard_error_closes_the_connection_with_all_its_channels(
    other: AmqpChannel, client: AmqpClient, channel: AmqpChannel, second: AmqpChannel
) -> None:
    queue = channel.declare().queue
    second.publish("", queue, immediate=True)
    client.expect_close(540)
    other.send(m.QueueDeclare(queue=queue, passive=True, arguments={}))
    other.expect_close(404)


@pytest.mark.parametrize(
    "method",
    [
        m.QueueDeclare(queue="missing", passive=True, arguments={}),
        m.QueueBind(queue="missing", exchange="amq.direct", arguments={}),
        m.QueuePurge(queue="missing"),
        m.BasicConsume(queue="missing", arguments={}),
        m.BasicGet(queue="missing"),
    ],
    ids=lambda method: method.name,
)
def test_missing_queue_is_404(channel: AmqpChannel, method: m.Method) -> None:
    channel.send(method)
    close = channel.expect_close(404)
    assert close.reply_text == "NOT_FOUND - no queue 'missing' in vhost '/'"
    assert (close.class_id, close.method_id) == method.id


@pytest.mark.parametrize(
    "method",
    [
        m.ExchangeDeclare(exchange="missing", passive=True, arguments={}),
        m.ExchangeBind(destination="missing", source="amq.direct", arguments={}),
        m.ExchangeBind(destination="amq.direct", source="missing", arguments={}),
    ],
    ids=lambda method: method.name,
)
def test_missing_exchange_is_404(channel: AmqpChannel, method: m.Method) -> None:
    channel.send(method)
    close = channel.expect_close(404)
    assert close.reply_text == "NOT_FOUND - no exchange 'missing' in vhost '/'"
    assert (close.class_id, close.method_id) == method.id


def test_bind_of_a_queue_to_a_missing_exchange_is_404(channel: AmqpChannel) -> None:
    channel.send(m.QueueBind(queue=channel.declare().queue, exchange="missing", arguments={}))
    assert channel.expect_close(404).reply_text == "NOT_FOUND - no exchange 'missing' in vhost '/'"


def test_publish_to_a_missing_exchange_is_404_though_publish_has_no_answer(channel: AmqpChannel) -> None:
    channel.publish("missing", "key", b"body")
    close = channel.expect_close(404)
    assert close.reply_text == "NOT_FOUND - no exchange 'missing' in vhost '/'"
    assert (close.class_id, close.method_id) == m.BasicPublish.id


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (m.QueueDeclare(queue="amq.mine", arguments={}), RESERVED.format("queue", "amq.mine")),
        (m.ExchangeDeclare(exchange="amq.mine", arguments={}), RESERVED.format("exchange", "amq.mine")),
    ],
    ids=["queue", "exchange"],
)
def test_declare_of_a_name_starting_amq_is_403(channel: AmqpChannel, method: m.Method, text: str) -> None:
    channel.send(method)
    assert channel.expect_close(403).reply_text == text


def test_declare_of_an_existing_equivalent_amq_exchange_is_ok(channel: AmqpChannel) -> None:
    channel.declare_exchange("amq.direct", "direct", durable=True)
    channel.declare_exchange("amq.direct", passive=True)


def test_declare_of_an_existing_amq_exchange_of_another_type_is_406(channel: AmqpChannel) -> None:
    channel.send(m.ExchangeDeclare(exchange="amq.direct", type="fanout", durable=True, arguments={}))
    channel.expect_close(406)


@pytest.mark.usefixtures("unlike_rabbitmq")
def test_declare_of_an_existing_equivalent_amq_queue_is_ok(channel: AmqpChannel) -> None:
    """RabbitMQ refuses the name though it gave it."""
    queue = channel.declare().queue
    assert queue.startswith("amq.gen-")
    assert channel.declare(queue).queue == queue


@pytest.mark.parametrize(
    "exchange",
    ["amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match", "amq.missing"],
)
def test_delete_of_an_amq_exchange_is_403(channel: AmqpChannel, exchange: str) -> None:
    channel.send(m.ExchangeDelete(exchange=exchange))
    assert channel.expect_close(403).reply_text == (
        f"ACCESS_REFUSED - deletion of system exchange '{exchange}' in vhost '/' not allowed"
    )


@pytest.mark.parametrize(
    "method",
    [
        m.ExchangeDeclare(exchange="", durable=True, arguments={}),
        m.ExchangeDelete(exchange=""),
        m.ExchangeBind(destination="amq.direct", source="", arguments={}),
        m.ExchangeBind(destination="", source="amq.direct", arguments={}),
        m.ExchangeUnbind(destination="amq.direct", source="", arguments={}),
    ],
    ids=str,
)
def test_declare_delete_and_bind_on_the_default_exchange_are_403(
    channel: AmqpChannel, method: m.Method
) -> None:
    channel.send(method)
    assert channel.expect_close(403).reply_text == DEFAULT_EXCHANGE


@pytest.mark.parametrize("kind", [m.QueueBind, m.QueueUnbind], ids=lambda kind: kind.name)
def test_queue_bind_and_unbind_on_the_default_exchange_are_403(
    channel: AmqpChannel, kind: type[m.QueueBind | m.QueueUnbind]
) -> None:
    channel.send(kind(queue=channel.declare().queue, exchange="", routing_key="key", arguments={}))
    assert channel.expect_close(403).reply_text == DEFAULT_EXCHANGE


def test_publish_to_an_internal_exchange_is_403(channel: AmqpChannel, unique: Unique) -> None:
    exchange = unique()
    channel.declare_exchange(exchange, internal=True)
    channel.publish(exchange, "key")
    assert channel.expect_close(403).reply_text == (
        f"ACCESS_REFUSED - cannot publish to internal exchange '{exchange}' in vhost '/'"
    )


def test_unknown_exchange_type_is_503(client: AmqpClient, channel: AmqpChannel, unique: Unique) -> None:
    channel.send(m.ExchangeDeclare(exchange=unique(), type="x-nonesuch", arguments={}))
    assert client.expect_close(503).reply_text == "COMMAND_INVALID - unknown exchange type 'x-nonesuch'"


def test_consumer_tag_used_twice_on_a_channel_is_530(client: AmqpClient, channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.consume(queue, "mine")
    channel.send(m.BasicConsume(queue=queue, consumer_tag="mine", arguments={}))
    close = client.expect_close(530)
    assert close.reply_text == "NOT_ALLOWED - attempt to reuse consumer tag 'mine'"
    assert (close.class_id, close.method_id) == m.BasicConsume.id


def test_consumer_tag_may_be_used_on_two_channels(client: AmqpClient, channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    assert channel.consume(queue, "mine") == client.channel(2).consume(queue, "mine") == "mine"


def test_consumer_tag_may_be_used_again_after_cancel(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.consume(queue, "mine")
    channel.call(m.BasicCancel(consumer_tag="mine"), m.BasicCancelOk)
    assert channel.consume(queue, "mine") == "mine"


def test_second_channel_open_is_504(client: AmqpClient, channel: AmqpChannel) -> None:
    channel.send(m.ChannelOpen())
    close = client.expect_close(504)
    assert close.reply_text == "CHANNEL_ERROR - second 'channel.open' seen"
    assert (close.class_id, close.method_id) == m.ChannelOpen.id


@pytest.mark.parametrize(
    "method",
    [m.QueueDeclare(arguments={}), m.BasicAck(delivery_tag=1), m.ConfirmSelect()],
    ids=lambda method: method.name,
)
def test_method_on_a_channel_that_is_not_open_is_504(client: AmqpClient, method: m.Method) -> None:
    client.send_method(3, method)
    assert client.expect_close(504).reply_text == "CHANNEL_ERROR - expected 'channel.open'"


def test_method_on_a_channel_that_the_client_closed_is_504(client: AmqpClient, channel: AmqpChannel) -> None:
    channel.close()
    channel.send(m.QueueDeclare(arguments={}))
    assert client.expect_close(504).reply_text == "CHANNEL_ERROR - expected 'channel.open'"


BAD_PROPERTIES: list[tuple[BasicProperties, str]] = [
    (
        BasicProperties(user_id="mallory"),
        "user_id property set to 'mallory' but authenticated user was 'guest'",
    ),
    (BasicProperties(expiration="soon"), "invalid expiration 'soon'"),
    (BasicProperties(expiration="-1"), "invalid expiration '-1'"),
    (BasicProperties(expiration=""), "invalid expiration ''"),
    (BasicProperties(expiration="1.5"), "invalid expiration '1.5'"),
    (BasicProperties(headers={"CC": "key"}), ""),
    (BasicProperties(headers={"BCC": "key"}), ""),
    (BasicProperties(headers={"CC": 5}), ""),
]


@pytest.mark.parametrize(("properties", "text"), BAD_PROPERTIES, ids=lambda case: str(case)[:60])
def test_bad_property_is_406(channel: AmqpChannel, properties: BasicProperties, text: str) -> None:
    channel.publish("amq.direct", "key", b"", properties)
    close = channel.expect_close(406)
    assert close.reply_text.startswith(f"PRECONDITION_FAILED - {text}")


def test_user_id_of_the_connection_is_ok(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue, b"", BasicProperties(user_id="guest"))
    assert channel.get(queue).properties.user_id == "guest"


@pytest.mark.parametrize(
    ("first", "answer", "second", "text"),
    [
        (m.ConfirmSelect(), m.ConfirmSelectOk, m.TxSelect(), "cannot switch from confirm to tx mode"),
        (m.TxSelect(), m.TxSelectOk, m.ConfirmSelect(), "cannot switch from tx to confirm mode"),
    ],
    ids=["confirm then tx", "tx then confirm"],
)
def test_confirm_and_tx_on_one_channel_are_406(
    channel: AmqpChannel, first: m.Method, answer: type[m.Method], second: m.Method, text: str
) -> None:
    channel.call(first, answer)
    channel.send(second)
    assert channel.expect_close(406).reply_text == f"PRECONDITION_FAILED - {text}"


@pytest.mark.parametrize("method", [m.TxCommit(), m.TxRollback()], ids=lambda method: method.name)
def test_commit_and_rollback_without_select_are_406(channel: AmqpChannel, method: m.Method) -> None:
    channel.send(method)
    assert channel.expect_close(406).reply_text == "PRECONDITION_FAILED - channel is not transactional"


def test_delete_of_a_queue_in_use_with_if_unused_is_406(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.consume(queue)
    channel.send(m.QueueDelete(queue=queue, if_unused=True))
    close = channel.expect_close(406)
    assert close.reply_text == f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' in use"


def test_delete_of_a_queue_with_messages_with_if_empty_is_406(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue)
    channel.send(m.QueueDelete(queue=queue, if_empty=True))
    close = channel.expect_close(406)
    assert close.reply_text == f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty"


def test_delete_of_an_exchange_in_use_with_if_unused_is_406(channel: AmqpChannel, unique: Unique) -> None:
    exchange = unique()
    channel.declare_exchange(exchange)
    channel.bind(channel.declare().queue, exchange)
    channel.send(m.ExchangeDelete(exchange=exchange, if_unused=True))
    close = channel.expect_close(406)
    assert close.reply_text == f"PRECONDITION_FAILED - exchange '{exchange}' in vhost '/' in use"


def test_queue_whose_messages_are_all_out_with_clients_counts_as_empty(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue)
    channel.get(queue, no_ack=False)
    channel.call(m.QueueDelete(queue=queue, if_empty=True), m.QueueDeleteOk)


def test_delete_with_if_unused_and_if_empty_met_is_ok(channel: AmqpChannel, unique: Unique) -> None:
    queue, exchange = channel.declare().queue, unique()
    channel.call(m.QueueDelete(queue=queue, if_unused=True, if_empty=True), m.QueueDeleteOk)
    channel.declare_exchange(exchange)
    channel.call(m.ExchangeDelete(exchange=exchange, if_unused=True), m.ExchangeDeleteOk)


def test_delete_of_a_queue_tells_how_many_messages_it_had(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    for _ in range(3):
        channel.publish("", queue)
    assert channel.call(m.QueueDelete(queue=queue), m.QueueDeleteOk).message_count == 3


def test_publish_immediate_is_540(client: AmqpClient, channel: AmqpChannel) -> None:
    channel.publish("", channel.declare().queue, immediate=True)
    close = client.expect_close(540)
    assert close.reply_text == "NOT_IMPLEMENTED - immediate=true"
    assert (close.class_id, close.method_id) == m.BasicPublish.id


NO_ARGUMENTS: Table = {}
IDEMPOTENT: list[tuple[str, m.Method, type[m.Method]]] = [
    ("queue.delete", m.QueueDelete(queue="missing"), m.QueueDeleteOk),
    ("exchange.delete", m.ExchangeDelete(exchange="missing"), m.ExchangeDeleteOk),
    (
        "queue.unbind of a queue",
        m.QueueUnbind(queue="missing", exchange="amq.direct", arguments=NO_ARGUMENTS),
        m.QueueUnbindOk,
    ),
    (
        "exchange.unbind of a destination",
        m.ExchangeUnbind(destination="missing", source="amq.direct", arguments=NO_ARGUMENTS),
        m.ExchangeUnbindOk,
    ),
    (
        "exchange.unbind of a source",
        m.ExchangeUnbind(destination="amq.direct", source="missing", arguments=NO_ARGUMENTS),
        m.ExchangeUnbindOk,
    ),
    (
        "exchange.unbind of a binding",
        m.ExchangeUnbind(destination="amq.direct", source="amq.topic", arguments=NO_ARGUMENTS),
        m.ExchangeUnbindOk,
    ),
]


@pytest.mark.parametrize(
    ("method", "answer"), [pytest.param(method, answer, id=name) for name, method, answer in IDEMPOTENT]
)
def test_removing_what_is_not_there_is_ok(
    channel: AmqpChannel, method: m.Method, answer: type[m.Method]
) -> None:
    channel.call(method, answer)


@pytest.mark.parametrize("exchange", ["amq.direct", "missing"])
def test_unbind_of_a_binding_that_is_not_there_is_ok(channel: AmqpChannel, exchange: str) -> None:
    queue = channel.declare().queue
    unbind = m.QueueUnbind(queue=queue, exchange=exchange, routing_key="key", arguments={})
    channel.call(unbind, m.QueueUnbindOk)


def test_cancel_of_an_unknown_consumer_tag_is_ok(channel: AmqpChannel) -> None:
    assert channel.call(m.BasicCancel(consumer_tag="nobody"), m.BasicCancelOk).consumer_tag == "nobody"
