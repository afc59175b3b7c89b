"""Reading streams as they grow. Spark's offset of a query has the next offset of each stream: {"orders": 5}
means that 5 was not read yet; `positions.py` has the exact form.

Spark writes down where a batch ends before it reads the batch, and may read it again after a crash: then the
same offsets are planned again, over the segments that there are by then. A stream that appears later and
matches the pattern joins with its first offset and no rows, so that the checkpoint says where it was begun.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from warren.pipeline.segments.errors import BadOption, ReadError, UnknownQueue
from warren.pipeline.segments.http import HttpLog
from warren.pipeline.segments.log import Contents, LogExtent, QueueEnds, QueueRef
from warren.pipeline.segments.offsets import check_names, checked_start, resolve
from warren.pipeline.segments.plan import Marks, Span, limit, limit_bytes, plan
from warren.pipeline.segments.reading import Loss, Wanted, read_partition
from warren.pipeline.source.batch import SourcePartition
from warren.pipeline.source.options import ReadOptions
from warren.pipeline.source.patience import Patience
from warren.pipeline.source.positions import SparkOffset, differ, ids_of, joined, split
from warren.pipeline.source.worker import spare_collector

log = logging.getLogger("warren.pipeline")


class QueryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams for one query: plans its batches on the driver, and reads their partitions in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.marks = Marks()  # bytes at which recent batches ended, so that tasks find the next one fast
        self.patience = Patience()
        self.target: dict[str, int] | None = None  # with availableNow: where the query ends; else None
        self.latest: SparkOffset | None = None  # where the streams ended when Spark last asked
        self.went_on: float | None = None  # when the last batch was planned
        self.told: dict[str, int] = {}  # how far the query is, as the broker was last told

    def initialOffset(self) -> SparkOffset:  # noqa: N802 - these are Spark's names
        options = self.options
        found = self._contents(options.queue_names(), expected=True)
        check_names("startingOffsets", options.start, found)
        offsets = {
            name: checked_start(
                contents, resolve(options.log, contents, options.start), self._loss(contents.queue)
            )
            for name, contents in found.items()
        }
        return joined(offsets, ids_of(found.values()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark passes this limit to each `latestOffset`, unless it wants all messages. It can be only one
        limit, but stands for all that the options give: `_limited` applies these.
        """
        limits = self.options.limits
        if limits.offsets_max:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max:
            return ReadMaxBytes(limits.bytes_max)
        return ReadMinRows(limits.offsets_min) if limits.offsets_min else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self._latest()

    def reportLatestOffset(self) -> SparkOffset | None:  # noqa: N802
        """For the query's progress. Spark asks right after `latestOffset`, which has just found this."""
        return self.latest

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802
        offsets, ids = split(start)
        self._tell_broker(offsets)
        found = self._look(offsets)
        now = ids | ids_of(found.values())
        self.latest = joined({name: ends.next_offset for name, ends in found.items()}, now)
        ended = self._ended(dict(offsets), ids, found, limit)
        if ended == offsets and not any(differ(ids.get(name), now[name]) for name in now):
            self.patience.begin()
        else:
            self.patience.end()
            self.went_on = time.monotonic()
        return joined(ended, now)

    def _look(self, start: dict[str, int]) -> dict[str, QueueEnds]:
        """Where the streams end that are subscribed to: those read so far, and new ones."""
        left = {name for name in start if not self.options.subscribes_to(name)}
        wait_s = self.patience.seconds if self.target is None else 0.0
        return self._ends((set(start) - left) | set(self.options.queue_names()), wait_s=wait_s)

    def _ended(
        self, start: dict[str, int], ids: dict[str, str], found: dict[str, QueueEnds], limit: ReadLimit
    ) -> dict[str, int]:
        """Where the next batch ends, by stream."""
        latest = {name: self._end(name, contents) for name, contents in found.items()}
        for name in start.keys() & found.keys():
            start[name] = self._checked_start(found[name], start[name], ids.get(name, ""))
        for name in latest.keys() - start.keys():  # a new stream joins with no rows
            latest[name] = found[name].first_offset
        ended = self._limited(start, latest, limit)
        return {name: ended.get(name, start.get(name, 0)) for name in start.keys() | ended.keys()}

    def _checked_start(self, ends: QueueEnds, offset: int, stream_id: str) -> int:
        loss = self._loss(ends.queue)
        if differ(ends.queue.stream_id, stream_id):
            loss.made_anew(offset)
            return ends.first_offset
        return checked_start(ends, offset, loss)

    def _limited(self, start: dict[str, int], latest: dict[str, int], given: ReadLimit) -> dict[str, int]:
        limits = self.options.limits
        if isinstance(given, ReadAllAvailable):
            return latest
        if self._is_too_little(start, latest):
            return start
        end = limit(start, latest, limits.offsets_max) if limits.offsets_max else latest
        if limits.bytes_max:
            behind = [name for name in end if start.get(name, end[name]) < end[name]]
            end = limit_bytes(self._contents(behind), start, end, limits.bytes_max)
        return end

    def _is_too_little(self, start: dict[str, int], latest: dict[str, int]) -> bool:
        """Whether the next batch waits for more. The first one never does, nor any with availableNow."""
        limits = self.options.limits
        if self.target is not None or self.went_on is None:
            return False
        found = sum(max(0, latest[name] - start.get(name, latest[name])) for name in latest)
        return found < limits.offsets_min and time.monotonic() - self.went_on < limits.delay_s

    def _end(self, name: str, ends: QueueEnds) -> int:
        if self.target is None:
            return ends.next_offset
        return min(ends.next_offset, self.target.get(name, ends.first_offset))

    def _latest(self) -> dict[str, int]:
        found = self._ends(self.options.queue_names())
        return {name: ends.next_offset for name, ends in found.items()}

    def _ends(self, names: Iterable[str], *, wait_s: float = 0.0) -> dict[str, QueueEnds]:
        wanted = sorted(names)
        found = self.options.log.ends_of(self.options.vhost, wanted, wait_s=wait_s)
        self._check(wanted, found, expected=False)
        for ends in found.values():
            self.marks.note(ends)
        return found

    def _contents(self, names: Iterable[str], *, expected: bool = False) -> dict[str, Contents]:
        wanted = sorted(names)
        found = self.options.log.contents_of(self.options.vhost, wanted)
        self._check(wanted, found, expected=expected)
        for contents in found.values():
            self.marks.note(contents.ends)
        return found

    def _check(self, names: Sequence[str], found: Mapping[str, LogExtent], *, expected: bool) -> None:
        """Raise unless all names are existing streams. One that is missing, and not `expected` to exist, is
        only a warning if the user allows data loss.
        """
        for name in names:
            if name not in found:
                error = UnknownQueue(self.options.vhost, name)
                if expected or self.options.fail_on_data_loss:
                    raise error
                log.warning("%s", error)
            elif not found[name].queue.is_stream:
                raise BadOption(
                    f"'{name}' is a {found[name].queue.kind} queue, which readStream cannot read: "
                    "read it in batch, or change the option subscribe to a stream; to consume it, "
                    "set consume to true"
                )

    def _loss(self, queue: QueueRef) -> Loss:
        return Loss(queue, fail=self.options.fail_on_data_loss)

    # --- a batch ---

    def partitions(self, start: SparkOffset, end: SparkOffset) -> Sequence[InputPartition]:
        self.patience.end()
        (starts, ids_before), (ends, ids) = split(start), split(end)
        anew = {name for name in ends if differ(ids_before.get(name), ids.get(name))}  # reported before
        wanted = {name: (-1 if name in anew else starts.get(name, stop), stop) for name, stop in ends.items()}
        found = self._contents({name for name, (first, stop) in wanted.items() if first != stop})
        spans = [self._span(contents, *wanted[name], ids.get(name, "")) for name, contents in found.items()]
        planned = plan(
            spans,
            min_partitions=self.options.min_partitions,
            can_locate=self.options.log.can_locate,
            marks=self.marks,
        )
        return [SourcePartition(partition) for partition in planned]

    def _span(self, contents: Contents, first: int, end: int, stream_id: str) -> Span:
        """The part of a stream that a batch reads; `first` below 0 stands for the stream's first offset."""
        loss = self._loss(contents.queue)
        if differ(contents.queue.stream_id, stream_id):  # made anew just now: the next batch reads it
            loss.made_anew(first)
            return Span(contents, end, end)
        if first < 0:
            return Span(contents, contents.first_offset, end)
        if end > contents.next_offset:
            loss.beyond(end, contents.next_offset)
        if first > end:  # the stream was made anew, and the user allows data loss
            first = contents.first_offset
        return Span(contents, checked_start(contents, first, loss), end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SourcePartition):
            return iter(())
        spare_collector()
        wanted = Wanted(
            columns=self.options.columns.names,
            not_null=self.options.columns.not_null,
            headers=self.options.columns.headers,
            body=self.options.columns.body,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        return read_partition(self.options.log, partition.value, wanted)

    def stop(self) -> None:
        self.options.log.close()

    # --- telling the broker ---

    def commit(self, end: SparkOffset) -> None:
        """Spark calls this a batch late, so `latestOffset` tells the broker instead."""
        self.patience.end()

    def _tell_broker(self, done: dict[str, int]) -> None:
        """Tell the broker how far the query is, for those who look at the stream there. `done` is safe to
        tell: Spark asks for more from the end of a batch only after that batch is in the checkpoint. Only the
        checkpoint counts, so an error here is a warning and does not end the query.
        """
        if not self.options.reference or not isinstance(self.options.log, HttpLog):
            return
        news = {name: offset for name, offset in done.items() if offset != self.told.get(name, 0)}
        self.told = done
        for name, offset in news.items():
            try:
                queue = QueueRef(self.options.vhost, name, "stream")
                self.options.log.put_offset(queue, self.options.reference, offset - 1)
            except ReadError as error:
                log.warning(
                    "cannot report progress under the reference '%s': %s", self.options.reference, error
                )
