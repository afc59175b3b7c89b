"""Very many small messages, each with a number in its body, published and consumed with little work.

All deliveries of one consumer are of the same size here, so that they are taken apart many at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.support.channel import AmqpChannel
from tests.support.frames import CONTENT_HEAD, FRAME_END, FRAME_HEAD, published
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, TRANSIENT, BasicProperties

DURABLE = BasicProperties(delivery_mode=PERSISTENT)
FLEETING = BasicProperties(delivery_mode=TRANSIENT)
DIGITS = 8
BODY_BYTES = 100
AT_A_TIME = 5_000
TAG = "c"


def always_durable(number: int) -> bool:
    return True


def never_durable(number: int) -> bool:
    return False


class NumberPublisher:
    """Publishes to a queue, and waits for the confirms. `is_durable` says which messages are persistent."""

    def __init__(
        self,
        channel: AmqpChannel,
        queue: str,
        is_durable: Callable[[int], bool] = always_durable,
        *,
        body_bytes: int = BODY_BYTES,
    ) -> None:
        self.channel = channel
        self.is_durable = is_durable
        self.sent = 0
        self.confirmed = 0
        body = b"#" * DIGITS + b"." * (body_bytes - DIGITS)
        self.words = {
            is_durable: published("", queue, body, properties, channel=channel.number).split(b"#" * DIGITS)
            for is_durable, properties in ((True, DURABLE), (False, FLEETING))
        }
        channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)

    def publish(self, numbers: Sequence[int]) -> None:
        """All of them are confirmed then."""
        for start in range(0, len(numbers), AT_A_TIME):
            some = numbers[start : start + AT_A_TIME]
            self.send(some)
            self.wait_until_confirmed(self.sent - len(some))
        self.wait_until_confirmed(self.sent)

    def send(self, numbers: Sequence[int]) -> None:
        data = []
        for number in numbers:
            head, tail = self.words[self.is_durable(number)]
            data.append(b"%b%08d%b" % (head, number, tail))
        self.channel.client.send_raw(b"".join(data))
        self.sent += len(numbers)

    def wait_until_confirmed(self, count: int) -> None:
        while self.confirmed < count:
            self.confirmed = self.channel.expect(m.BasicAck).delivery_tag


class Delivered(NamedTuple):
    delivery_tag: int
    redelivered: bool
    number: int


class NumberConsumer:
    """Consumes such messages, and nothing else happens on its channel."""

    def __init__(
        self, channel: AmqpChannel, queue: str, *, prefetch: int = 1_000, body_bytes: int = BODY_BYTES
    ) -> None:
        self.channel = channel
        self.prefetch = prefetch
        self.layout = struct.Struct(
            f">{FRAME_HEAD.size + len(m.METHOD_ID.pack(0, 0)) + 1 + len(TAG)}x Q ? x"
            f"{1 + len(queue)}x {len(FRAME_END)}x"
            f"{FRAME_HEAD.size + CONTENT_HEAD.size + len(DURABLE.encode())}x {len(FRAME_END)}x"
            f"{FRAME_HEAD.size}x {DIGITS}s {body_bytes - DIGITS}x c"
        )
        channel.call(m.BasicQos(prefetch_count=prefetch), m.BasicQosOk)
        channel.consume(queue, TAG)

    def take(self, count: int) -> list[Delivered]:
        """The next ones; as many as the prefetch count lets out at the most."""
        data = self.channel.client.read_bytes(count * self.layout.size)
        taken: list[Delivered] = []
        for delivery_tag, redelivered, number, end in self.layout.iter_unpack(data):
            assert end == FRAME_END
            taken.append(Delivered(delivery_tag, redelivered, int(number)))
        return taken

    def ack(self, delivery_tag: int, *, multiple: bool = True) -> None:
        self.channel.send(m.BasicAck(delivery_tag=delivery_tag, multiple=multiple))

    def drain(self, count: int) -> Iterator[Delivered]:
        """So many, acked part by part."""
        while count:
            taken = self.take(min(count, self.prefetch // 2))
            self.ack(taken[-1].delivery_tag)
            count -= len(taken)
            yield from taken
