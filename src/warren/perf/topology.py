"""The queues of a run. They are made before it and deleted after it, except those that existed already."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from typing import Self

from warren.amqp.errors import NotFound
from warren.amqp.methods import (
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from warren.amqp.table import Table
from warren.client.dialogue import Dialogue, ask, log_in
from warren.client.errors import ClientError, ClosedByBrokerError
from warren.client.uri import Uri
from warren.perf.link import LoadLink, finish, part
from warren.perf.loop import Loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which queues a run uses."""

    queues: int = 1
    name: str | None = None  # of the queue, or how the names of several begin; None for a random one
    exchange: str = ""  # to publish to; each queue is bound to it by its own name
    durable: bool = False
    stream: bool = False

    def queue_names(self) -> list[str]:
        base = self.name or f"warren-perf-{secrets.token_hex(4)}"
        if self.queues == 1:
            return [base]
        return [f"{base}-{i + 1}" for i in range(self.queues)]


class Topology:
    """Makes the missing queues on entering, and deletes those that it made on leaving."""

    def __init__(self, uri: Uri, layout: Layout) -> None:
        self.names = layout.queue_names()
        self._uri = uri
        self._layout = layout
        self._made: list[str] = []

    def __enter__(self) -> Self:
        try:
            missing = [name for name in self.names if self._layout.name is None or not self._exists(name)]
            self._talk(self._make(missing))
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is None:
            self._talk(self._delete())
        else:
            self._clean_up()

    def _clean_up(self) -> None:
        """Delete the queues after a failure. Only that failure is reported, and no further one."""
        with contextlib.suppress(ClientError):
            self._talk(self._delete())

    def _talk(self, dialogue: Dialogue[None]) -> None:
        """Run the dialogue on a connection of its own: those of the load may have failed."""
        with Loop() as loop:
            link = LoadLink(loop, self._uri)
            link.start(dialogue)
            finish(loop, [link])
            part(loop, [link])

    def _exists(self, name: str) -> bool:
        try:
            self._talk(self._look(name))
        except ClosedByBrokerError as error:
            if error.code == NotFound.code:
                return False
            raise
        return True

    def _look(self, name: str) -> Dialogue[None]:
        yield from log_in(self._uri)
        yield from ask(QueueDeclare(queue=name, passive=True, arguments={}), QueueDeclareOk)

    def _make(self, names: list[str]) -> Dialogue[None]:
        yield from log_in(self._uri)
        for name in names:
            arguments: Table = {"x-queue-type": "stream"} if self._layout.stream else {}
            declare = QueueDeclare(queue=name, durable=self._layout.durable, arguments=arguments)
            yield from ask(declare, QueueDeclareOk)
            self._made.append(name)
            if self._layout.exchange:
                bind = QueueBind(queue=name, exchange=self._layout.exchange, routing_key=name, arguments={})
                yield from ask(bind, QueueBindOk)

    def _delete(self) -> Dialogue[None]:
        yield from log_in(self._uri)
        for name in self._made:
            yield from ask(QueueDelete(queue=name), QueueDeleteOk)
