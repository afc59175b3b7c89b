"""Messages that can be recognized: what comes back is compared with what was published, byte by byte.

The id is in the property message_id, since a body may be empty; one that is long enough begins with it too.
Of the body the ledger keeps a checksum only.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple, TypeAlias

from tests.support.frames import FRAME_MAX, FRAME_OVERHEAD_BYTES, Content, published
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, TRANSIENT, BasicProperties

Delivery: TypeAlias = Content[m.BasicDeliver] | Content[m.BasicGetOk]

BODY_BYTES_MAX = 400_000
CHUNK_BYTES = FRAME_MAX - FRAME_OVERHEAD_BYTES
NOISE = random.Random(0).randbytes(2 * BODY_BYTES_MAX)
PERSISTENT_SHARE = 0.85

SIZES = [  # bytes from, to, and how often
    (0, 0, 8),
    (1, 200, 60),
    (201, 5_000, 22),
    (8_000, 9_000, 4),
    (9_001, 70_000, 4),
    (CHUNK_BYTES - 1, CHUNK_BYTES + 1, 1),
    (100_000, BODY_BYTES_MAX, 1),
]
SIZE_WEIGHTS = [often for _, _, often in SIZES]

SHAPES = [
    BasicProperties(),
    BasicProperties(content_type="application/json", correlation_id="c-1", reply_to="r", app_id="kill test"),
    BasicProperties(headers={}, priority=0, timestamp=1_700_000_000),
    BasicProperties(headers={"retries": 3, "trace": {"id": "ä", "sampled": True}, "list": [1, "two", None]}),
    BasicProperties(content_encoding="gzip", type="event", user_id="guest", headers={"long": "x" * 3_000}),
]


class Route(NamedTuple):
    """Where one can publish to, and the durable queues that it leads to."""

    exchange: str
    routing_key: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """What was published, apart from the bytes of the body."""

    publisher: str
    number: int
    route: Route
    properties: BasicProperties
    body_size: int
    body_checksum: int

    @property
    def id(self) -> str:
        return f"{self.publisher}/{self.number}"

    @property
    def persistent(self) -> bool:
        return self.properties.delivery_mode == PERSISTENT

    def differences(self, delivery: Delivery) -> Iterator[str]:
        """What is not as it was published, in words."""
        method, body = delivery.method, delivery.body
        if (method.exchange, method.routing_key) != self.route[:2]:
            came_by = f"{method.exchange!r} with key {method.routing_key!r}"
            exchange, key, _ = self.route
            yield f"published to {exchange!r} with key {key!r}, but came by {came_by}"
        if without_count(delivery.properties) != without_count(self.properties):
            yield f"published with {self.properties}, but came with {delivery.properties}"
        if len(body) != self.body_size:
            yield f"published with {self.body_size} bytes, but came with {len(body)}: {body[:40]!r}…"
        elif zlib.crc32(body) != self.body_checksum:
            yield f"its {len(body)} bytes are not those published: {body[:40]!r}…"


def without_count(properties: BasicProperties) -> BasicProperties:
    """Without the header by which the broker says how often the message was delivered before."""
    headers = {
        name: value for name, value in (properties.headers or {}).items() if name != "x-delivery-count"
    }
    return replace(properties, headers=headers or None)


def make_message(
    publisher: str, number: int, route: Route, properties: BasicProperties, body: bytes
) -> Message:
    """What is known of a message with this body; its id is put into the properties."""
    named = replace(properties, message_id=f"{publisher}/{number}")
    return Message(publisher, number, route, named, len(body), zlib.crc32(body))


def make_body(name: str, size: int) -> bytes:
    head = f"{name} {size} ".encode()[:size]
    start = zlib.crc32(head) % BODY_BYTES_MAX
    return head + NOISE[start : start + size - len(head)]


class MessageMaker:
    """Makes one publisher's messages, numbered in the order in which it publishes them, over all rounds."""

    def __init__(self, publisher: str) -> None:
        self.publisher = publisher
        self.numbers = count(1)

    def make(self, chance: random.Random, route: Route) -> tuple[Message, bytes]:
        """A message of any size and any properties, and its body."""
        number = next(self.numbers)
        low, high, _ = chance.choices(SIZES, SIZE_WEIGHTS)[0]
        body = make_body(f"{self.publisher}/{number}", chance.randint(low, high))
        mode = PERSISTENT if chance.random() < PERSISTENT_SHARE else TRANSIENT
        properties = replace(chance.choice(SHAPES), delivery_mode=mode)
        return make_message(self.publisher, number, route, properties, body), body


def publish_bytes(message: Message, body: bytes, channel: int) -> bytes:
    exchange, routing_key, _ = message.route
    return published(exchange, routing_key, body, message.properties, channel=channel)
