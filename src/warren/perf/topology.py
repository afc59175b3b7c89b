"""The queues of a run: made before it, deleted after it; those that were there already are left alone."""

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
    """Which queues a run uses. Without a `name` they get one that nobody else has.

    With an `exchange` messages go through it, each queue bound by its own name; else straight to the queue.
    """

    queues: int = 1
    name: str | None = None
    exchange: str = ""
    durable: bool = False
    stream: bool = False

    def queue_names(self) -> list[str]:
        base = self.name or f"warren-perf-{secrets.token_hex(4)}"
        if self.queues == 1:
            return [base]
        return [f"{base}-{i + 1}" for i in range(self.queues)]


class Topology:
    """Makes the queues on entering and deletes on leaving those that it made."""

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
        """After a failure, which alone is worth telling: that the broker does not answer now is no news."""
        with contextlib.suppress(ClientError):
            self._talk(self._delete())

    def _talk(self, dialogue: Dialogue[None]) -> None:
        """On a connection of its own, which does not depend on how the load's connections are."""
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
