"""Reading streams as they grow. A stream's offset is Spark's offset: {"orders": 5} is the first not read yet;
`positions.py` has its form.

Spark writes down where each batch ends before it is read, and may read it again after a crash: then the same
offsets are planned anew, over what segments there are by then. A stream that is met later, by a pattern,
enters with its first offset and no rows, so that where it was begun with is written down, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from warren.pipeline.segments.errors import BadOption, ReadError, UnknownQueue
from warren.pipeline.segments.http import HttpLog
from warren.pipeline.segments.log import Contents, Queue
from warren.pipeline.segments.offsets import check_names, checked_start, resolve
from warren.pipeline.segments.plan import Marks, Span, limit, plan
from warren.pipeline.segments.reading import Loss, Wanted, read_partition
from warren.pipeline.source.batch import SourcePartition
from warren.pipeline.source.options import ReadOptions
from warren.pipeline.source.positions import SparkOffset, differ, ids_of, joined, split
from warren.pipeline.source.worker import spare_collector

log = logging.getLogger("warren.pipeline")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`target` is where a query ends that reads what there is now."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.marks = Marks()
        self.target: dict[str, int] | None = None

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
        most = self.options.offsets_max
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target, _ = self._latest()

    def reportLatestOffset(self) -> SparkOffset:  # noqa: N802
        return joined(*self._latest())

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802
        offsets, ids = split(start)
        ended, found = self._ended(offsets, ids, limit)
        return joined(ended, ids | ids_of(found.values()))

    def _ended(
        self, start: dict[str, int], ids: dict[str, str], limit: ReadLimit
    ) -> tuple[dict[str, int], dict[str, Contents]]:
        """How far the next batch goes, and what there is."""
        left = {name for name in start if not self.options.subscribes_to(name)}
        found = self._contents((set(start) - left) | set(self.options.queue_names()))
        latest = {name: self._end(name, contents) for name, contents in found.items()}
        for name in start.keys() & found.keys():
            start[name] = self._checked_start(found[name], start[name], ids.get(name, ""))
        for name in latest.keys() - start.keys():  # met for the first time
            latest[name] = found[name].first_offset
        ended = self._limited(start, latest, limit)
        return {name: ended.get(name, start.get(name, 0)) for name in start.keys() | ended.keys()}, found

    def _checked_start(self, contents: Contents, offset: int, stream_id: str) -> int:
        loss = self._loss(contents.queue)
        if differ(contents.queue.stream_id, stream_id):
            loss.made_anew(offset)
            return contents.first_offset
        return checked_start(contents, offset, loss)

    def _limited(self, start: dict[str, int], latest: dict[str, int], given: ReadLimit) -> dict[str, int]:
        return limit(start, latest, given.max_rows) if isinstance(given, ReadMaxRows) else latest

    def _end(self, name: str, contents: Contents) -> int:
        if self.target is None:
            return contents.next_offset
        return min(contents.next_offset, self.target.get(name, contents.first_offset))

    def _latest(self) -> tuple[dict[str, int], dict[str, str]]:
        found = self._contents(self.options.queue_names())
        return {name: each.next_offset for name, each in found.items()}, ids_of(found.values())

    def _contents(self, names: Sequence[str] | set[str], *, expected: bool = False) -> dict[str, Contents]:
        """Of those that are there; if `expected`, all must be, even for a user who does not mind loss."""
        found = {}
        for name in sorted(names):
            try:
                contents = self.options.log.contents(self.options.vhost, name)
            except UnknownQueue as error:
                if expected or self.options.fail_on_data_loss:
                    raise
                log.warning("%s", error)
                continue
            if not contents.queue.is_stream:
                raise BadOption(
                    f"'{name}' is a {contents.queue.kind} queue, which readStream cannot read: "
                    "read it in batch, or change the option subscribe to a stream"
                )
            self.marks.note(contents)
            found[name] = contents
        return found

    def _loss(self, queue: Queue) -> Loss:
        return Loss(queue, fail=self.options.fail_on_data_loss)

    # --- a batch ---

    def partitions(self, start: SparkOffset, end: SparkOffset) -> Sequence[InputPartition]:
        (starts, ids_before), (ends, ids) = split(start), split(end)
        anew = {name for name in ends if differ(ids_before.get(name), ids.get(name))}  # which was told before
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
        """`first` is below 0 for all that there is, up to the end."""
        loss = self._loss(contents.queue)
        if differ(contents.queue.stream_id, stream_id):  # since this batch was planned; the next one has it
            loss.made_anew(first)
            return Span(contents, end, end)
        if first < 0:
            return Span(contents, contents.first_offset, end)
        if end > contents.next_offset:
            loss.beyond(end, contents.next_offset)
        if first > end:  # it was made anew, and the user wants to go on
            first = contents.first_offset
        return Span(contents, checked_start(contents, first, loss), end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SourcePartition):
            return iter(())
        spare_collector()
        wanted = Wanted(
            headers=self.options.headers,
            body=self.options.body,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        return read_partition(self.options.log, partition.value, wanted)

    def stop(self) -> None:
        self.options.log.close()

    # --- telling the broker ---

    def commit(self, end: SparkOffset) -> None:
        """How far the query is, for whoever looks at the stream. The checkpoint is what counts, so that a
        broker which cannot be told is no reason to stop.
        """
        if not self.options.reference or not isinstance(self.options.log, HttpLog):
            return
        for name, offset in split(end)[0].items():
            try:
                if offset > 0:
                    queue = Queue(self.options.vhost, name, "stream")
                    self.options.log.put_offset(queue, self.options.reference, offset - 1)
            except ReadError as error:
                log.warning(
                    "cannot report progress under the reference '%s': %s", self.options.reference, error
                )
