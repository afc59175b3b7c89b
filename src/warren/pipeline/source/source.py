"""The class that Spark finds under the name `warren`.

It is pickled to Spark's Python processes, and loaded in every Spark session that has WarrenMQ installed, used
or not. So each method imports what it needs only when it is called.
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

# Properties of a table that Spark hands over as if they were options.
OF_TABLES = frozenset({
    "collation", "comment", "external", "is_managed_location", "location", "owner", "provider",
})  # fmt: skip


class WarrenSource(DataSource):
    """Queues and streams of WarrenMQ."""

    def __init__(self, options: dict[str, str]) -> None:
        from warren.pipeline.source.checks import check_options, in_a_sentence

        given = {name: value for name, value in options.items() if name not in OF_TABLES}
        super().__init__(given)
        with in_a_sentence():
            check_options(given)

    @classmethod
    def name(cls) -> str:
        return "warren"

    def schema(self) -> str:
        """Spark asks for it at `load()`, if the user gives no schema."""
        from warren.pipeline.source.checks import check_source, in_a_sentence
        from warren.pipeline.source.schema import SCHEMA

        with in_a_sentence():
            check_source(dict(self.options))
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from warren.pipeline.source.batch import BatchReader
        from warren.pipeline.source.checks import in_a_sentence
        from warren.pipeline.source.options import narrowed, parse_options

        with in_a_sentence():
            return BatchReader(narrowed(parse_options(dict(self.options), streaming=False), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from warren.pipeline.source.checks import in_a_sentence
        from warren.pipeline.source.consuming import QueueReader
        from warren.pipeline.source.options import consumes, narrowed, parse_consume_options, parse_options
        from warren.pipeline.source.streaming import QueryReader

        given = dict(self.options)
        with in_a_sentence():
            if consumes(given):
                return QueueReader(narrowed(parse_consume_options(given), schema))
            return QueryReader(narrowed(parse_options(given, streaming=True), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from warren.pipeline.sink.writer import batch_writer
        from warren.pipeline.source.checks import in_a_sentence

        with in_a_sentence():
            return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from warren.pipeline.sink.writer import stream_writer
        from warren.pipeline.source.checks import in_a_sentence

        with in_a_sentence():
            return stream_writer(dict(self.options), schema, overwrite)
