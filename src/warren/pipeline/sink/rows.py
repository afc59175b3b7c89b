"""Arrow batches as messages to publish.

Columns are encoded one by one, and rows put together from their pieces: what a message carries is decided
once for all rows, by which columns there are. A message without an id gets one that is the same if the same
task runs again: `<id of the write>/<partition>/<row>`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from warren.amqp.methods import BasicPublish
from warren.amqp.properties import FLAGS, PERSISTENT
from warren.pipeline.errors import PipelineError
from warren.pipeline.publisher import Message
from warren.pipeline.sink.headers import DEDUPLICATION_HEADER, HeadersEncoder, as_table, deduplication_field
from warren.pipeline.sink.options import WriteOptions

METHODS_MAX = 10_000
LENGTHS = [bytes((size,)) for size in range(256)]
Piece: TypeAlias = bytes | None
"""A property as it is on the wire; None if the row has none."""

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
"""What a read or an archive says of where and when a message was recorded. It means nothing to a write:
x_death is among the headers, and a broker takes only its own user's name for user_id.
"""

SECONDS = struct.Struct(">Q")


def check_columns(names: Sequence[str]) -> None:
    """A column that is neither written nor known to be passed by is a mistake, as in its name."""
    for name in names:
        if name not in WRITABLE and name not in RECORDED:
            raise PipelineError(
                f"column {name} means nothing to a write: drop it, or name it one of "
                f"{', '.join(sorted(WRITABLE))}"
            )


def check_schema(schema: pa.Schema, options: WriteOptions) -> None:
    """What is wrong with a table before any of its rows is looked at."""
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
    """Makes messages of batches that all have one schema; `prefix` begins the ids of those that have none."""

    def __init__(self, schema: pa.Schema, options: WriteOptions, prefix: str) -> None:
        check_schema(schema, options)
        self._columns = {name: schema.names.index(name) for name in WRITABLE & set(schema.names)}
        self._options = options
        self._prefix = prefix
        self._rows = 0
        self._headers = HeadersEncoder(drop=DEDUPLICATION_HEADER if options.deduplicate else None)
        self._methods: dict[tuple[str, str], bytes] = {}

    def encode(self, batch: pa.RecordBatch) -> Iterator[Message]:
        first, self._rows = self._rows, self._rows + batch.num_rows
        ids = self._ids(batch, first)
        keys = self._names(batch, "routing_key", self._options.routing_key)
        exchanges = self._exchanges(batch)
        bodies = self._bodies(batch)
        properties = self._properties(batch, ids)
        methods = self._methods
        for row in zip(exchanges, keys, ids, properties, bodies, strict=True):
            exchange, key, message_id, piece, body = row
            method = methods.get((exchange, key)) or self._method(exchange, key)
            yield Message(method, piece, body, exchange, key, message_id)

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

    def _ids(self, batch: pa.RecordBatch, first: int) -> list[str]:
        column = self._column(batch, "message_id")
        if column is None:
            return [f"{self._prefix}/{row}" for row in range(first, first + batch.num_rows)]
        given = column.to_pylist()
        return [f"{self._prefix}/{row}" if name is None else name for row, name in enumerate(given, first)]

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
            raise PipelineError("a row's body is null: a message has one, if only an empty one")
        bodies: list[bytes] = column.cast(pa.binary()).to_pylist()
        return bodies

    def _properties(self, batch: pa.RecordBatch, ids: list[str]) -> list[bytes]:
        columns = [(bit, self._strings(batch, name)) for name, bit in STRINGS.items() if name != "message_id"]
        columns.append((STRINGS["message_id"], [_short("message_id", name.encode()) for name in ids]))
        columns.extend((bit, self._octets(batch, name)) for name, bit in OCTETS.items())
        columns.append((HEADERS, self._header_tables(batch, ids)))
        columns.append((PUBLISHED, self._times(batch)))
        present = [(bit, pieces) for bit, pieces in columns if pieces is not None]
        return assemble(sorted(present, key=lambda column: -column[0]))

    def _strings(self, batch: pa.RecordBatch, name: str) -> list[Piece] | None:
        column = self._column(batch, name)
        if column is None or column.null_count == batch.num_rows:
            return None
        return [None if raw is None else _short(name, raw) for raw in column.cast(pa.binary()).to_pylist()]

    def _octets(self, batch: pa.RecordBatch, name: str) -> list[Piece] | None:
        """Without a column for it every message is persistent, as what somebody computed should be."""
        column = self._column(batch, name)
        if column is None:
            return [bytes((PERSISTENT,))] * batch.num_rows if name == "delivery_mode" else None
        return [None if value is None else _octet(name, value) for value in column.to_pylist()]

    def _times(self, batch: pa.RecordBatch) -> list[Piece] | None:
        """AMQP has whole seconds."""
        column = self._column(batch, "published_at")
        if column is None or column.null_count == batch.num_rows:
            return None
        seconds = pc.floor_temporal(column, unit="second").cast(pa.timestamp("s", column.type.tz))
        return [None if value is None else _time(value) for value in seconds.cast(pa.int64()).to_pylist()]

    def _header_tables(self, batch: pa.RecordBatch, ids: list[str]) -> list[Piece] | None:
        column = self._column(batch, "headers")
        try:
            rows = (
                [None] * batch.num_rows
                if column is None
                else self._headers.encode(column, self._column(batch, "header_types"))
            )
        except ValueError as error:
            raise PipelineError(f"column headers: {error}") from error
        if self._options.deduplicate:
            own = self._column(batch, "deduplication_id")
            given = ids if own is None else [name or ids[row] for row, name in enumerate(own.to_pylist())]
            marks = [deduplication_field(name.encode()) for name in given]
            return [as_table((fields or b"") + mark) for fields, mark in zip(rows, marks, strict=True)]
        return None if column is None else [None if fields is None else as_table(fields) for fields in rows]


def assemble(columns: list[tuple[int, list[Piece]]]) -> list[bytes]:
    """Properties of rows, from the pieces of their columns in the order of the wire."""
    always, mixed, flags = 0, False, [0] * len(columns[0][1])
    for bit, pieces in columns:
        if None not in pieces:
            always |= bit
            continue
        mixed = True
        for row, piece in enumerate(pieces):
            if piece is not None:
                flags[row] |= bit
    rows = zip(*(pieces for _bit, pieces in columns), strict=True)
    if not mixed:
        head = FLAGS.pack(always)
        return [head + b"".join(row) for row in rows]
    heads = [FLAGS.pack(always | own) for own in flags]
    return [head + b"".join(filter(None, row)) for head, row in zip(heads, rows, strict=True)]


def _short(name: str, raw: bytes) -> bytes:
    try:
        return LENGTHS[len(raw)] + raw
    except IndexError:
        raise PipelineError(f"column {name} has a value of {len(raw)} bytes; AMQP takes 255") from None


def _time(seconds: int) -> bytes:
    if seconds < 0:
        raise PipelineError("column published_at has a time before 1970, which AMQP does not have")
    return SECONDS.pack(seconds)


def _octet(name: str, value: int) -> bytes:
    try:
        return LENGTHS[value] if value >= 0 else LENGTHS[len(LENGTHS)]
    except IndexError:
        raise PipelineError(f"column {name} has the value {value}; AMQP takes 0 to 255") from None
