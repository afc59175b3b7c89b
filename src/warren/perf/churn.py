"""Makes and unmakes connections, channels, queues or bindings over and over: the cost of a broker's
bookkeeping.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from warren.amqp.errors import REPLY_SUCCESS
from warren.amqp.methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueueUnbind,
    QueueUnbindOk,
)
from warren.client.dialogue import Dialogue, ask, log_in, log_out
from warren.client.uri import Uri
from warren.perf.files import allow_connections
from warren.perf.interrupt import Interrupt
from warren.perf.link import LoadLink, finish, part
from warren.perf.loop import TURN_SECONDS_MAX, Loop
from warren.perf.results import ChurnResult
from warren.perf.screen import LIVE_SECONDS, Show

CHURNED_CHANNEL = 2
BINDINGS_EXCHANGE = "amq.direct"
"""Every broker has this exchange from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The connection or queue that one link makes and unmakes."""

    uri: Uri
    queue: str
    durable: bool


def connections(subject: Subject) -> Dialogue[None]:
    yield from log_in(subject.uri)
    yield from log_out()


def channels(_subject: Subject) -> Dialogue[None]:
    yield from ask(ChannelOpen(), ChannelOpenOk, channel=CHURNED_CHANNEL)
    yield from ask(ChannelClose(reply_code=REPLY_SUCCESS), ChannelCloseOk, channel=CHURNED_CHANNEL)


def queues(subject: Subject) -> Dialogue[None]:
    declare = QueueDeclare(queue=subject.queue, durable=subject.durable, arguments={})
    yield from ask(declare, QueueDeclareOk)
    yield from ask(QueueDelete(queue=subject.queue), QueueDeleteOk)


def bindings(subject: Subject) -> Dialogue[None]:
    queue, exchange = subject.queue, BINDINGS_EXCHANGE
    yield from ask(QueueBind(queue=queue, exchange=exchange, routing_key=queue, arguments={}), QueueBindOk)
    unbind = QueueUnbind(queue=queue, exchange=exchange, routing_key=queue, arguments={})
    yield from ask(unbind, QueueUnbindOk)


PAIRS: dict[str, Callable[[Subject], Dialogue[None]]] = {
    pair.__name__: pair for pair in (connections, channels, queues, bindings)
}


def run_churn(uri: Uri, of: str, *, parallel: int, durable: bool, seconds: float, show: Show) -> ChurnResult:
    allow_connections(parallel)
    with Loop() as loop:
        churn = Churn(loop, uri, of, durable=durable)
        churn.open(parallel)
        with Interrupt() as interrupt:
            result = churn.run(seconds, interrupt, show)
        churn.close()
    return result


class Churn:
    """Connections that each make and unmake, one pair of operations after the other.

    A pair that was begun is always finished, so that nothing is left behind.
    """

    def __init__(self, loop: Loop, uri: Uri, of: str, *, durable: bool) -> None:
        self._loop = loop
        self._uri = uri
        self._of = of  # which of `PAIRS`
        self._durable = durable  # of the queues
        self._name = f"warren-perf-{secrets.token_hex(4)}"  # how the queues' names begin
        self._links: list[LoadLink] = []
        self._operations = 0  # pairs done so far

    def open(self, parallel: int) -> None:
        self._links = [LoadLink(self._loop, self._uri) for _ in range(parallel)]
        if PAIRS[self._of] is not connections:
            for i, link in enumerate(self._links):
                link.start(self._prepare(self._subject(i)))
            finish(self._loop, self._links)

    def _prepare(self, subject: Subject) -> Dialogue[None]:
        yield from log_in(self._uri)
        if PAIRS[self._of] is bindings:
            # Exclusive, so that the broker deletes the queue with the connection.
            yield from ask(QueueDeclare(queue=subject.queue, exclusive=True, arguments={}), QueueDeclareOk)

    def _subject(self, i: int) -> Subject:
        return Subject(uri=self._uri, queue=f"{self._name}-{i + 1}", durable=self._durable)

    def run(self, seconds: float, interrupt: Interrupt, show: Show) -> ChurnResult:
        for i, link in enumerate(self._links):
            link.start(PAIRS[self._of](self._subject(i)))
        begun_s = time.monotonic()
        self._turn_until(begun_s + seconds, interrupt, show)
        return ChurnResult(of=self._of, seconds=time.monotonic() - begun_s, operations=self._operations)

    def _turn_until(self, end_s: float, interrupt: Interrupt, show: Show) -> None:
        shown, shown_s = 0, time.monotonic()
        while not interrupt.requested and (now_s := time.monotonic()) < end_s:
            if now_s - shown_s >= LIVE_SECONDS:
                show(f"{self._of} made and unmade: {(self._operations - shown) / (now_s - shown_s):,.0f}/s")
                shown, shown_s = self._operations, now_s
            self._loop.turn(min(TURN_SECONDS_MAX, end_s - now_s))
            if self._loop.errors:
                raise self._loop.errors[0]
            for i, link in enumerate(self._links):
                if not link.talking:
                    self._operations += 1
                    self._start_next(i)

    def _start_next(self, i: int) -> None:
        if PAIRS[self._of] is connections:
            self._links[i] = LoadLink(self._loop, self._uri)
        self._links[i].start(PAIRS[self._of](self._subject(i)))

    def close(self) -> None:
        finish(self._loop, self._links)
        part(self._loop, self._links)
