"""Consuming queues in a query: each message is acked once the batch that it is in stands in the checkpoint.

The query's offset is how many messages it has taken: {"consumed": 57}. The driver holds the messages of a
batch, unacked, and its tasks get them as records. Spark looks on from the end of a batch when that is
committed: that is when its messages are acked.

A batch that Spark had planned and not committed when the query ended is run again by the next one, with the
same id: it is empty then. Its messages are in their queues again, and come in a later batch. Were they put
into this one, others might be among them, since nobody knows who took what meanwhile; and a sink that has
seen this id would leave them out for good. So a message may come twice, in batches of different ids, and none
is lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from warren.amqp.errors import AccessRefused, NotFound, NotImplementedByBroker
from warren.client.errors import ClientError, ClosedByBrokerError
from warren.pipeline.consumer import ConsumingClient, Delivery, Gone
from warren.pipeline.segments.errors import BadOption, ReadError, Refused, Unreachable
from warren.pipeline.segments.http import LATER_PAUSES_SECONDS, PAUSES_SECONDS
from warren.pipeline.segments.log import QueueRef
from warren.pipeline.segments.reading import Wanted, read_records
from warren.pipeline.source.options import ConsumeOptions
from warren.pipeline.source.patience import Patience
from warren.pipeline.source.worker import spare_collector

CONSUMED = "consumed"
PARTITION_BYTES = 4 << 20
AFTER_ACK_SECONDS = 0.05  # in which a broker that has more sends it
DRAINED_SECONDS_MAX = 10.0  # without a delivery, after which a query that is to end does

log = logging.getLogger("warren.pipeline")


@dataclass
class DeliveredPartition(InputPartition):
    """Records of each queue."""

    value: tuple[tuple[str, bytes], ...]


class QueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`base` is the number of the first message that is held, `left` how many a query takes that is to end
    with what was there when it began.
    """

    def __init__(self, options: ConsumeOptions) -> None:
        self.options = options
        self.consumer: ConsumingClient | None = None
        self.base: int | None = None
        self.left: int | None = None
        self.patience = Patience()
        self.was_connected = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - these are Spark's names
        self._connected()  # what is wrong is told before anything is written down
        return {CONSUMED: 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.options.count_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.left = self._connected().waiting

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """However much Spark would take, only so much is held."""
        first = start[CONSUMED]
        try:
            count = self._look(first)
        except ClientError as error:
            count = self._look_again(first, error)
        if count:
            self.patience.end()
        else:
            self.patience.begin()
        return {CONSUMED: first + count}

    def _look(self, first: int) -> int:
        """How many there are for the next batch."""
        consumer = self._connected()
        acked = self._settle(consumer, first)
        if self.left is not None:
            return min(self._rest(consumer), self.left)
        consumer.gather(max(self.patience.seconds, AFTER_ACK_SECONDS if acked else 0.0))
        return min(len(consumer.held), self.options.count_max)

    def _look_again(self, first: int, error: ClientError) -> int:
        """What was held is in the queues again, and comes over another connection."""
        self._disconnect()
        if isinstance(error, Gone):
            raise _refusal(error)
        log.warning("%s; what was not acked comes again", error)
        try:
            return self._look(first)
        except ClientError as again:
            raise _refusal(again) from None

    def _rest(self, consumer: ConsumingClient) -> int:
        """The same for a query that is to end. What others take meanwhile it does not wait for."""
        assert self.left is not None
        until = time.monotonic() + DRAINED_SECONDS_MAX
        while self.left:
            consumer.gather(AFTER_ACK_SECONDS)
            if consumer.held:
                break
            ready = consumer.ready()  # deliveries may arrive before its answer
            if not consumer.held and (not ready or time.monotonic() > until):
                self.left = 0
        return min(len(consumer.held), self.options.count_max)

    def _settle(self, consumer: ConsumingClient, first: int) -> bool:
        """Ack what comes before; whether there was something. What an earlier query took is not held here."""
        done = 0 if self.base is None else first - self.base
        self.base = first
        if not 0 < done <= len(consumer.held):
            return False
        consumer.settle(done)
        if self.left is not None:
            self.left -= done
        return True

    # --- a batch ---

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self.patience.end()
        first, count = start[CONSUMED], end[CONSUMED] - start[CONSUMED]
        held = self.consumer.first(count) if self.consumer is not None and self.base == first else []
        if len(held) < count:
            log.warning("a batch of %d messages is run again, empty: they are in their queues again", count)
            return []
        return [DeliveredPartition(part) for part in _parts(held, first)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, DeliveredPartition):
            return
        spare_collector()
        columns = self.options.columns
        wanted = Wanted(
            columns=columns.names, not_null=columns.not_null, headers=columns.headers, body=columns.body
        )
        for name, records in partition.value:
            yield from read_records(QueueRef(self.options.uri.vhost, name, "classic"), records, wanted)

    def commit(self, end: dict[str, int]) -> None:
        """It comes a batch late; `latestOffset` acks earlier."""
        self.patience.end()

    def stop(self) -> None:
        self._disconnect()

    # --- the connection ---

    def __getstate__(self) -> dict[str, object]:
        """Tasks have no connection."""
        return self.__dict__ | {"consumer": None}

    def _connected(self) -> ConsumingClient:
        if self.consumer is None:
            self.consumer = self._connect()
            self.was_connected = True
        return self.consumer

    def _connect(self) -> ConsumingClient:
        """A broker that was there before gets the time that it takes to start again."""
        options = self.options
        for pause in (*PAUSES_SECONDS, *(LATER_PAUSES_SECONDS if self.was_connected else ()), None):
            try:
                return ConsumingClient(
                    options.uri, options.names, count_max=options.count_max, bytes_max=options.bytes_max
                )
            except ClientError as error:
                if pause is None or isinstance(error, ClosedByBrokerError):
                    raise _refusal(error) from None
            time.sleep(pause)
        raise AssertionError("the last try answers or raises")

    def _disconnect(self) -> None:
        """The broker has all back that is not acked."""
        if self.consumer is not None:
            with suppress(ClientError):
                self.consumer.close()
        self.consumer = self.base = None


def _parts(held: Sequence[Delivery], first: int) -> Iterator[tuple[tuple[str, bytes], ...]]:
    """Some MiB for each task, and what is of one queue together."""
    found: dict[str, list[bytes]] = {}
    size = 0
    for number, delivery in enumerate(held, first):
        record = delivery.record(number + 1)
        if size and size + len(record) > PARTITION_BYTES:
            yield tuple((name, b"".join(records)) for name, records in found.items())
            found, size = {}, 0
        found.setdefault(delivery.queue, []).append(record)
        size += len(record)
    if found:
        yield tuple((name, b"".join(records)) for name, records in found.items())


def _refusal(error: ClientError) -> ReadError:
    code = error.code if isinstance(error, ClosedByBrokerError) else 0
    if isinstance(error, Gone) or code == NotFound.code:
        return BadOption(f"{error}: change the option subscribe")
    if code == NotImplementedByBroker.code:
        return BadOption(f"{error}: a stream is read without the option consume")
    return (Refused if code == AccessRefused.code else Unreachable)(f"{error}: change the option amqp")
