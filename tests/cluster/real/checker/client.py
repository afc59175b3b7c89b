"""A client of a cluster: one connection with one channel, to one node. It is given up when the node says
nothing for long, as an application would do that has several hosts to choose from.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.process import Address
from warren.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    decode_method,
)
from warren.amqp.properties import PERSISTENT, BasicProperties, decode_properties
from warren.amqp.table import Table
from warren.amqp.writer import Output
from warren.client.connection import ClientConnection
from warren.client.dialogue import ask
from warren.client.errors import OutageError
from warren.client.frames import CHANNEL, method_frame
from warren.client.inbox import Frame, FrameKind
from warren.client.uri import parse_uri

PATIENCE_SECONDS = 8.0  # with a node that does not answer
CONNECT_MS_MAX = 4_000
HEADER_BYTES = 12  # before the properties: class, weight, size of the body
OFFSET = "x-stream-offset"


class Arrived(NamedTuple):
    """A message as it came."""

    delivery_tag: int
    redelivered: bool
    body: bytes
    offset: int | None


class Link(ClientConnection):
    """What arrives is kept until it is taken."""

    def __init__(self, address: Address, product: str) -> None:
        self.methods: list[Method] = []  # that arrived, and are no part of a message
        self.arrived: list[Arrived] = []
        self._method: BasicDeliver | BasicGetOk | None = None  # of the message that is arriving
        self._offset: int | None = None
        uri = parse_uri(f"{address.url()}?connection_timeout={CONNECT_MS_MAX}")
        super().__init__(uri, product=product, on_frame=self._take_frame)

    def receive(self, timeout_s: float) -> None:
        super().receive(min(timeout_s, PATIENCE_SECONDS))

    def take_methods(self) -> list[Method]:
        taken, self.methods = self.methods, []
        return taken

    def take_arrived(self) -> list[Arrived]:
        taken, self.arrived = self.arrived, []
        return taken

    def _take_frame(self, frame: Frame) -> None:
        if frame.kind == FrameKind.METHOD:
            method = decode_method(frame.payload)
            if isinstance(method, BasicDeliver | BasicGetOk):
                self._method = method
            else:
                self.methods.append(method)
        elif frame.kind == FrameKind.HEADER:
            headers = decode_properties(frame.payload[HEADER_BYTES:]).headers or {}
            offset = headers.get(OFFSET)
            self._offset = offset if isinstance(offset, int) else None
        else:
            assert self._method is not None, "a body comes after a method"
            tag, redelivered = self._method.delivery_tag, self._method.redelivered
            self.arrived.append(Arrived(tag, redelivered, frame.payload, self._offset))

    # --- what is asked of the broker ---

    def declare(self, queue: str, arguments: Table) -> None:
        self.talk(ask(QueueDeclare(queue=queue, durable=True, arguments=arguments), QueueDeclareOk))

    def delete(self, queue: str) -> None:
        self.talk(ask(QueueDelete(queue=queue), QueueDeleteOk))

    def confirm(self) -> None:
        """From now on publishes are confirmed."""
        self.talk(ask(ConfirmSelect(), ConfirmSelectOk))

    def publish(self, queue: str, body: bytes, priority: int) -> None:
        output = Output([], None)
        output.method(CHANNEL, BasicPublish(routing_key=queue).encode())
        properties = BasicProperties(delivery_mode=PERSISTENT, priority=priority)
        output.content(CHANNEL, properties.encode(), body)
        self.send(output.take(), timeout_s=PATIENCE_SECONDS)

    def consume(self, queue: str, *, prefetch: int, arguments: Table) -> None:
        self.talk(ask(BasicQos(prefetch_count=prefetch), BasicQosOk))
        self.talk(ask(BasicConsume(queue=queue, arguments=arguments), BasicConsumeOk))

    def ack(self, delivery_tag: int) -> None:
        """This one, and all before it."""
        ack = BasicAck(delivery_tag=delivery_tag, multiple=True)
        self.send([method_frame(CHANNEL, ack)], timeout_s=PATIENCE_SECONDS)

    def get(self, queue: str) -> Arrived | None:
        """The next message; None if there is none."""
        self.send([method_frame(CHANNEL, BasicGet(queue=queue))])
        while not self.arrived:
            self.receive(PATIENCE_SECONDS)
            if any(isinstance(method, BasicGetEmpty) for method in self.take_methods()):
                return None
        return self.take_arrived()[0]


class SilentNode(OutageError):
    """A node that owes an answer, and does not give it."""
