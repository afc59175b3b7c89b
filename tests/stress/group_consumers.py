"""Consumers of a queue with groups, that come and go, and what must hold of all that they get.

A message may come again, to whoever. But those of a group are seen for the first time in the order in which
they were published, and nobody gets one of a group while somebody else holds one of it that is not acked.
"""

from __future__ import annotations

import selectors
import time
from collections import Counter
from random import Random

from tests.support.amqp import AmqpClient
from tests.support.frames import BODY, FRAME_HEAD, FRAME_OVERHEAD_BYTES, METHOD, method_frame, published
from tests.support.process import Address
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties

QUEUE, TAG, HEADER = "grouped", "c", "group"
PREFETCH = 10
SILENCE_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.005  # then those who hold something ack it, or begin to consume again
AT_A_TIME = 1_000
GROUP_DIGITS, NUMBER_DIGITS = 6, 8


def publish_groups(client: AmqpClient, groups: list[int]) -> None:
    """A message for each, with the number that it has within its group; all are confirmed then."""
    channel = client.channel()
    channel.declare(QUEUE, exclusive=False, durable=True, arguments={"x-group-header": HEADER})
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    marks = b"G" * GROUP_DIGITS, b"N" * NUMBER_DIGITS
    properties = BasicProperties(delivery_mode=PERSISTENT, headers={HEADER: marks[0].decode()})
    words = published("", QUEUE, marks[0] + marks[1], properties, channel=channel.number)
    head, middle, rest = words.split(marks[0])
    tail = rest.removeprefix(marks[1])
    sent: Counter[int] = Counter()
    for start in range(0, len(groups), AT_A_TIME):
        some = []
        for group in groups[start : start + AT_A_TIME]:
            some.append(b"%b%06d%b%06d%08d%b" % (head, group, middle, group, sent[group], tail))
            sent[group] += 1
        client.send_raw(b"".join(some))
    while channel.expect(m.BasicAck).delivery_tag < len(groups):
        pass


class GroupConsumer:
    """`held` are its deliveries that are not acked, by tag, in order."""

    def __init__(self, address: Address, crowd: Crowd) -> None:
        self.crowd = crowd
        self.client = AmqpClient.connect(address)
        self.held: dict[int, tuple[int, int]] = {}
        self.groups: Counter[int] = Counter()
        self.delivery_tag = 0
        self.consuming = True
        channel = self.client.channel()
        channel.call(m.BasicQos(prefetch_count=PREFETCH), m.BasicQosOk)
        channel.consume(QUEUE, TAG)
        self.socket = self.client.socket
        self.received = self.client._received  # what came with the last answer

    def receive(self) -> None:
        data = self.socket.recv(1 << 16)
        assert data, "the broker closed the socket"
        self.received += data
        self.take_all()

    def take_all(self) -> None:
        """All frames that are whole."""
        at = 0
        while at + FRAME_HEAD.size <= len(self.received):
            kind, _, size = FRAME_HEAD.unpack_from(self.received, at)
            start, stop = at + FRAME_HEAD.size, at + FRAME_OVERHEAD_BYTES + size
            if stop > len(self.received):
                break
            self.take(kind, bytes(self.received[start : stop - 1]))
            at = stop
        del self.received[:at]

    def take(self, kind: int, payload: bytes) -> None:
        if kind == BODY:
            group, number = int(payload[:GROUP_DIGITS]), int(payload[GROUP_DIGITS:])
            self.crowd.check(self, group, number)
            self.held[self.delivery_tag] = (group, number)
            self.groups[group] += 1
        elif kind == METHOD:
            method = m.decode_method(payload)
            assert isinstance(method, m.BasicDeliver | m.BasicCancelOk | m.BasicConsumeOk), method
            if isinstance(method, m.BasicDeliver):
                self.delivery_tag = method.delivery_tag

    def ack(self, tags: list[int]) -> None:
        for tag in tags:
            group, number = self.held.pop(tag)
            self.groups[group] -= 1
            if not self.groups[group]:
                del self.groups[group]
                self.crowd.holders.pop(group)
            self.crowd.acked.add((group, number))
        self.client.send_raw(b"".join(method_frame(1, m.BasicAck(delivery_tag=tag)) for tag in tags))

    def turn(self) -> None:
        """Stop consuming, or begin again; what it holds it keeps."""
        if self.consuming:
            self.client.send_method(1, m.BasicCancel(consumer_tag=TAG))
        else:
            self.client.send_method(1, m.BasicConsume(queue=QUEUE, consumer_tag=TAG, arguments={}))
        self.consuming = not self.consuming

    def leave(self) -> None:
        """Without a word: from now on others may have what it holds."""
        for group in self.groups:
            self.crowd.holders.pop(group)
        self.client.abort()


class Crowd:
    """`seen` has for each group how many of its messages have been seen."""

    def __init__(self, size: int, rng: Random) -> None:
        self.size = size
        self.rng = rng
        self.holders: dict[int, GroupConsumer] = {}
        self.seen: Counter[int] = Counter()
        self.acked: set[tuple[int, int]] = set()
        self.consumers: list[GroupConsumer] = []
        self.selector = selectors.DefaultSelector()
        self.came_again = 0
        self.left = 0

    def check(self, consumer: GroupConsumer, group: int, number: int) -> None:
        holder = self.holders.setdefault(group, consumer)
        assert holder is consumer, f"group {group} went to two consumers at a time"
        assert number <= self.seen[group], f"{number} of group {group} came before {self.seen[group]}"
        if number == self.seen[group]:
            self.seen[group] += 1
        else:
            self.came_again += 1

    def work(self, address: Address, until_acked: int) -> None:
        """Consume until so many different messages are acked; they stay, and hold what they hold."""
        for _ in range(self.size):
            self.enter(address)
        heard = time.monotonic()
        while len(self.acked) < until_acked:
            for key, _ in self.selector.select(timeout=LOOK_SECONDS):
                key.data.receive()
                heard = time.monotonic()
            assert time.monotonic() < heard + SILENCE_SECONDS_MAX, "nothing comes any more"
            for consumer in self.consumers:
                self.ack_some(consumer)
            if self.rng.random() < 0.05:
                self.rng.choice(self.consumers).turn()
            if self.rng.random() < 0.02:
                self.leave(self.rng.choice(self.consumers))
                self.enter(address)
                self.left += 1

    def leave_all(self) -> None:
        while self.consumers:
            self.leave(self.consumers[0])

    def ack_some(self, consumer: GroupConsumer) -> None:
        """Any of those that it holds, in any order; now and then none."""
        count = min(self.rng.randrange(PREFETCH), len(consumer.held))
        if count:
            consumer.ack(self.rng.sample(list(consumer.held), count))

    def enter(self, address: Address) -> None:
        consumer = GroupConsumer(address, self)
        self.consumers.append(consumer)
        self.selector.register(consumer.socket, selectors.EVENT_READ, consumer)
        consumer.take_all()

    def leave(self, consumer: GroupConsumer) -> None:
        self.consumers.remove(consumer)
        self.selector.unregister(consumer.socket)
        consumer.leave()

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.client.abort()
        self.selector.close()
