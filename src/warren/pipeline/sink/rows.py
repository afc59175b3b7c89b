"""Encodes Arrow batches as messages to publish.

Each column is encoded as a whole, and messages are put together from the encoded cells. Which properties a
message has is decided once for all rows, by the columns of the table. A message without an id gets one that
stays the same if the task runs again: `<id of the write>/<partition>/<row>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from warren.amqp.methods import BasicPublish
from warren.amqp.properties import PERSISTENT
from warren.pipeline.errors import PipelineError
from warren.pipeline.publisher import OutgoingMessage
from warren.pipeline.sink.headers import DEDUPLICATION_HEADER, DEDUPLICATION_NAME, HeadersEncoder
from warren.pipeline.sink.options import WriteOptions
from warren.pipeline.sink.pieces import assemble, constant, joined, long_strings, octets, short_strings, times

METHODS_MAX = 10_000
STRINGS = {
    "content_type": 1 << 15,
    "content_encoding": 1 << 14,
    "correlation_id": 1 << 10,
    "reply_to": 1 << 9,
    "expiration": 1 << 8,
    "message_id": 1 << 7,
    "type": 1 << 5,
    "app_id": 1 << 3,
    "cluster_id": 1 << 2,
}
HEADERS = 1 << 13
PUBLISHED = 1 << 6
OCTETS = {"delivery_mode": 1 << 12, "priority": 1 << 11}
MAPS = ("headers", "header_types")
WRITABLE = {
    "body", "exchange", "routing_key", "published_at", "deduplication_id", *MAPS, *STRINGS, *OCTETS
}  # fmt: skip
RECORDED = {"vhost", "queue", "stream_id", "offset", "timestamp", "user_id", "x_death", "date", "snapshot"}
"""Columns of a read or an archive that a write ignores. Most say where and when a message was recorded.
x_death is among the headers as well, and a broker refuses a user_id that is not the publisher's own.
"""


def check_columns(names: Sequence[str]) -> None:
    """Refuse a column that is neither written nor ignored: its name may be misspelt."""
    for name in names:
        if name not in WRITABLE and name not in RECORDED:
            raise PipelineError(
                f"column {name} means nothing to a write: drop it, or name it one of "
                f"{', '.join(sorted(WRITABLE))}"
            )


def check_schema(schema: pa.Schema, options: WriteOptions) -> None:
    """Refuse a table that lacks a column, or has one of a wrong type, before any row is read."""
    if "body" not in schema.names:
        raise PipelineError("a column body (binary or string) is needed to write")
    if options.exchange is None and "exchange" not in schema.names:
        raise PipelineError("option exchange, or a column exchange, must say where messages go")
    for name in WRITABLE & set(schema.names):
        if not _fits(name, schema.field(name).type):
            raise PipelineError(f"column {name} cannot be of type {schema.field(name).type}")


def _fits(name: str, kind: pa.DataType) -> bool:
    if name in MAPS:
        return bool(pa.types.is_map(kind)) and _is_text(kind.key_type) and _is_text(kind.item_type)
    if name in OCTETS:
        return bool(pa.types.is_integer(kind))
    if name == "published_at":
        return bool(pa.types.is_timestamp(kind))
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return _is_text(kind) or (name == "body" and bool(is_binary))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


class RowEncoder:
    """Makes messages of the batches of one task, which all have the same schema."""

    def __init__(self, schema: pa.Schema, options: WriteOptions, prefix: str) -> None:
        check_schema(schema, options)
        self._columns = {name: schema.names.index(name) for name in WRITABLE & set(schema.names)}  # indices
        self._options = options
        self._prefix = prefix  # of the ids that messages without an id get
        self._rows = 0  # encoded so far
        self._headers = HeadersEncoder(drop=DEDUPLICATION_HEADER if options.deduplicate else None)
        self._methods: dict[tuple[str, str], bytes] = {}  # by exchange and key: encoded basic.publish

    def encode(self, batch: pa.RecordBatch) -> Iterator[OutgoingMessage]:
        """`benchmarks/spark_write.py` watches this."""
        first, self._rows = self._rows, self._rows + batch.num_rows
        ids = self._ids(batch, first)
        keys = self._names(batch, "routing_key", self._options.routing_key)
        exchanges = self._exchanges(batch)
        columns = (
            self._encoded_methods(exchanges, keys),
            self._properties(batch, ids).to_pylist(),
            self._bodies(batch),
            exchanges,
            keys,
            ids.to_pylist(),
        )
        return map(OutgoingMessage._make, zip(*columns, strict=True))

    def _encoded_methods(self, exchanges: Iterable[str], keys: Iterable[str]) -> Iterator[bytes]:
        known = self._methods
        for pair in zip(exchanges, keys, strict=True):
            yield known.get(pair) or self._method(*pair)

    def _method(self, exchange: str, routing_key: str) -> bytes:
        try:
            mandatory = self._options.mandatory
            encoded = BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=mandatory).encode()
        except ValueError as error:
            raise PipelineError(f"exchange {exchange!r}, routing key {routing_key!r}: {error}") from error
        if len(self._methods) >= METHODS_MAX:
            self._methods.clear()
        self._methods[exchange, routing_key] = encoded
        return encoded

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        index = self._columns.get(name)
        return None if index is None else batch.column(index)

    def _ids(self, batch: pa.RecordBatch, first: int) -> pa.Array:
        rows = pa.array(range(first, first + batch.num_rows), pa.int64()).cast(pa.string())
        own = pc.binary_join_element_wise(pa.scalar(self._prefix), rows, "/")
        column = self._column(batch, "message_id")
        return own if column is None else pc.coalesce(column.cast(pa.string()), own)

    def _names(self, batch: pa.RecordBatch, name: str, default: str) -> list[str]:
        column = self._column(batch, name)
        if column is None:
            return [default] * batch.num_rows
        return [default if value is None else value for value in column.to_pylist()]

    def _exchanges(self, batch: pa.RecordBatch) -> list[str]:
        if self._options.exchange is not None:
            return [self._options.exchange] * batch.num_rows
        return self._names(batch, "exchange", "")

    def _bodies(self, batch: pa.RecordBatch) -> list[bytes]:
        column = self._column(batch, "body")
        assert column is not None, "the schema was checked"
        if column.null_count:
            raise PipelineError("a row's body is null: give it an empty body instead")
        bodies: list[bytes] = column.cast(pa.binary()).to_pylist()
        return bodies

    def _properties(self, batch: pa.RecordBatch, ids: pa.Array) -> pa.Array:
        strings = {name: self._column(batch, name) for name in STRINGS} | {"message_id": ids}
        columns = [
            (STRINGS[name], short_strings(name, column))
            for name, column in strings.items()
            if column is not None
        ]
        columns.extend((bit, self._octets(batch, name)) for name, bit in OCTETS.items())
        columns.append((HEADERS, self._header_tables(batch, ids)))
        published = self._column(batch, "published_at")
        if published is not None:
            columns.append((PUBLISHED, times("published_at", published)))
        return assemble([(bit, cells) for bit, cells in columns if cells is not None])

    def _octets(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        """The column's cells. Without a column delivery_mode, every message is persistent."""
        column = self._column(batch, name)
        if column is None:
            return constant(bytes((PERSISTENT,)), batch.num_rows) if name == "delivery_mode" else None
        return octets(name, column)

    def _header_tables(self, batch: pa.RecordBatch, ids: pa.Array) -> pa.Array | None:
        fields = self._header_fields(batch)
        if self._options.deduplicate:
            given = self._column(batch, "deduplication_id")
            marks = ids if given is None else _or_else(given.cast(pa.string()), ids)
            mark = joined(pa.scalar(DEDUPLICATION_NAME), long_strings(marks.cast(pa.binary())))
            fields = mark if fields is None else joined(fields, mark)
        return None if fields is None else long_strings(fields)

    def _header_fields(self, batch: pa.RecordBatch) -> pa.Array | None:
        column = self._column(batch, "headers")
        if column is None:
            return None
        try:
            rows = self._headers.encode(column, self._column(batch, "header_types"))
        except ValueError as error:
            raise PipelineError(f"column headers: {error}") from error
        return pa.array(rows, pa.binary())


def _or_else(given: pa.Array, otherwise: pa.Array) -> pa.Array:
    """The given text, or the other one where it is null or empty."""
    return pc.if_else(pc.fill_null(pc.not_equal(given, ""), fill_value=False), given, otherwise)
