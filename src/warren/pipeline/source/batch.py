"""Reading in batch: streams from an offset to another, queues as they are at this moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from warren.pipeline.segments.decode import OPEN_END
from warren.pipeline.segments.errors import BadOption
from warren.pipeline.segments.log import Contents
from warren.pipeline.segments.offsets import Places, Timestamp, check_names, checked_start, resolve
from warren.pipeline.segments.plan import Partition, Span, plan
from warren.pipeline.segments.reading import Loss, Wanted, read_partition
from warren.pipeline.source.checks import in_a_sentence
from warren.pipeline.source.options import ReadOptions
from warren.pipeline.source.worker import spare_collector


@dataclass
class SourcePartition(InputPartition):
    """What one task reads. Spark makes one without a value when there is nothing to read."""

    value: Partition


class BatchReader(DataSourceReader):
    """It takes no filters from Spark, which keeps those of one query on a DataFrame for the next: see
    `pipeline/condition.py`.
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
        contents = [options.log.contents(options.vhost, name) for name in names]
        spans = [self._span(each) for each in contents]
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
        """In a queue times are in no order, so each message's is looked at."""
        return otherwise if isinstance(places, Timestamp) else resolve(self.options.log, contents, places)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SourcePartition):
            return iter(())
        spare_collector()
        options = self.options
        wanted = Wanted(
            headers=options.headers,
            body=options.body,
            since_ms=options.start.ms if isinstance(options.start, Timestamp) else 0,
            until_ms=options.end.ms if isinstance(options.end, Timestamp) else OPEN_END,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return read_partition(options.log, partition.value, wanted)
