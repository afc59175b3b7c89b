"""A consumer that counts deliveries, and acknowledges a number of them at a time."""

from __future__ import annotations

from warren.amqp.methods import BasicConsume, BasicConsumeOk, BasicQos, BasicQosOk
from warren.amqp.table import Table
from warren.client.dialogue import Dialogue, ask, log_in
from warren.client.uri import Uri
from warren.perf.link import LoadLink
from warren.perf.loop import Loop
from warren.perf.scanner import Histogram, Scanner

CONSUMER_TAG = "c"
"""Short, because every delivery carries it."""


class LoadConsumer:
    """Consumes from one queue; `ack_every` 0 means that the broker expects no acks."""

    def __init__(
        self,
        loop: Loop,
        uri: Uri,
        queue: str,
        latencies: Histogram,
        *,
        ack_every: int,
        prefetch: int,
        arguments: Table | None = None,
    ) -> None:
        scanner = Scanner(ack_every=ack_every, latencies=latencies)
        self.link = LoadLink(loop, uri, scanner, on_read=self._acknowledge)
        consume = BasicConsume(
            queue=queue, consumer_tag=CONSUMER_TAG, no_ack=not ack_every, arguments=arguments or {}
        )
        self.link.start(self._prepare(uri, consume, prefetch))

    def _prepare(self, uri: Uri, consume: BasicConsume, prefetch: int) -> Dialogue[None]:
        yield from log_in(uri)
        if prefetch:
            yield from ask(BasicQos(prefetch_count=prefetch), BasicQosOk)
        yield from ask(consume, BasicConsumeOk)

    def _acknowledge(self) -> None:
        acks = self.link.scanner.take_acks()
        if acks:
            self.link.send(acks)
