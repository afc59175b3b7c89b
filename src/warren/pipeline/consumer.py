"""Consumes queues for a query: deliveries are held, unacked, until the query is done with them.

At most `count_max` messages are unacked at a time, over all queues together, and nothing is read from the
connection while `bytes_max` bytes are held. However the connection ends, the broker then puts all unacked
messages back into their queues.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from warren.amqp.methods import (
    METHOD_ID,
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    QueueDeclare,
    QueueDeclareOk,
)
from warren.amqp.table import Table, encode_name
from warren.broker.message import Message
from warren.client.connection import ANSWER_SECONDS_MAX, ClientConnection
from warren.client.dial import read_method
from warren.client.dialogue import ask, log_out
from warren.client.errors import ClientError
from warren.client.frames import CHANNEL, method_frame
from warren.client.inbox import Frame, FrameKind
from warren.client.uri import Uri
from warren.pipeline.publisher import CONTENT_HEAD_BYTES, PRODUCT
from warren.storage.format import encode_record

PREFETCH_MAX = 65_535
DELIVER = METHOD_ID.pack(*BasicDeliver.id)
TAG_AT = len(DELIVER) + 1
DELIVERY_TAG_AND_BITS = 9
MORE_SECONDS = 0.02
"""After a delivery, how long to wait for the next one before the batch is taken as it is."""


class Delivery(NamedTuple):
    queue: str
    delivery_tag: int
    message: Message
    time_ms: int

    def record(self, position: int) -> bytes:
        """The message as a segment's record, so that the decoder of segments can read it."""
        return encode_record(position, self.time_ms, self.message)


class Envelope(NamedTuple):
    """The arguments of a `basic.deliver`. Names stay bytes, as on the wire and in `Message`."""

    consumer_tag: bytes
    delivery_tag: int
    exchange: bytes
    routing_key: bytes


class Gone(ClientError):
    """A queue was deleted while it was consumed."""


class ConsumingClient:
    """One connection that consumes all queues of a query. With `consuming=False` it begins when `consume` is
    called, and may get single messages before.
    """

    def __init__(
        self,
        uri: Uri,
        queues: Sequence[str],
        *,
        count_max: int,
        bytes_max: int,
        arguments: Table | None = None,
        shared_limit: bool = True,
        consuming: bool = True,
        product: str = PRODUCT,
    ) -> None:
        self.count_max = min(count_max, PREFETCH_MAX)
        self.bytes_max = bytes_max
        self.held: deque[Delivery] = deque()  # unacked, in the order of their delivery tags
        self.held_bytes = 0  # of their bodies
        self._queues = dict(enumerate(queues))  # by number, which is also the consumer tag
        self._arguments = arguments or {}  # of each basic.consume
        self._shared_limit = shared_limit  # whether `count_max` holds for all queues together, or for each
        self._frames = 0  # received so far, by which `gather` sees that the connection is idle
        self._delivered: Envelope | None = None  # of the delivery whose content is arriving
        self._properties = b""  # of that delivery
        self._body: list[bytes] = []  # of that delivery: the frames so far
        self._missing_bytes = 0  # of its body
        self._got: bool | None = None  # whether the last basic.get got a message; None until it is answered
        self._connection = ClientConnection(uri, product=product, on_frame=self._on_frame)
        try:
            self.waiting = self.ready()  # messages in the queues before we consumed any
            self._limit()
            if consuming:
                self.consume()
        except BaseException:
            self._connection.close()
            raise

    def __repr__(self) -> str:
        return f"<ConsumingClient {list(self._queues.values())} held={len(self.held)}>"

    @property
    def server_properties(self) -> Table:
        return self._connection.server_properties

    def ready(self) -> int:
        """How many messages are in the queues, ready to be delivered. It is no proof that a queue is empty:
        the answer may overtake deliveries, and for a quorum queue that is slow to answer RabbitMQ says 0.
        """
        return sum(self._ask_for(name).message_count for name in self._queues.values())

    def consumers(self) -> int:
        """How many consumers the queues have."""
        return sum(self._ask_for(name).consumer_count for name in self._queues.values())

    def _ask_for(self, name: str) -> QueueDeclareOk:
        return self._connection.talk(
            ask(QueueDeclare(queue=name, passive=True, arguments={}), QueueDeclareOk)
        )

    def _limit(self) -> None:
        """With one prefetch limit for all queues, streams refuse, which is meant: a query reads streams,
        and does not consume them.
        """
        qos = BasicQos(prefetch_count=self.count_max, global_=self._shared_limit)
        self._connection.talk(ask(qos, BasicQosOk))

    def consume(self) -> None:
        for number, name in self._queues.items():
            consume = BasicConsume(queue=name, consumer_tag=str(number), arguments=self._arguments)
            self._connection.talk(ask(consume, BasicConsumeOk))

    def cancel(self) -> None:
        """Consume no longer. What was delivered before is held when this returns, and can be settled."""
        for number in self._queues:
            self._connection.talk(ask(BasicCancel(consumer_tag=str(number)), BasicCancelOk))
        self.catch_up()

    def catch_up(self) -> None:
        """Hold all that the broker's channel has for us already: it answers after it has sent that. Of
        RabbitMQ's quorum queues, deliveries may come even after a cancel-ok.
        """
        self._limit()

    def get(self) -> bool:
        """Hold the next message of the only queue; False if the queue is empty. While nothing is consumed, no
        delivery can be on its way, and so this is the proof that nothing is left.
        """
        self._got = None
        self._connection.send([method_frame(CHANNEL, BasicGet(queue=self._queues[0]))])
        while self._got is None or self._delivered is not None:
            self._connection.receive(ANSWER_SECONDS_MAX)
        return self._got

    # --- called by the query ---

    def gather(self, wait_s: float) -> None:
        """Hold what has been delivered; if nothing has, wait up to `wait_s` for the first message."""
        until = time.monotonic() + wait_s
        while len(self.held) < self.count_max and self.held_bytes < self.bytes_max:
            frames = self._frames
            wait_s = MORE_SECONDS if self.held else until - time.monotonic()
            self._connection.poll(max(0.0, wait_s))
            if self._frames == frames and (self.held or time.monotonic() >= until):
                return

    def first(self, count: int) -> list[Delivery]:
        return list(islice(self.held, count))

    def settle(self, count: int) -> None:
        """Ack the first `count` of the held messages: the query is done with them."""
        for _ in range(count):
            done = self.held.popleft()
            self.held_bytes -= len(done.message.body)
        if count:
            ack = BasicAck(delivery_tag=done.delivery_tag, multiple=True)
            self._connection.send([method_frame(CHANNEL, ack)])

    def give_back(self) -> None:
        """Put all held messages back into their queues."""
        if self.held:
            nack = BasicNack(delivery_tag=self.held[-1].delivery_tag, multiple=True, requeue=True)
            self._connection.send([method_frame(CHANNEL, nack)])
        self.held.clear()
        self.held_bytes = 0

    def close(self) -> None:
        """Close with a handshake, so that the broker has read all acks; if it does not answer, just close."""
        try:
            with contextlib.suppress(ClientError):
                self._connection.talk(log_out())
        finally:
            self._connection.close()

    # --- frames from the broker ---

    def _on_frame(self, frame: Frame) -> None:
        self._frames += 1
        if frame.kind == FrameKind.METHOD:
            self._on_method(frame.payload)
            return
        if self._delivered is None:
            raise ClientError("the broker sent content when nothing like it was due")
        if frame.kind == FrameKind.HEADER:
            self._missing_bytes = int.from_bytes(frame.payload[4:CONTENT_HEAD_BYTES])
            self._properties = frame.payload[CONTENT_HEAD_BYTES:]
            self._body = []
        else:
            self._body.append(frame.payload)
            self._missing_bytes -= len(frame.payload)
        if self._missing_bytes <= 0:
            self._hold(self._delivered)

    def _on_method(self, payload: bytes) -> None:
        if payload.startswith(DELIVER):
            self._delivered = read_envelope(payload)
            return
        method = read_method(payload)
        if isinstance(method, BasicCancel):
            raise Gone(f"queue '{self._queues[int(method.consumer_tag)]}' was deleted")
        if isinstance(method, BasicGetOk | BasicGetEmpty):
            self._on_answer_to_get(method)
            return
        raise ClientError(f"the broker sent {method.name} when nothing like it was due")

    def _on_answer_to_get(self, method: BasicGetOk | BasicGetEmpty) -> None:
        self._got = isinstance(method, BasicGetOk)
        if isinstance(method, BasicGetOk):
            exchange, routing_key = encode_name(method.exchange), encode_name(method.routing_key)
            self._delivered = Envelope(b"0", method.delivery_tag, exchange, routing_key)

    def _hold(self, envelope: Envelope) -> None:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        message = Message(envelope.exchange, envelope.routing_key, self._properties, body, True)
        queue = self._queues[int(envelope.consumer_tag)]
        self.held.append(Delivery(queue, envelope.delivery_tag, message, time.time_ns() // 1_000_000))
        self.held_bytes += len(body)
        self._delivered, self._body = None, []


def read_envelope(payload: bytes) -> Envelope:
    """Decoded by hand, since every message has one: `read_method` takes a third of the time of consuming.

    `benchmarks/spark_streams.py --only consume` watches this.

    deliver   id:uint32 consumer_tag:shortstr delivery_tag:uint64 bits:octet
              exchange:shortstr routing_key:shortstr
    """
    try:
        tag = TAG_AT + payload[TAG_AT - 1]
        exchange = tag + DELIVERY_TAG_AND_BITS
        routing_key = exchange + 1 + payload[exchange]
        end = routing_key + 1 + payload[routing_key]
    except IndexError:
        end = -1
    if end != len(payload):
        raise ClientError("the broker sent a basic.deliver that nobody can read")
    return Envelope(
        payload[TAG_AT:tag],
        int.from_bytes(payload[tag : tag + 8]),
        payload[exchange:routing_key],
        payload[routing_key:end],
    )
