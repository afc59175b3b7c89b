"""Over real sockets: one connection works on undisturbed while others send garbage to the same process."""

from __future__ import annotations

import random
import socket
import threading

from tests.stress.conftest import Connect, eventually, open_files
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.frames import handshake, method_frame, publish_frames
from tests.support.nonsense import Nonsense
from tests.support.process import BrokerProcess
from warren.amqp import methods as m

ATTACKERS = 2
ROUNDS = 300
WINDOW = 50
BATCHES_MIN = 20


def attack(process: BrokerProcess, seed: int) -> None:
    """Connections of which each says something broken, and hangs up without looking at the answer."""
    dice = random.Random(seed)
    nonsense = Nonsense(dice)
    sound = [*handshake(), method_frame(1, m.ChannelOpen())]
    publish = m.BasicPublish(routing_key="nowhere")
    for _ in range(ROUNDS):
        frames = [*sound[: dice.randrange(len(sound) + 1)], *publish_frames(1, publish, b"x" * 500)]
        frames += [nonsense.spoiled(dice.choice(frames)) for _ in range(20)]
        with socket.create_connection((process.address.host, process.address.port)) as sock:
            try:
                sock.sendall(b"".join(frames))
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                continue  # the broker was faster to close


def publish_and_consume(publisher: AmqpChannel, consumer: AmqpChannel, queue: str, start: int) -> None:
    """A batch: published, delivered in order, acked and confirmed."""
    numbers = range(start, start + WINDOW)
    for number in numbers:
        publisher.publish("", queue, b"%d" % number)
    for number in numbers:
        delivery = consumer.expect_delivery()
        assert (delivery.body, delivery.method.redelivered) == (b"%d" % number, False)
        consumer.send(m.BasicAck(delivery_tag=delivery.method.delivery_tag))
    confirmed = start
    while confirmed < start + WINDOW:
        ack = publisher.expect(m.BasicAck)
        assert ack.delivery_tag == confirmed + 1 or ack.multiple
        assert ack.delivery_tag > confirmed
        confirmed = ack.delivery_tag
    assert confirmed == start + WINDOW


def test_connection_works_on_while_others_send_garbage(process: BrokerProcess, connect: Connect) -> None:
    client: AmqpClient = connect()
    publisher, consumer = client.channel(1), client.channel(2)
    queue = consumer.declare().queue
    consumer.consume(queue)
    publisher.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    files = open_files(process)
    attackers = [threading.Thread(target=attack, args=(process, seed)) for seed in range(ATTACKERS)]
    for attacker in attackers:
        attacker.start()
    batches = 0
    try:
        while batches < BATCHES_MIN or any(attacker.is_alive() for attacker in attackers):
            publish_and_consume(publisher, consumer, queue, batches * WINDOW)
            batches += 1
    finally:
        for attacker in attackers:
            attacker.join()
    eventually(lambda: open_files(process) == files, lambda: consumer.declare("tick"), "the garbage is gone")
