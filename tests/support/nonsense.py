"""Random values, methods and frames, from dice: the same seed says the same.

Most of it is almost right, since what is plainly wrong ends a connection at the first frame and gets nowhere
near the model.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from decimal import Decimal

from tests.support.frames import (
    BODY,
    FRAME_HEAD,
    HEADER,
    HEARTBEAT_FRAME,
    encode_frame,
    encode_header,
    method_frame,
    publish_frames,
)
from warren.amqp import methods as m
from warren.amqp import table as t
from warren.amqp.properties import BasicProperties

OFTEN = 0.9  # how often a name is one that makes sense

# For each kind of name: those that make sense, and those that rarely do.
QUEUES = (("q0", "q1", "q2", "q3"), ("", "amq.rabbitmq.reply-to", "amq.queue", "\udcff", "q" * 255))
EXCHANGES = (
    ("direct", "fanout", "topic", "headers", "x-consistent-hash", "amq.topic", "amq.headers"),
    ("", "amq.direct", "amq.fanout", "amq.match", "missing", "\udcff"),
)
KEYS = (("q0", "q1", "q2", "q3", "1", "a.b"), ("", "a.#", "#.b.*", "#", "#.#", "9" * 255, "²", "\udc80"))
TAGS = (("c0", "c1", "c2", ""), ("c" * 255, "\udcff"))
NAMES = {
    "queue": QUEUES,
    "exchange": EXCHANGES,
    "source": EXCHANGES,
    "destination": EXCHANGES,
    "type": EXCHANGES,
    "routing_key": KEYS,
    "consumer_tag": TAGS,
}
RARELY = {"exclusive", "internal", "passive", "durable", "auto_delete", "if_unused", "if_empty"}
FIELDS = (
    "CC", "BCC", "x-match", "x-priority", "x-queue-type", "x-max-length", "x-message-ttl", "x-death",
    "x-dead-letter-exchange", "x-dead-letter-routing-key", "alternate-exchange", "hash-header",
    "hash-property", "a", "b", "", "\udcfe", "n" * 255,
)  # fmt: skip
STRINGS = ("", "a", "all", "any", "any-with-x", "classic", "quorum", "topic", "timestamp", "a\0b", "é" * 100)

# The methods that a client may send on a channel; all others are sent only as mistakes.
SPOKEN = [
    kind for ids, kind in m.METHODS.items() if ids[0] > 20 and not kind.name.endswith("-ok")
    and kind not in {m.BasicPublish, m.BasicDeliver, m.BasicReturn, m.BasicGetEmpty}
]  # fmt: skip


class Nonsense:
    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.tags: deque[int] = deque(maxlen=5)

    # --- values ---

    def value(self, depth: int = 0) -> t.Value:
        return self.dice.choice(_DEEP if depth < 4 else _FLAT)(self, depth)

    def table(self, depth: int = 0) -> t.Table:
        names = self.dice.sample(FIELDS, self.dice.choice((0, 0, 0, 0, 1, 1, 2, 5)))
        return {name: self.value(depth + 1) for name in names}

    def sized(self) -> t.Sized:
        kind = self.dice.choice(list(t.SIZED.values()))
        return kind(kind.layout.unpack(self.dice.randbytes(kind.layout.size))[0])

    def name(self, pools: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
        likely, unlikely = pools
        return self.dice.choice(likely if self.dice.random() < OFTEN else unlikely)

    def tag(self) -> int:
        """A delivery tag, mostly one of the latest deliveries."""
        if self.tags and self.dice.random() < OFTEN:
            return self.dice.choice(self.tags)
        return self.dice.choice((0, 1, 1000, 2**63, 2**64 - 1))

    def properties(self) -> BasicProperties:
        dice, result = self.dice, BasicProperties()
        if dice.random() < 0.4:
            result.headers = self.table()
        if dice.random() < 0.2:
            result.reply_to = dice.choice(("q0", "amq.rabbitmq.reply-to"))
        if dice.random() < 0.1:
            result.expiration = dice.choice(("1", "60000", "", "-1", "x", "9" * 255))
        if dice.random() < 0.1:
            result.user_id = dice.choice(("guest", "guest", "", "other"))
        for name in dice.sample(
            ("content_type", "correlation_id", "message_id", "app_id"), dice.choice((0, 1))
        ):
            setattr(result, name, dice.choice(STRINGS))
        result.delivery_mode = dice.choice((None, 1, 2, 255))
        result.timestamp = dice.choice((None, 0, 2**64 - 1))
        return result

    # --- methods ---

    def method(self, kind: type[m.Method]) -> m.Method:
        return kind(**{name: self.argument(name, of) for name, of in kind.layout})

    def argument(self, name: str, kind: str) -> object:
        dice = self.dice
        if kind == "Bit":
            return dice.random() < (0.05 if name in RARELY else 0.3)
        if kind == "FieldTable":
            return self.table()
        if kind == "ShortStr":
            return self.name(NAMES[name]) if name in NAMES else dice.choice(STRINGS)
        if kind == "LongStr":
            return dice.randbytes(dice.randrange(20))
        if name == "delivery_tag":
            return self.tag()
        return dice.choice((0, 0, 1, 2, 5, 255 if kind == "Octet" else 65_535))

    def publish(self, channel: int) -> list[bytes]:
        dice = self.dice
        method = m.BasicPublish(
            exchange=dice.choice(("", "", self.name(EXCHANGES))),
            routing_key=self.name(KEYS),
            mandatory=dice.random() < 0.3,
            immediate=dice.random() < 0.01,
        )
        body = dice.randbytes(dice.choice((0, 1, 10, 100, 5000)))
        return publish_frames(channel, method, body, self.properties(), dice.choice((1000, 4000, 8000)))

    def settle(self, channel: int) -> list[bytes]:
        ack = m.BasicAck(delivery_tag=self.tag(), multiple=self.dice.random() < 0.5)
        return [method_frame(channel, ack)]

    def call(self, channel: int) -> list[bytes]:
        return [method_frame(channel, self.method(self.dice.choice(SPOKEN)))]

    def beat(self, _channel: int) -> list[bytes]:
        return [HEARTBEAT_FRAME]

    def phrase(self, channel: int) -> list[bytes]:
        """The next few frames: something that a client could send."""
        return self.dice.choices(_PHRASES, _WEIGHTS)[0](self, channel)

    # --- what is wrong ---

    def content(self, channel: int) -> list[bytes]:
        """A header or body frame that no method came before."""
        kind, size = self.dice.choice((HEADER, BODY)), self.dice.choice((0, 1, 2**40))
        return [encode_frame(kind, channel, encode_header(size))]

    def blunder(self, channel: int) -> list[bytes]:
        """Any method, also one that only a broker sends, or only on another channel."""
        kind = self.dice.choice(list(m.METHODS.values()))
        return [method_frame(self.dice.choice((0, channel)), self.method(kind))]

    def spoiled(self, frame: bytes) -> bytes:
        """The frame with a random fault."""
        return self.dice.choice(_SPOILERS)(self, bytearray(frame))

    def _flip_bits(self, frame: bytearray) -> bytes:
        for _ in range(self.dice.choice((1, 1, 2, 8))):
            frame[self.dice.randrange(len(frame))] ^= 1 << self.dice.randrange(8)
        return bytes(frame)

    def _spoil_payload(self, frame: bytearray) -> bytes:
        """Change one byte of the payload; the frame around it stays valid."""
        if len(frame) > FRAME_HEAD.size + 1:
            frame[self.dice.randrange(FRAME_HEAD.size, len(frame) - 1)] = self.dice.randrange(256)
        return bytes(frame)

    def _cut_payload(self, frame: bytearray) -> bytes:
        kind, channel, _ = FRAME_HEAD.unpack_from(frame)
        payload = bytes(frame[FRAME_HEAD.size : -1])
        return encode_frame(kind, channel, payload[: self.dice.randrange(len(payload) + 1)])

    def _lengthen_payload(self, frame: bytearray) -> bytes:
        kind, channel, _ = FRAME_HEAD.unpack_from(frame)
        return encode_frame(kind, channel, bytes(frame[FRAME_HEAD.size : -1]) + self.dice.randbytes(3))

    def _cut(self, frame: bytearray) -> bytes:
        return bytes(frame[: self.dice.randrange(len(frame))])

    def _double(self, frame: bytearray) -> bytes:
        return bytes(frame * 2)

    def _other_head(self, frame: bytearray) -> bytes:
        dice = self.dice
        kind, channel = dice.choice((0, 1, 2, 3, 4, 8, 255)), dice.choice((0, 1, 2, 3, 2047, 2048, 65_535))
        return encode_frame(kind, channel, bytes(frame[FRAME_HEAD.size : -1]))

    def _other_size(self, frame: bytearray) -> bytes:
        kind, channel, size = FRAME_HEAD.unpack_from(frame)
        size = self.dice.choice((0, size - 1, size + 1, 131_072, 131_073, 2**31, 2**32 - 1)) % 2**32
        return FRAME_HEAD.pack(kind, channel, size) + bytes(frame[FRAME_HEAD.size :])

    def _random_payload(self, frame: bytearray) -> bytes:
        kind, channel, _ = FRAME_HEAD.unpack_from(frame)
        return encode_frame(kind, channel, self.dice.randbytes(len(frame)))

    def _random(self, frame: bytearray) -> bytes:
        return self.dice.randbytes(len(frame))


_FLAT: list[Callable[[Nonsense, int], t.Value]] = [
    lambda n, _: n.dice.choice(STRINGS),
    lambda n, _: n.dice.choice(STRINGS),
    lambda n, _: n.dice.choice((True, False, None)),
    lambda n, _: n.dice.choice((0, 1, 7, 2**31, -1, 2**63 - 1)),
    lambda n, _: n.sized(),
    lambda n, _: n.dice.choice((0.5, float("nan"), float("inf"), t.Float32(1.5))),
    lambda n, _: Decimal(n.dice.randrange(-(2**31), 2**31)).scaleb(-n.dice.randrange(256)),
    lambda n, _: b"\xff" + n.dice.randbytes(5),
    lambda n, _: bytearray(n.dice.randbytes(5)),
]
_DEEP: list[Callable[[Nonsense, int], t.Value]] = [
    *_FLAT,
    lambda n, depth: n.table(depth),
    lambda n, depth: [n.value(depth + 1) for _ in range(n.dice.choice((0, 1, 1, 3)))],
    lambda n, _: [n.name(KEYS), n.name(KEYS)],
]
_SPOILERS: list[Callable[[Nonsense, bytearray], bytes]] = [
    Nonsense._flip_bits,
    Nonsense._spoil_payload,
    Nonsense._spoil_payload,
    Nonsense._spoil_payload,
    Nonsense._cut_payload,
    Nonsense._lengthen_payload,
    Nonsense._cut,
    Nonsense._double,
    Nonsense._other_head,
    Nonsense._other_size,
    Nonsense._random_payload,
    Nonsense._random,
]

# How often each phrase is sent, in percent.
_PHRASES: list[Callable[[Nonsense, int], list[bytes]]] = [
    Nonsense.publish,
    Nonsense.settle,
    Nonsense.call,
    Nonsense.beat,
    Nonsense.content,
    Nonsense.blunder,
]
_WEIGHTS = [35, 10, 48, 3, 2, 2]
