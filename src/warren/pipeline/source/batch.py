"""Reading in batch: streams from one offset to another, queues as they are at this moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from warren.pipeline.segments.decode import OPEN_END
from warren.pipeline.segments.errors import BadOption, UnknownQueue
from warren.pipeline.segments.log import Contents
from warren.pipeline.segments.offsets import (
    OffsetAtTime,
    Places,
    check_names,
    checked_start,
    place_in,
    resolve,
)
from warren.pipeline.segments.plan import Partition, Span, plan
from warren.pipeline.segments.reading import Loss, Wanted, read_portion
from warren.pipeline.source.checks import in_a_sentence
from warren.pipeline.source.options import ReadOptions
from warren.pipeline.source.worker import spare_collector


@dataclass
class SourcePartition(InputPartition):
    """What one task reads. Spark makes one without a value when there is nothing to read."""

    value: Partition


class BatchReader(DataSourceReader):
    """Reads a batch. It takes no filters from Spark, since Spark would keep the filters of one query for the
    next query on the same DataFrame: see `pipeline/condition.py`.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        with in_a_sentence(), closing(self.options.log):
            return self._planned()

    def _planned(self) -> list[InputPartition]:
        options = self.options
        names = options.queue_names()
        check_names("startingOffsets", options.start, names)
        check_names("endingOffsets", options.end, names)
        contents = options.log.contents_of(options.vhost, names)
        for name in names:
            if name not in contents and options.names:
                raise UnknownQueue(options.vhost, name)
        spans = [self._span(each) for each in contents.values()]
        planned = plan(spans, min_partitions=options.min_partitions, can_locate=options.log.can_locate)
        return [SourcePartition(partition) for partition in planned]

    def _span(self, contents: Contents) -> Span:
        options = self.options
        if contents.queue.is_stream:
            loss = Loss(contents.queue, fail=options.fail_on_data_loss)
            start = checked_start(contents, resolve(options.log, contents, options.start), loss)
            end = resolve(options.log, contents, options.end)
            if end > contents.next_offset:
                raise BadOption(
                    f"endingOffsets is {end}, but {contents.queue} ends at {contents.next_offset}"
                )
        else:
            start = self._of_queue(contents, options.start, contents.first_offset)
            end = self._of_queue(contents, options.end, contents.next_offset)
        return Span(contents, max(start, options.min_offset), min(end, options.max_offset + 1))

    def _of_queue(self, contents: Contents, places: Places, otherwise: int) -> int:
        """An end of the range in a queue that is no stream. Times are in no order there, so for a time it is
        all offsets, and the decoder looks at the time of each message.
        """
        is_time = isinstance(place_in(places, contents.queue.name), OffsetAtTime)
        return otherwise if is_time else resolve(self.options.log, contents, places)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SourcePartition):
            return
        spare_collector()
        log = self.options.log
        with closing(log):
            for portion in partition.value.portions:
                yield from read_portion(log, portion, self._wanted(portion.queue.name))

    def _wanted(self, queue: str) -> Wanted:
        options = self.options
        start, end = place_in(options.start, queue), place_in(options.end, queue)
        return Wanted(
            columns=options.columns.names,
            not_null=options.columns.not_null,
            headers=options.columns.headers,
            body=options.columns.body,
            since_ms=start.ms if isinstance(start, OffsetAtTime) else 0,
            until_ms=end.ms if isinstance(end, OffsetAtTime) else OPEN_END,
            fail_on_data_loss=options.fail_on_data_loss,
        )
