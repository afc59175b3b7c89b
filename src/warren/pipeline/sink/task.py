"""What one task of a write does: publish its rows, and count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from warren.pipeline.publisher import Publisher
from warren.pipeline.sink.failures import Failures, FirstIsFatal, SideTable
from warren.pipeline.sink.options import WriteOptions
from warren.pipeline.sink.rows import RowEncoder


@dataclass(frozen=True, slots=True)
class Written:
    """How many rows there were, how many the broker confirmed, and how many no queue took."""

    rows: int
    confirmed: int
    failed: int


def write_rows(batches: Iterable[pa.RecordBatch], options: WriteOptions, prefix: str) -> Written:
    """`prefix` names this part of the write, the same if it runs again: ids of messages begin with it.

    A task without rows opens no connection.
    """
    publisher: Publisher | None = None
    failures = _failures(options, prefix)
    try:
        for batch in batches:
            if publisher is None:
                encoder = RowEncoder(batch.schema, options, prefix)
                publisher = Publisher(
                    options.uri, on_failure=failures.take, window=options.window, rate=options.rate
                )
            for message in encoder.encode(batch):
                publisher.publish(message)
        if publisher is not None:
            publisher.finish()
    except BaseException:
        failures.discard()
        raise
    finally:
        if publisher is not None:
            publisher.close()
    failures.close()
    if publisher is None:
        return Written(0, 0, 0)
    return Written(publisher.sent, publisher.confirmed, failures.count)


def _failures(options: WriteOptions, name: str) -> Failures:
    if options.errors is None:
        return FirstIsFatal()
    return SideTable(options.errors, vhost=options.uri.vhost, name=name)
