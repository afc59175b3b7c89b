"""Consuming queues in a query: a message is acked once its batch is in the checkpoint's commit log.

The query's offset is how many messages it has taken: {"consumed": 57}. The driver holds the messages of a
batch, unacked, and the tasks get them as records. Spark asks for more from the end of a batch only after that
batch is committed: so that question is when we ack the batch.

If a query ends after Spark has planned a batch and before it has committed it, the next run of the query runs
this batch again, under the same id. It is empty then: its messages are back in their queues, and come in a
later batch. We cannot deliver the same messages again, since another consumer may have taken some of them
meanwhile; and a sink that has seen this id already would drop whatever we deliver under it. So a message may
come twice, in batches with different ids, but none is lost.
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
AFTER_ACK_SECONDS = 0.05  # after an ack, wait so long for the deliveries that it makes room for
DRAINED_SECONDS_MAX = 10.0  # a query with availableNow ends after this time without a delivery

log = logging.getLogger("warren.pipeline")


@dataclass
class DeliveredPartition(InputPartition):
    """What one task decodes: pairs of a queue's name and records."""

    value: tuple[tuple[str, bytes], ...]


class QueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Consumes queues for one query, on the driver."""

    def __init__(self, options: ConsumeOptions) -> None:
        self.options = options
        self.consumer: ConsumingClient | None = None  # None if not connected, as in tasks
        self.base: int | None = None  # the query's offset of the first message held; None if not known
        self.left: int | None = None  # with availableNow: how many messages are still to take; else None
        self.patience = Patience()
        self.was_connected = False  # whether a broker has ever let us in

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - these are Spark's names
        self._connected()  # so that an error is raised before Spark writes to the checkpoint
        return {CONSUMED: 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.options.count_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.left = self._connected().waiting

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Where the next batch ends. `limit` is ignored: a batch has at most the messages that are held."""
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
        """Ack the messages before `first`, and return how many there are for the next batch."""
        consumer = self._connected()
        acked = self._settle(consumer, first)
        if self.left is not None:
            return min(self._rest(consumer), self.left)
        consumer.gather(max(self.patience.seconds, AFTER_ACK_SECONDS if acked else 0.0))
        return min(len(consumer.held), self.options.count_max)

    def _look_again(self, first: int, error: ClientError) -> int:
        """The connection failed: connect again. The broker has put what we held back into the queues, and
        delivers it again.
        """
        self._disconnect()
        if isinstance(error, Gone):
            raise _refusal(error)
        log.warning("%s; messages that were not acked will be delivered again", error)
        try:
            return self._look(first)
        except ClientError as again:
            raise _refusal(again) from None

    def _rest(self, consumer: ConsumingClient) -> int:
        """How many there are for the next batch of a query with availableNow. If other consumers take the
        messages that were there at its start, it ends without them.
        """
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
        """Ack the messages before `first`; returns whether there were any. Messages that an earlier run of
        the query took are not held here, so there is nothing to ack.
        """
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
            log.warning("a batch of %d messages runs again, but empty: they come in a later batch", count)
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
        """Spark calls this a batch late, so `latestOffset` acks instead."""
        self.patience.end()

    def stop(self) -> None:
        self._disconnect()

    # --- the connection ---

    def __getstate__(self) -> dict[str, object]:
        """The reader is pickled for its tasks, which have no connection."""
        return self.__dict__ | {"consumer": None}

    def _connected(self) -> ConsumingClient:
        if self.consumer is None:
            self.consumer = self._connect()
            self.was_connected = True
        return self.consumer

    def _connect(self) -> ConsumingClient:
        """Connect, and try for longer if we were connected before: the broker may be restarting."""
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
        """Close the connection; the broker puts all unacked messages back into their queues."""
        if self.consumer is not None:
            with suppress(ClientError):
                self.consumer.close()
        self.consumer = self.base = None


def _parts(held: Sequence[Delivery], first: int) -> Iterator[tuple[tuple[str, bytes], ...]]:
    """Split the messages into partitions of up to PARTITION_BYTES, each with its records by queue."""
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
