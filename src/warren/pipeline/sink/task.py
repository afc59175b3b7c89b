"""One task of a write: publishes its rows, and counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from warren.pipeline.errors import PipelineError
from warren.pipeline.publisher import ConfirmingPublisher, PublishError, Unpublished
from warren.pipeline.sink.failures import Failures, FirstIsFatal, SideTable
from warren.pipeline.sink.options import WriteOptions
from warren.pipeline.sink.rows import RowEncoder


@dataclass(frozen=True, slots=True)
class Written:
    """How many rows there were, how many the broker confirmed, and how many no queue took."""

    rows: int
    confirmed: int
    failed: int


def write_rows(
    batches: Iterable[pa.RecordBatch],
    options: WriteOptions,
    prefix: str,
    *,
    on_failure: Callable[[Unpublished], None] | None = None,
) -> Written:
    """Publish all rows, and wait for the confirms. A task without rows opens no connection.

    `prefix` names this part of the write, and begins the ids of messages; it is the same if the task runs
    again. `on_failure` is called for each row that no queue took.
    """
    failures = _failures(options, prefix)

    def take(failure: Unpublished) -> None:
        failures.take(failure)
        if on_failure is not None:
            on_failure(failure)

    try:
        sent, confirmed = _publish(batches, options, prefix, take)
    except BaseException:
        failures.discard()
        raise
    failures.close()
    return Written(sent, confirmed, failures.count)


def _publish(
    batches: Iterable[pa.RecordBatch],
    options: WriteOptions,
    prefix: str,
    on_failure: Callable[[Unpublished], None],
) -> tuple[int, int]:
    remaining = iter(batches)
    first = next(remaining, None)
    if first is None:
        return 0, 0
    encoder = RowEncoder(first.schema, options, prefix)
    with _connected(options, on_failure) as publisher:
        for batch in chain((first,), remaining):
            for message in encoder.encode(batch):
                publisher.publish(message)
    return publisher.sent, publisher.confirmed


def _connected(options: WriteOptions, on_failure: Callable[[Unpublished], None]) -> ConfirmingPublisher:
    try:
        return ConfirmingPublisher(
            options.uri, on_failure=on_failure, window=options.window, rate=options.rate
        )
    except PublishError as error:
        raise PipelineError(f"{error}: change the option amqp") from error


def _failures(options: WriteOptions, name: str) -> Failures:
    if options.errors is None:
        return FirstIsFatal()
    return SideTable(options.errors, vhost=options.uri.vhost, name=name)
