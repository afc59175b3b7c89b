"""What is declared durable is there after a restart just as it was declared, and nothing else is."""

from __future__ import annotations

import signal

from tests.storage.bulk import DURABLE
from tests.storage.home import Home, connected, message_count
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.frames import method_frame
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table

DECLARES = 3_000
DEFINITIONS_BYTES_MAX = 400_000
QUEUE_ARGUMENTS: Table = {"x-queue-mode": "lazy", "note": "Grüße", "nested": {"list": [1, True, None, 2.5]}}
MATCH_ALL: Table = {"x-match": "all", "colour": "red", "size": 3}


def declare_durable(channel: AmqpChannel) -> None:
    """All kinds of definitions. To declare them once more must be allowed, and change nothing."""
    channel.declare_exchange("fallback", "fanout", durable=True)
    channel.declare_exchange(
        "matching", "headers", durable=True, arguments={"alternate-exchange": "fallback", "note": b"\xff"}
    )
    channel.declare_exchange("inner", "topic", durable=True, internal=True)
    channel.declare_exchange("outer", "topic", durable=True, auto_delete=True)
    channel.declare("q", exclusive=False, durable=True, arguments=QUEUE_ARGUMENTS)
    channel.declare("rest", exclusive=False, durable=True)
    channel.bind("q", "matching", "", MATCH_ALL)
    channel.bind("rest", "fallback")
    channel.bind("q", "inner", "a.#")
    channel.call(
        m.ExchangeBind(destination="inner", source="outer", routing_key="*.b", arguments={}), m.ExchangeBindOk
    )


def check_routes(channel: AmqpChannel) -> None:
    for colour in ("red", "blue"):
        channel.publish(
            "matching", "", colour.encode(), BasicProperties(headers={"colour": colour, "size": 3})
        )
    channel.publish("outer", "a.b", b"through both")
    channel.publish("outer", "b.b", b"not by the inner one")
    channel.publish("outer", "a.b.c", b"not by the outer one")
    assert channel.drain("q") == [b"red", b"through both"]
    assert channel.drain("rest") == [b"blue"]


def test_durable_definitions_are_there_after_every_restart(home: Home) -> None:
    with home.life(ends_by=signal.SIGKILL) as channel:
        declare_durable(channel)
        check_routes(channel)
    for _ in range(2):
        with home.life(ends_by=signal.SIGTERM) as channel:
            check_routes(channel)
            declare_durable(channel)
            check_routes(channel)


DIFFERENT: list[m.Method] = [
    m.QueueDeclare(queue="q", arguments={}),
    m.QueueDeclare(queue="q", durable=True, auto_delete=True, arguments=QUEUE_ARGUMENTS),
    m.QueueDeclare(queue="rest", durable=True, arguments={"x-max-length": 3}),
    m.ExchangeDeclare(exchange="matching", type="headers", durable=True, arguments={}),
    m.ExchangeDeclare(exchange="outer", type="topic", durable=True, arguments={}),
    m.ExchangeDeclare(exchange="fallback", type="topic", durable=True, arguments={}),
]


def test_other_declares_of_the_same_names_are_406_after_a_restart(home: Home) -> None:
    with home.life() as channel:
        declare_durable(channel)
    with home.life() as channel:
        for different in DIFFERENT:
            channel.send(different)
            channel.expect_close(406)
            channel.call(m.ChannelOpen(), m.ChannelOpenOk)


def has(channel: AmqpChannel, declare: m.QueueDeclare | m.ExchangeDeclare) -> bool:
    answer = channel.call(declare, m.Method)
    if not isinstance(answer, m.ChannelClose):
        return True
    assert answer.reply_code == 404, answer
    channel.send(m.ChannelCloseOk())
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)
    return False


def has_queue(channel: AmqpChannel, queue: str) -> bool:
    return has(channel, m.QueueDeclare(queue=queue, passive=True, arguments={}))


def has_exchange(channel: AmqpChannel, exchange: str) -> bool:
    return has(channel, m.ExchangeDeclare(exchange=exchange, passive=True, arguments={}))


def test_what_went_by_itself_does_not_come_back(home: Home) -> None:
    with home.broker(ends_by=signal.SIGKILL) as process, connected(process) as channel:
        channel.declare("left", exclusive=False, durable=True, auto_delete=True)
        channel.declare("unused", exclusive=False, durable=True, auto_delete=True)
        channel.declare_exchange("emptied", durable=True, auto_delete=True)
        channel.bind("left", "emptied", "k")
        channel.publish("", "left", b"x", DURABLE)
        channel.consume("left", "c")
        channel.expect_delivery()
        channel.call(m.BasicCancel(consumer_tag="c"), m.BasicCancelOk)
        assert not has_queue(channel, "left")
        assert not has_exchange(channel, "emptied")
        channel.declare("another", exclusive=False, durable=True)  # its line comes behind theirs
    with home.life() as channel:
        assert not has_queue(channel, "left")
        assert not has_exchange(channel, "emptied")
        assert has_queue(channel, "unused")


def test_exclusive_and_transient_ones_do_not_come_back(home: Home) -> None:
    with home.life(ends_by=signal.SIGKILL) as channel:
        channel.declare("exclusive", durable=True)
        channel.declare("transient", exclusive=False)
        channel.declare("durable", exclusive=False, durable=True)
        channel.declare_exchange("transient")
        channel.bind("durable", "transient", "k")
        channel.bind("transient", "amq.direct", "k")
    with home.life() as channel:
        assert not has_queue(channel, "exclusive")
        assert not has_queue(channel, "transient")
        assert not has_exchange(channel, "transient")
        channel.declare_exchange("transient")
        channel.publish("transient", "k", b"its binding went with it")
        assert channel.drain("durable") == []


def test_queue_that_was_declared_anew_is_empty(home: Home) -> None:
    with home.life(ends_by=signal.SIGKILL) as channel:
        for _ in range(3):
            channel.declare("q", exclusive=False, durable=True)
            channel.publish("", "q", b"of the old one", DURABLE)
            channel.call(m.QueueDelete(queue="q"), m.QueueDeleteOk)
        channel.declare("q", exclusive=False, durable=True)
    with home.life() as channel:
        assert message_count(channel, "q") == 0
        assert len(list((home.data_dir / "queues").iterdir())) <= 1


def test_definitions_are_compacted_while_the_broker_runs(home: Home) -> None:
    path = home.data_dir / "definitions.log"
    with home.life(ends_by=signal.SIGKILL) as channel:
        channel.declare("first", exclusive=False, durable=True)
        for number in range(DECLARES):
            name = f"q{number}"
            declare = m.QueueDeclare(queue=name, durable=True, no_wait=True, arguments={"note": "x" * 50})
            bind = m.QueueBind(queue=name, exchange="amq.topic", routing_key="k", no_wait=True, arguments={})
            delete = m.QueueDelete(queue=name, no_wait=True)
            words = b"".join(method_frame(1, method) for method in (declare, bind, delete))
            channel.client.send_raw(words)
            if number % 100 == 0:
                channel.declare("tick")
        channel.declare("last", exclusive=False, durable=True)
        assert path.stat().st_size < DEFINITIONS_BYTES_MAX
    with home.life() as channel:
        assert has_queue(channel, "first")
        assert has_queue(channel, "last")
        assert not has_queue(channel, f"q{DECLARES - 1}")
        channel.publish("amq.topic", "k", b"x", mandatory=True)
        channel.expect_content(m.BasicReturn)


USERS = """
vhosts = ["/", "shop"]
[[users]]
name = "alice"
password = "secret"
permissions = {"shop" = {configure = "^a", write = ".*", read = ".*"}}
topic_permissions = {"shop" = {"amq.topic" = {write = "^a", read = ".*"}}}
"""


def test_users_vhosts_and_permissions_outlive_the_configuration_that_made_them(home: Home) -> None:
    config = home.path / "users.toml"
    config.write_text(USERS)
    for arguments in (("--config", str(config)), ()):
        home.arguments = arguments
        with home.broker(ends_by=signal.SIGKILL) as process:
            client = AmqpClient.connect(process.address, user="alice", password="secret", vhost="shop")
            check_permissions(client.channel())
            client.abort()


def check_permissions(channel: AmqpChannel) -> None:
    channel.declare("allowed", exclusive=False, durable=True)
    channel.send(m.QueueDeclare(queue="not", durable=True, arguments={}))
    channel.expect_close(403)
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)
    channel.publish("amq.topic", "not")
    channel.expect_close(403)
