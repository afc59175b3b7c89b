"""The class that Spark finds under the name `warren`.

It is pickled to the driver's helpers and to executors, and loaded in every Spark session that has WarrenMQ
installed; so it imports what it needs when it needs it.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class WarrenSource(DataSource):
    """Queues and streams of WarrenMQ."""

    @classmethod
    def name(cls) -> str:
        return "warren"

    def schema(self) -> str:
        from warren.pipeline.source.schema import SCHEMA

        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from warren.pipeline.source.batch import batch_reader
        from warren.pipeline.source.options import narrowed, parse_options

        return batch_reader(narrowed(parse_options(dict(self.options), streaming=False), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from warren.pipeline.source.consuming import QueueReader
        from warren.pipeline.source.options import consumes, narrowed, parse_consume_options, parse_options
        from warren.pipeline.source.streaming import StreamReader

        given = dict(self.options)
        if consumes(given):
            return QueueReader(narrowed(parse_consume_options(given), schema))
        return StreamReader(narrowed(parse_options(given, streaming=True), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from warren.pipeline.sink.writer import batch_writer

        return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from warren.pipeline.sink.writer import stream_writer

        return stream_writer(dict(self.options), schema, overwrite)
