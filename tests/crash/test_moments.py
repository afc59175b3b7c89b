"""The broker is killed right after it has said something: what it said holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.process import BrokerProcess
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, TRANSIENT, BasicProperties

DURABLE = BasicProperties(delivery_mode=PERSISTENT)
TRIES = 5


class Lives:
    """One data directory, and brokers on it, one after the other."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.arguments: tuple[str, ...] = ()

    @contextmanager
    def __call__(self, *, user: str = "guest", vhost: str = "/") -> Iterator[AmqpChannel]:
        """A channel to a broker that is killed at the end of the block."""
        with BrokerProcess(self.data_dir, *self.arguments) as process:
            client = AmqpClient.connect(process.address, user=user, password=user, vhost=vhost)
            try:
                yield client.channel()
                process.kill()
            finally:
                client.abort()
            process.check_log()


@pytest.fixture
def life(tmp_path: Path) -> Lives:
    return Lives(tmp_path / "data")


def publish(channel: AmqpChannel, *bodies: bytes, queue: str = "q") -> None:
    """Publishes, and waits for every confirm."""
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for body in bodies:
        channel.publish("", queue, body, DURABLE)
        channel.expect(m.BasicAck)


def declare(channel: AmqpChannel, queue: str = "q") -> m.QueueDeclareOk:
    return channel.declare(queue, exclusive=False, durable=True)


def hold(channel: AmqpChannel, count: int) -> list[int]:
    """Takes messages without acking them; gives their delivery tags."""
    return [channel.get("q", no_ack=False).method.delivery_tag for _ in range(count)]


def recovered(channel: AmqpChannel) -> list[tuple[bytes, bool]]:
    """All that is in the queue, each with whether it is marked as redelivered."""
    return [(got.body, got.method.redelivered) for got in iter(lambda: channel.try_get("q"), None)]


# --- definitions ---


STEPS: dict[str, tuple[m.Method, type[m.Method]]] = {
    "queue": (m.QueueDeclare(queue="q", durable=True, arguments={}), m.QueueDeclareOk),
    "exchange": (m.ExchangeDeclare(exchange="x", durable=True, arguments={}), m.ExchangeDeclareOk),
    "source": (m.ExchangeDeclare(exchange="s", durable=True, arguments={}), m.ExchangeDeclareOk),
    "binding": (m.QueueBind(queue="q", exchange="x", routing_key="k", arguments={}), m.QueueBindOk),
    "chain": (m.ExchangeBind(destination="x", source="s", routing_key="k", arguments={}), m.ExchangeBindOk),
    "no queue": (m.QueueDelete(queue="q"), m.QueueDeleteOk),
    "no exchange": (m.ExchangeDelete(exchange="x"), m.ExchangeDeleteOk),
    "no binding": (m.QueueUnbind(queue="q", exchange="x", routing_key="k", arguments={}), m.QueueUnbindOk),
    "no chain": (
        m.ExchangeUnbind(destination="x", source="s", routing_key="k", arguments={}),
        m.ExchangeUnbindOk,
    ),
}
BOUND = ("queue", "exchange", "binding")
CHAINED = (*BOUND, "source", "chain")


def exists(channel: AmqpChannel, declaration: m.QueueDeclare | m.ExchangeDeclare) -> bool:
    """Whether there is such a queue or exchange. The channel is open afterwards."""
    answer = channel.call(declaration, m.Method)
    if not isinstance(answer, m.ChannelClose):
        return True
    assert answer.reply_code == 404, answer
    channel.send(m.ChannelCloseOk())
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)
    return False


def leads_to_queue(channel: AmqpChannel, exchange: str) -> bool:
    """Whether a message can be got that was published there, or comes back as a return before."""
    channel.publish(exchange, "k", b"probe", mandatory=True)
    channel.send(m.BasicGet(queue="q", no_ack=True))
    answer = channel.expect(m.Method)
    channel.client.read_message(channel.number)
    if isinstance(answer, m.BasicGetOk):
        return True
    assert isinstance(answer, m.BasicReturn), answer
    channel.expect(m.BasicGetEmpty)
    return False


def find_definitions(channel: AmqpChannel) -> set[str]:
    """Which of what the steps make is there."""
    found = set()
    if exists(channel, m.QueueDeclare(queue="q", passive=True, arguments={})):
        found.add("queue")
    for name, exchange, route in (("exchange", "x", "binding"), ("source", "s", "chain")):
        if exists(channel, m.ExchangeDeclare(exchange=exchange, passive=True, arguments={})):
            found.add(name)
            if "queue" in found and leads_to_queue(channel, exchange):
                found.add(route)
    return found


KEPT: list[tuple[tuple[str, ...], set[str]]] = [  # the steps until the kill, and what is there then
    (("queue",), {"queue"}),
    (("exchange",), {"exchange"}),
    (BOUND, {*BOUND}),
    (CHAINED, {*CHAINED}),
    (("queue", "no queue"), set()),
    (("exchange", "no exchange"), set()),
    ((*BOUND, "no binding"), {"queue", "exchange"}),
    ((*CHAINED, "no chain"), {*BOUND, "source"}),
    ((*BOUND, "no queue", "queue"), {"queue", "exchange"}),
    ((*BOUND, "no exchange", "exchange"), {"queue", "exchange"}),
]


@pytest.mark.parametrize(("steps", "expected"), KEPT, ids=[", ".join(steps) for steps, _ in KEPT])
def test_what_was_declared_is_there_and_what_was_deleted_is_not(
    life: Lives, steps: tuple[str, ...], expected: set[str]
) -> None:
    with life() as channel:
        for step in steps:
            channel.call(*STEPS[step])
    with life() as channel:
        assert find_definitions(channel) == expected


def test_transient_and_exclusive_queues_and_transient_exchanges_are_gone(life: Lives) -> None:
    with life() as channel:
        channel.declare("transient", exclusive=False)
        channel.declare("exclusive", durable=True)
        channel.declare_exchange("transient")
    with life() as channel:
        for queue in ("transient", "exclusive"):
            assert not exists(channel, m.QueueDeclare(queue=queue, passive=True, arguments={})), queue
        assert not exists(channel, m.ExchangeDeclare(exchange="transient", passive=True, arguments={}))


def test_arguments_of_queues_and_exchanges_still_hold(life: Lives) -> None:
    with life() as channel:
        declare(channel)
        channel.declare_exchange("other", "fanout", durable=True)
        channel.declare_exchange("x", "headers", durable=True, arguments={"alternate-exchange": "other"})
        channel.declare("limited", exclusive=False, durable=True, arguments={"x-queue-mode": "lazy"})
        channel.bind("limited", "x", arguments={"x-match": "all", "colour": "red", "size": 3})
        channel.bind("q", "other")
    with life() as channel:
        red = BasicProperties(headers={"colour": "red", "size": 3})
        channel.publish("x", "", b"matches", red)
        channel.publish(
            "x", "", b"goes the other way", BasicProperties(headers={"colour": "blue", "size": 3})
        )
        assert channel.drain("limited") == [b"matches"]
        assert channel.drain("q") == [b"goes the other way"]
        channel.declare_exchange("x", "headers", durable=True, arguments={"alternate-exchange": "other"})
        channel.send(m.ExchangeDeclare(exchange="x", type="headers", durable=True, arguments={}))
        channel.expect_close(406)


def test_users_and_vhosts_of_the_configuration_keep_their_queues(life: Lives, tmp_path: Path) -> None:
    config = tmp_path / "warren.toml"
    config.write_text(
        """
        vhosts = ["/", "shop"]
        [[users]]
        name = "alice"
        password = "alice"
        permissions = {"shop" = {configure = ".*", write = ".*", read = ".*"}}
        """
    )
    life.arguments = ("--config", str(config))
    with life(user="alice", vhost="shop") as channel:
        declare(channel)
        publish(channel, b"kept")
    with life(user="alice", vhost="shop") as channel:
        assert recovered(channel) == [(b"kept", False)]


# --- messages ---


def test_message_is_there_right_after_its_confirm(life: Lives) -> None:
    with life() as channel:
        declare(channel)
    for number in range(TRIES):
        with life() as channel:
            publish(channel, b"%d" % number)
    with life() as channel:
        assert recovered(channel) == [(b"%d" % number, False) for number in range(TRIES)]


def test_committed_messages_are_there_and_others_are_not(life: Lives) -> None:
    with life() as channel:
        declare(channel)
        channel.call(m.TxSelect(), m.TxSelectOk)
        channel.publish("", "q", b"rolled back", DURABLE)
        channel.call(m.TxRollback(), m.TxRollbackOk)
        for body in (b"1", b"2"):
            channel.publish("", "q", body, DURABLE)
        channel.call(m.TxCommit(), m.TxCommitOk)
        channel.publish("", "q", b"not committed", DURABLE)
        declare(channel, "a proof that it has arrived")
    with life() as channel:
        assert recovered(channel) == [(b"1", False), (b"2", False)]


def test_committed_acks_hold_and_others_do_not(life: Lives) -> None:
    with life() as channel:
        declare(channel)
        publish(channel, b"1", b"2", b"3")
        transaction = channel.client.channel(2)
        transaction.call(m.TxSelect(), m.TxSelectOk)
        first, second = hold(transaction, 2)
        transaction.send(m.BasicAck(delivery_tag=first))
        transaction.call(m.TxCommit(), m.TxCommitOk)
        transaction.send(m.BasicAck(delivery_tag=second))
        declare(transaction)
    with life() as channel:
        assert recovered(channel) == [(b"2", True), (b"3", False)]


SETTLED: list[tuple[m.Method, list[tuple[bytes, bool]]]] = [
    (m.BasicAck(delivery_tag=2), [(b"1", True), (b"3", True), (b"4", False)]),
    (m.BasicAck(delivery_tag=2, multiple=True), [(b"3", True), (b"4", False)]),
    (m.BasicReject(delivery_tag=2, requeue=False), [(b"1", True), (b"3", True), (b"4", False)]),
    (m.BasicReject(delivery_tag=2), [(b"1", True), (b"2", True), (b"3", True), (b"4", False)]),
    (
        m.BasicNack(delivery_tag=2, multiple=True),
        [(b"1", True), (b"2", True), (b"3", True), (b"4", False)],
    ),
]


@pytest.mark.parametrize(("method", "expected"), SETTLED, ids=[str(method) for method, _ in SETTLED])
def test_handled_ack_holds_and_what_was_delivered_comes_back_in_place_and_marked(
    life: Lives, method: m.Method, expected: list[tuple[bytes, bool]]
) -> None:
    with life() as channel:
        declare(channel)
        publish(channel, b"1", b"2", b"3", b"4")
        hold(channel, 3)
        channel.send(method)
        declare(channel)
    with life() as channel:
        assert recovered(channel) == expected


def test_messages_requeued_before_stay_marked_through_two_kills(life: Lives) -> None:
    with life() as channel:
        declare(channel)
        publish(channel, b"1", b"2")
        holder = channel.client.channel(2)
        hold(holder, 1)
        holder.close()
    with life() as channel:
        declare(channel)
    with life() as channel:
        assert recovered(channel) == [(b"1", True), (b"2", False)]


def test_purged_messages_stay_away(life: Lives) -> None:
    with life() as channel:
        declare(channel)
        publish(channel, b"purged", b"purged")
        channel.call(m.QueuePurge(queue="q"), m.QueuePurgeOk)
        channel.publish("", "q", b"kept", DURABLE)
        channel.expect(m.BasicAck)
    with life() as channel:
        assert recovered(channel) == [(b"kept", False)]


def test_messages_of_a_deleted_queue_are_not_those_of_a_new_one(life: Lives) -> None:
    with life() as channel:
        declare(channel)
        publish(channel, b"deleted")
        channel.call(m.QueueDelete(queue="q"), m.QueueDeleteOk)
        assert declare(channel).message_count == 0
    with life() as channel:
        assert declare(channel).message_count == 0
        assert recovered(channel) == []


def test_transient_messages_do_not_disturb_persistent_ones(life: Lives) -> None:
    with life() as channel:
        declare(channel)
        publish(channel, b"1")
        channel.publish("", "q", b"transient", BasicProperties(delivery_mode=TRANSIENT))
        channel.expect(m.BasicAck)
        channel.publish("", "q", b"2", DURABLE)
        channel.expect(m.BasicAck)
    with life() as channel:
        assert [got for got in recovered(channel) if got[0] != b"transient"] == [(b"1", False), (b"2", False)]
