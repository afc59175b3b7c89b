"""What waits for the disk holds up nobody else, and nothing overtakes it on its own channel."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.storage.bulk import DURABLE, FLEETING
from tests.storage.home import Home, connected, message_count
from tests.support.channel import AmqpChannel
from tests.support.frames import published
from tests.support.process import BrokerProcess
from warren.amqp import methods as m

CHANNELS = 20
MESSAGES = 2_000
PUBLISHERS = 6


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all; they use names of their own."""
    with Home(tmp_path_factory.mktemp("waiting")).broker() as process:
        yield process


def test_pipelined_methods_are_answered_in_order_and_work(process: BrokerProcess) -> None:
    """Declare, bind, publish, consume and delete, over and over, without waiting for an answer."""
    rounds = 30
    with connected(process) as channel:
        for number in range(rounds):
            queue, exchange = f"q{number}", f"x{number}"
            channel.send(m.ExchangeDeclare(exchange=exchange, type="topic", durable=True, arguments={}))
            channel.send(m.QueueDeclare(queue=queue, durable=True, arguments={}))
            channel.send(m.QueueBind(queue=queue, exchange=exchange, routing_key="#", arguments={}))
            channel.publish(exchange, "k", b"%d first" % number, DURABLE)
            channel.publish(exchange, "k", b"%d second" % number)
            channel.send(m.BasicConsume(queue=queue, no_ack=True, arguments={}))
            channel.send(m.ExchangeDelete(exchange=exchange))
        answers, bodies = read_answers(channel, rounds * 5)
        order = [m.ExchangeDeclareOk, m.QueueDeclareOk, m.QueueBindOk, m.BasicConsumeOk, m.ExchangeDeleteOk]
        assert [type(answer) for answer in answers] == order * rounds
        expected = [b"%d %b" % (number, place) for number in range(rounds) for place in (b"first", b"second")]
        assert bodies == expected


def read_answers(channel: AmqpChannel, count: int) -> tuple[list[m.Method], list[bytes]]:
    """So many answers, and the bodies that are delivered between them."""
    answers: list[m.Method] = []
    bodies: list[bytes] = []
    while len(answers) < count:
        method = channel.expect(m.Method)
        if isinstance(method, m.BasicDeliver):
            bodies.append(channel.client.read_message(channel.number)[1])
        else:
            answers.append(method)
    return answers, bodies


def test_declares_on_many_channels_share_a_round(process: BrokerProcess) -> None:
    """Each waits for the disk; if one held up the others, the last would be answered last."""
    with connected(process) as channel:
        client = channel.client
        channels = [channel, *(client.channel(number) for number in range(2, CHANNELS + 1))]
        for some in channels:
            for number in range(10):
                some.send(m.QueueDeclare(queue=f"shared{some.number}-{number}", durable=True, arguments={}))
        order = [client.read_any_frame().channel for _ in range(CHANNELS * 10)]
        assert sorted(order) == sorted(list(range(1, CHANNELS + 1)) * 10)
        for number in range(1, CHANNELS + 1):
            assert order.index(number) < CHANNELS * 2


def test_channel_that_waits_for_the_disk_does_not_hold_up_another(process: BrokerProcess) -> None:
    with connected(process) as waiting:
        other = waiting.client.channel(2)
        other.declare("transient")
        declares = 50
        for number in range(declares):
            waiting.send(m.QueueDeclare(queue=f"held{number}", durable=True, arguments={}))
        other.publish("", "transient", b"x")
        other.send(m.BasicGet(queue="transient", no_ack=True))
        answers = [waiting.client.read_any_frame() for _ in range(declares + 3)]
        place = [frame.channel for frame in answers].index(2)
        assert place < declares // 2
        assert answers[place].is_a(m.BasicGetOk)


# --- confirms ---


class Confirms:
    """What is confirmed on a channel: every tag once, in order."""

    def __init__(self) -> None:
        self.last = 0

    def take(self, ack: m.Method) -> None:
        assert isinstance(ack, m.BasicAck), ack
        assert ack.delivery_tag > self.last
        assert ack.multiple or ack.delivery_tag == self.last + 1
        self.last = ack.delivery_tag


def test_mandatory_message_comes_back_before_its_confirm(process: BrokerProcess) -> None:
    pairs = 50
    with connected(process) as channel:
        channel.declare("somewhere", exclusive=False, durable=True)
        channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        for number in range(pairs):
            channel.publish("", "somewhere", b"x", DURABLE)
            channel.publish("", "nowhere", b"%d" % number, DURABLE, mandatory=True)
        confirms, returned = Confirms(), 0
        while confirms.last < 2 * pairs:
            answer = channel.expect(m.Method)
            if isinstance(answer, m.BasicReturn):
                assert channel.client.read_message(channel.number)[1] == b"%d" % returned
                returned += 1
            else:
                confirms.take(answer)
                assert returned >= confirms.last // 2
        assert returned == pairs


def test_confirms_cover_every_tag_once_whatever_is_published_where(process: BrokerProcess) -> None:
    """Persistent and transient messages, to durable and transient queues, on many connections at once."""
    with connected(process) as channel, ThreadPoolExecutor(PUBLISHERS) as threads:
        channel.declare("durable", exclusive=False, durable=True)
        channel.declare("transient", exclusive=False)
        for done in [threads.submit(publish_both_kinds, process, seed) for seed in range(PUBLISHERS)]:
            done.result()
        assert (
            message_count(channel, "durable") + message_count(channel, "transient") == PUBLISHERS * MESSAGES
        )


def publish_both_kinds(process: BrokerProcess, seed: int) -> None:
    chance = random.Random(seed)
    confirms, sent = Confirms(), 0
    with connected(process) as channel:
        channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        while sent < MESSAGES:
            size = min(chance.choice((1, 3, 100)), MESSAGES - sent)
            kinds = [
                (chance.choice(("durable", "transient")), chance.choice((DURABLE, FLEETING)))
                for _ in range(size)
            ]
            words = b"".join(published("", queue, b"x", properties) for queue, properties in kinds)
            channel.client.send_raw(words)
            sent += size
            while confirms.last < sent - 200:
                confirms.take(channel.expect(m.Method))
        while confirms.last < sent:
            confirms.take(channel.expect(m.Method))
        assert confirms.last == sent
