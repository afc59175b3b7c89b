"""Writers of Spark's Python data source: each task publishes its rows and waits for the confirms.

The id of a batch write is made once, on the driver; that of a streaming write consists of the query's id and
the batch's. So a task that Spark runs a second time gives its messages the same ids, and a broker that
deduplicates drops them. Needs pyspark.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from warren.pipeline.errors import PipelineError
from warren.pipeline.sink.options import WriteOptions, read_options
from warren.pipeline.sink.rows import check_columns, check_schema
from warren.pipeline.sink.task import Written, write_rows
from warren.pipeline.source.checks import in_a_sentence

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Committed(WriterCommitMessage):
    """What a task has written; Spark hands it to the driver."""

    partition: int
    written: Written


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, write_id: str) -> None:
        self.options = options
        self.write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        return _write(iterator, self.options, self.write_id)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        return _write(iterator, self.options, f"{query}/{batch}")


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    return BatchWriter(_checked(options, schema, overwrite=overwrite), uuid.uuid4().hex)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    return StreamWriter(_checked(options, schema, overwrite=overwrite))


def _checked(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> WriteOptions:
    if overwrite:
        raise PipelineError("messages that were sent cannot be overwritten: use mode append")
    read = read_options(options)
    check_schema(to_arrow_schema(schema, timezone="UTC"), read)
    check_columns(schema.names)
    return read


def _write(batches: Iterator[pa.RecordBatch], options: WriteOptions, write_id: str) -> Committed:
    partition = _context().partitionId()
    with in_a_sentence():
        return Committed(partition, write_rows(batches, options, f"{write_id}/{partition}"))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a writer runs in a task"
    return context
