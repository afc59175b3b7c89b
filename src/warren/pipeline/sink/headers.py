"""Encodes headers from Spark's two maps, names to texts and names to types, as AMQP's fields.

It is the reverse of a read (`segments/header_text.pyx`): a text without a type is a string, null is void, and
any other type is named in the second map:

    headers         {"shop": "north", "n": "5"}
    header_types    {"n": "int64"}
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa

from warren.amqp.table import SIZED, Float32, Sized, Value, encode_name, encode_value
from warren.storage.table_text import expect, table_from_json

DEDUPLICATION_HEADER = "x-deduplication-header"
DEDUPLICATION_NAME = encode_name(DEDUPLICATION_HEADER) + b"S"
"""The deduplication header as on the wire, up to the length of its text."""

REMEMBERED_MAX = 10_000
REMEMBERED_BYTES_MAX = 256
"""Most headers occur again and again, so their encodings are remembered; long ones hardly ever do."""

NAN_BITS = "NaN:"
BOOLEANS = {"true": True, "false": False}


class HeadersEncoder:
    """Encodes columns of headers, for many batches. `drop` is the name of a header to leave out."""

    def __init__(self, *, drop: str | None = None) -> None:
        self._drop = drop
        self._remembered: dict[tuple[str, str | None, str | None], bytes] = {}

    def encode(self, column: pa.MapArray, types: pa.MapArray | None) -> list[bytes | None]:
        """The encoded fields of each row, without the table's length; None for a row without headers."""
        names, texts, offsets = _pairs(column)
        if types is None or not len(types.items):
            fields = [self._field(name, text, None) for name, text in zip(names, texts, strict=True)]
        else:
            fields = self._typed(names, texts, offsets, types)
        rows = [b"".join(fields[start:stop]) for start, stop in pairwise(offsets)]
        if not column.null_count:
            return list(rows)
        return [
            row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)
        ]

    def _typed(
        self, names: list[str], texts: list[str | None], offsets: list[int], types: pa.MapArray
    ) -> list[bytes]:
        type_names, kinds, type_offsets = _pairs(types)
        fields = []
        for (start, stop), (first, end) in zip(pairwise(offsets), pairwise(type_offsets), strict=True):
            of_row = dict(zip(type_names[first:end], kinds[first:end], strict=True))
            fields += [self._field(names[i], texts[i], of_row.get(names[i])) for i in range(start, stop)]
        return fields

    def _field(self, name: str, text: str | None, kind: str | None) -> bytes:
        known = self._remembered.get((name, text, kind))
        if known is not None:
            return known
        encoded = b"" if name == self._drop else encode_name(name) + _encoded(name, text, kind)
        if len(encoded) <= REMEMBERED_BYTES_MAX:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[name, text, kind] = encoded
        return encoded


def _pairs(column: pa.MapArray) -> tuple[list[str], list[str | None], list[int]]:
    """The names and values of all rows, and where those of each row begin."""
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    names = column.keys.slice(first, last - first).to_pylist()
    values = column.items.slice(first, last - first).to_pylist()
    return names, values, [offset - first for offset in offsets]


# --- a value by its text and type ---


def header_value(text: str | None, kind: str | None) -> Value:
    """The value with this text and type. Raises ValueError if the text does not fit it, or it is unknown."""
    if text is None:
        return None
    if kind is None:
        return text
    read = _READERS.get(kind)
    if read is None:
        raise ValueError(f"there is no type '{kind}'; there are {', '.join(_READERS)}")
    return read(text)


def _encoded(name: str, text: str | None, kind: str | None) -> bytes:
    try:
        if text is not None and kind in _NAN_SIZES and text.startswith(NAN_BITS):
            return _nan(kind, text)
        return encode_value(header_value(text, kind))
    except (ValueError, TypeError, ArithmeticError, RecursionError, struct.error) as error:
        raise ValueError(f"header '{name}' with the text {text!r:.80} is no {kind}: {error}") from error


def _nan(kind: str, text: str) -> bytes:
    """A NaN with given bits: floats have many NaNs, and Python would not keep which one it is."""
    tag, size = _NAN_SIZES[kind]
    bits = bytes.fromhex(text.removeprefix(NAN_BITS))
    if len(bits) != size:
        raise ValueError(f"expected the bits of {size} bytes")
    return tag + bits


def _sized(kind: type[Sized]) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        kind.layout.pack(int(text))  # raises if it does not fit
        return kind(text)

    return read


def _int32(text: str) -> Value:
    if not -(2**31) <= int(text) < 2**31:
        raise ValueError("it does not fit 32 bits")
    return int(text)


def _bool(text: str) -> Value:
    if text not in BOOLEANS:
        raise ValueError("expected true or false")
    return BOOLEANS[text]


def _decimal(text: str) -> Value:
    return Decimal(text)


_NAN_SIZES = {"float": (b"d", 8), "float32": (b"f", 4)}
_READERS: dict[str, Callable[[str], Value]] = {
    "string": str,
    "bool": _bool,
    "int32": _int32,
    **{kind.__name__.lower(): _sized(kind) for kind in SIZED.values()},
    "float": float,
    "float32": Float32,
    "decimal": _decimal,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "table": lambda text: table_from_json(json.loads(text)),
    "array": lambda text: table_from_json({"": expect(list, json.loads(text))})[""],
}
