"""Headers as Spark has them, names to JSON text, encoded as AMQP's.

Text that is no JSON is a string of itself, so that `map("shop", "north")` needs no quotes. What JSON lacks is
marked as when it is read: `{"!bytes": "ff00"}` (see `storage/table_text.py`).
"""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa

from warren.amqp.table import LENGTH, Value, encode_name, encode_value
from warren.storage.table_text import table_from_json

DEDUPLICATION_HEADER = "x-deduplication-header"
DEDUPLICATION_NAME = encode_name(DEDUPLICATION_HEADER) + b"S"
REMEMBERED_MAX = 10_000
REMEMBERED_BYTES_MAX = 256
"""Values that come again, as most do, are encoded once; long ones hardly come again."""


class HeadersEncoder:
    """Encodes a column of headers, for many batches. `drop` names one that is left out."""

    def __init__(self, *, drop: str | None = None) -> None:
        self._drop = drop
        self._remembered: dict[tuple[str, str | None], bytes] = {}

    def encode(self, column: pa.MapArray) -> list[bytes | None]:
        """The fields of each row, without the length in front; None for a row without headers."""
        offsets = column.offsets.to_pylist()
        first, last = offsets[0], offsets[-1]
        names = column.keys.slice(first, last - first).to_pylist()
        texts = column.items.slice(first, last - first).to_pylist()
        fields = [self._field(name, text) for name, text in zip(names, texts, strict=True)]
        rows = [b"".join(fields[start - first : stop - first]) for start, stop in pairwise(offsets)]
        if not column.null_count:
            return list(rows)
        return [
            row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)
        ]

    def _field(self, name: str, text: str | None) -> bytes:
        known = self._remembered.get((name, text))
        if known is not None:
            return known
        encoded = b"" if name == self._drop else encode_name(name) + encode_value(value_of(text))
        if len(encoded) <= REMEMBERED_BYTES_MAX:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[name, text] = encoded
        return encoded


def as_table(fields: bytes) -> bytes:
    return LENGTH.pack(len(fields)) + fields


def deduplication_field(message_id: bytes) -> bytes:
    """The header by which a broker knows a message that comes again."""
    return DEDUPLICATION_NAME + LENGTH.pack(len(message_id)) + message_id


def value_of(text: str | None) -> Value:
    """The value that a header's text stands for."""
    if text is None:
        return None
    try:
        value = table_from_json({"": json.loads(text, parse_constant=_no_json)})[""]
        encode_value(value)  # a number may be JSON and too large for AMQP
    except (ValueError, RecursionError):
        return text
    return value


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
