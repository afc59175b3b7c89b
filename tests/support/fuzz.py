"""A client that sends nonsense, but answers as a client would, and checks all that the broker sends."""

from __future__ import annotations

import random

from tests.support.fakes import FakeBroker
from tests.support.frames import METHOD, PROTOCOL_HEADER, Frame, handshake, method_frame, split_frames
from tests.support.nonsense import EXCHANGES, QUEUES, Nonsense
from warren.amqp import methods as m
from warren.session.state import State

SOFT_CODES = {311, 312, 313, 403, 404, 405, 406}
HARD_CODES = {320, 402, 501, 502, 503, 504, 505, 506, 530, 540}  # 541 would be the broker's own mistake
REFUSED_LOGIN = 403
FRAMES_MAX = 200
CHANNELS = 3
CUT_AT_RANDOM = 0.3


class FuzzClient:
    """One connection of nonsense, from one seed."""

    def __init__(self, broker: FakeBroker, seed: str) -> None:
        self.dice = random.Random(seed)
        self.nonsense = Nonsense(self.dice)
        self.peer = broker.connect(seed)
        self.frames = 0  # how many were sent so far
        self.unsent = bytearray()  # the beginning of a frame that was cut at random
        self.closes: list[m.ConnectionClose] = []  # sent by the broker
        self.closed_channels: set[int] = set()  # closed by the broker
        self.spoil = self.dice.choice((0.0, 0.0, 0.02, 0.02, 0.1, 0.5))  # this part of the frames is spoiled
        self.answers = self.dice.random() < 0.9  # whether it answers what the broker asks

    def run(self) -> None:
        for frame in handshake(heartbeat=self.dice.choice((0, 1, 60))):
            self.say(frame)
        for number in range(1, CHANNELS + 1):
            self.say(method_frame(number, m.ChannelOpen()))
            for step in self.preparations():
                self.say(method_frame(number, step))
        limit = self.dice.randrange(1, FRAMES_MAX)
        while self.frames < limit and self.peer.connection.state is not State.CLOSED:
            for frame in self.phrase():
                self.say(frame)
            self.listen()
        self.flush()
        self.listen()
        self.check_end()
        self.peer.hang_up()

    def preparations(self) -> list[m.Method]:
        """What most clients do first, with random names."""
        dice = self.dice
        queue, exchange = dice.choice(QUEUES[0]), dice.choice(EXCHANGES[0][:5])
        steps: list[m.Method] = [
            m.QueueDeclare(queue=queue, arguments={}),
            m.ExchangeDeclare(exchange=exchange, type=exchange, arguments={}),
            m.QueueBind(queue=queue, exchange=exchange, routing_key="1", arguments={}),
            m.BasicQos(prefetch_count=dice.choice((0, 1, 10)), global_=dice.random() < 0.5),
            m.BasicConsume(queue=queue, arguments={}),
            m.BasicConsume(queue=QUEUES[1][1], no_ack=True, arguments={}),
            dice.choice((m.ConfirmSelect(), m.TxSelect())),
        ]
        return [step for step in steps if dice.random() < 0.6]

    def say(self, frame: bytes) -> None:
        self.frames += 1
        if self.dice.random() < self.spoil:
            frame = self.nonsense.spoiled(frame)
        self.unsent += frame
        if self.dice.random() < CUT_AT_RANDOM:
            cut = self.dice.randrange(len(self.unsent) + 1)
            self.peer.feed(bytes(self.unsent[:cut]))
            del self.unsent[:cut]
        else:
            self.flush()

    def flush(self) -> None:
        self.peer.feed(bytes(self.unsent))
        self.unsent.clear()

    def phrase(self) -> list[bytes]:
        """The next frames, on a channel that is probably open."""
        number = self.dice.randrange(1, CHANNELS + 1)
        if number in self.closed_channels and self.answers:
            self.closed_channels.discard(number)
            return [method_frame(number, m.ChannelCloseOk()), method_frame(number, m.ChannelOpen())]
        return self.nonsense.phrase(number)

    # --- what the broker says ---

    def listen(self) -> None:
        sent = self.peer.link.take()
        if sent == PROTOCOL_HEADER:
            return
        for frame in split_frames(sent):
            assert not self.closes or frame.is_a(m.ConnectionCloseOk), f"{frame} behind connection.close"
            self.heard(frame)

    def heard(self, frame: Frame) -> None:
        if frame.kind != METHOD:
            return
        method = m.decode_method(frame.payload)
        if isinstance(method, m.ChannelClose):
            assert method.reply_code in SOFT_CODES, method
            self.closed_channels.add(frame.channel)
        elif isinstance(method, m.ConnectionClose):
            assert method.reply_code in HARD_CODES | {REFUSED_LOGIN}, method
            self.closes.append(method)
        elif isinstance(method, (m.BasicDeliver, m.BasicGetOk)):
            self.nonsense.tags.append(method.delivery_tag)

    def check_end(self) -> None:
        """The connection still works, or the broker closed it with a reason, or the client closed it."""
        connection = self.peer.connection
        if self.closes:
            assert connection.state in {State.CLOSING, State.CLOSED}
        if connection.state is State.CLOSED:
            assert self.peer.link.is_closed
        assert connection.handling is None
