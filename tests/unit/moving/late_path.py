"""A path to a broker on which deliveries are late, as RabbitMQ's are: other answers overtake them."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from typing import Self

from warren.amqp.methods import (
    BasicCancelOk,
    BasicDeliver,
    BasicQosOk,
    QueueDeclareOk,
    decode_method,
)
from warren.client.inbox import END, HEAD, Frame, FrameKind, Inbox
from warren.client.uri import Uri

RECEIVE_BYTES = 65_536


class LatePath:
    """Holds deliveries back until an answer of the type `until` comes, and lets them through before that.
    Counts of ready messages are always 0."""

    def __init__(self, target: Uri, *, until: type[BasicCancelOk | BasicQosOk]) -> None:
        self._target = target
        self._until = until
        self._late = b""  # deliveries that are held back
        self._is_late = False  # whether content that comes now belongs to a delivery
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []

    @property
    def uri(self) -> Uri:
        return replace(self._target, port=self._server.getsockname()[1])

    def __enter__(self) -> Self:
        self._run(self._accept)
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join()

    def _run(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        """One connection only."""
        client, _address = self._server.accept()
        broker = socket.create_connection((self._target.host, self._target.port))
        self._run(self._forth, client, broker)
        self._run(self._back, broker, client)

    def _forth(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError), broker:  # the other thread closes its end when the broker does
            while data := client.recv(RECEIVE_BYTES):
                broker.sendall(data)
            broker.shutdown(socket.SHUT_WR)

    def _back(self, broker: socket.socket, client: socket.socket) -> None:
        inbox = Inbox()
        with contextlib.suppress(OSError), client:  # as above
            while data := broker.recv(RECEIVE_BYTES):
                client.sendall(b"".join(map(self._passed, inbox.feed(data))))

    def _passed(self, frame: Frame) -> bytes:
        """What goes on when this frame has come."""
        if frame.kind == FrameKind.METHOD:
            method = decode_method(frame.payload)
            self._is_late = isinstance(method, BasicDeliver)
            if isinstance(method, QueueDeclareOk):
                frame = frame._replace(payload=replace(method, message_count=0).encode())
            if isinstance(method, self._until):
                late, self._late = self._late, b""
                return late + framed(frame)
        if self._is_late:
            self._late += framed(frame)
            return b""
        return framed(frame)


def framed(frame: Frame) -> bytes:
    return HEAD.pack(frame.kind, frame.channel, len(frame.payload)) + frame.payload + bytes((END,))
