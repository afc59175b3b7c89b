"""Field tables: they map names to typed values, with the types that RabbitMQ's clients use.

    table   length:uint32 { name:shortstr value }*
    value   type:octet payload
    array   length:uint32 { value }*

Decoding keeps the type of every value, so that encoding a decoded table gives the same bytes. 'I', 'S' and
't' become plain `int`, `str` and `bool`; the other integers become subclasses of `int` that remember their
type; a byte array becomes a `bytearray`; a string that is not UTF-8 stays `bytes`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias, TypeVar, Union

from warren.amqp.errors import SyntaxFault

T = TypeVar("T")

DEPTH_MAX = 64
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
DECIMAL_SCALE_MAX = 255


class Sized(int):
    """An integer that remembers which field type it is."""

    tag: ClassVar[bytes]
    layout: ClassVar[struct.Struct]


class Int8(Sized):
    tag, layout = b"b", struct.Struct(">b")


class UInt8(Sized):
    tag, layout = b"B", struct.Struct(">B")


class Int16(Sized):
    tag, layout = b"s", struct.Struct(">h")


class UInt16(Sized):
    tag, layout = b"u", struct.Struct(">H")


class UInt32(Sized):
    tag, layout = b"i", struct.Struct(">I")


class Int64(Sized):
    tag, layout = b"l", struct.Struct(">q")


class OldInt64(Sized):
    """The specification's own letter for a 64-bit integer, which few clients use."""

    tag, layout = b"L", struct.Struct(">q")


class Timestamp(Sized):
    """Seconds since 1970."""

    tag, layout = b"T", struct.Struct(">Q")


class Float32(float):
    """A float that was single precision on the wire."""


Value: TypeAlias = Union[  # noqa: UP007 - a recursive alias must be quoted inside, which | cannot do at run time
    bool, int, float, str, bytes, bytearray, Decimal, list["Value"], dict[str, "Value"], None
]
Table: TypeAlias = dict[str, Value]

SIZED: dict[int, type[Sized]] = {
    kind.tag[0]: kind for kind in (Int8, UInt8, Int16, UInt16, UInt32, Int64, OldInt64, Timestamp)
}
TYPE_NAMES = {
    ord("I"): "signedint", ord("S"): "longstr", ord("t"): "bool", ord("l"): "long", ord("L"): "long",
    ord("b"): "byte", ord("B"): "unsignedbyte", ord("s"): "short", ord("u"): "unsignedshort",
    ord("i"): "unsignedint", ord("d"): "double", ord("f"): "float", ord("F"): "table", ord("A"): "array",
    ord("T"): "timestamp", ord("D"): "decimal", ord("x"): "binary", ord("V"): "void",
}  # fmt: skip
INT32 = struct.Struct(">i")
LENGTH = struct.Struct(">I")
EMPTY_TABLE = LENGTH.pack(0)
FLOAT = struct.Struct(">f")
DOUBLE = struct.Struct(">d")
DECIMAL = struct.Struct(">Bi")


class _Reader:
    """A cursor over the bytes of one table; every read is checked against the end."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def take(self, size: int) -> bytes:
        start = self.at
        if size > self.end - start:
            raise SyntaxFault("field table ends in the middle of a value")
        self.at = start + size
        return self.data[start : self.at]

    def unpack(self, layout: struct.Struct) -> int:
        value: int = layout.unpack(self.take(layout.size))[0]
        return value

    def length(self) -> int:
        """Read a length, and check that so many bytes are left."""
        size = self.unpack(LENGTH)
        if size > self.end - self.at:
            raise SyntaxFault("field table is longer than its frame")
        return size

    def table(self, depth: int) -> Table:
        stop = self.length() + self.at
        result: Table = {}
        while self.at < stop:
            name = self.take(self.take(1)[0]).decode("utf-8", "surrogateescape")
            result[name] = self.value(depth)
        return self._closed(result, stop)

    def array(self, depth: int) -> list[Value]:
        stop = self.length() + self.at
        result: list[Value] = []
        while self.at < stop:
            result.append(self.value(depth))
        return self._closed(result, stop)

    def _closed(self, result: T, stop: int) -> T:
        if self.at != stop:
            raise SyntaxFault("a value crosses the end of its field table")
        return result

    def value(self, depth: int) -> Value:
        if depth > DEPTH_MAX:
            raise SyntaxFault(f"field table is nested more than {DEPTH_MAX} deep")
        tag = self.take(1)[0]
        sized = SIZED.get(tag)
        if sized is not None:
            return sized(self.unpack(sized.layout))
        reader = _VALUES.get(tag)
        if reader is None:
            raise SyntaxFault(f"unknown field type {chr(tag)!r}")
        return reader(self, depth)

    def string(self) -> str | bytes:
        raw = self.take(self.length())
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw

    def decimal(self) -> Decimal:
        scale, number = DECIMAL.unpack(self.take(DECIMAL.size))
        return Decimal(number).scaleb(-scale)


_VALUES: dict[int, Callable[[_Reader, int], Value]] = {
    ord("S"): lambda r, _d: r.string(),
    ord("I"): lambda r, _d: r.unpack(INT32),
    ord("t"): lambda r, _d: r.take(1) != b"\0",
    ord("F"): lambda r, d: r.table(d + 1),
    ord("A"): lambda r, d: r.array(d + 1),
    ord("V"): lambda _r, _d: None,
    ord("x"): lambda r, _d: bytearray(r.take(r.length())),
    ord("d"): lambda r, _d: DOUBLE.unpack(r.take(8))[0],
    ord("f"): lambda r, _d: Float32(FLOAT.unpack(r.take(4))[0]),
    ord("D"): lambda r, _d: r.decimal(),
}


def decode_table(data: bytes, at: int = 0) -> tuple[Table, int]:
    """The table that starts at `at`, and the offset behind its end."""
    reader = _Reader(data, at, len(data))
    return reader.table(1), reader.at


def decode_value(raw: bytes) -> Value:
    """One value that was encoded alone, with its type."""
    return _Reader(raw, 0, len(raw)).value(1)


def encode_table(table: Mapping[str, Value]) -> bytes:
    if not table:
        return EMPTY_TABLE
    content = b"".join(encode_name(name) + encode_value(value) for name, value in table.items())
    return LENGTH.pack(len(content)) + content


def encode_name(name: str) -> bytes:
    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) > 255:  # noqa: PLR2004 - the length is one octet
        raise ValueError(f"a field's name is at most 255 bytes: {name[:40]!r}…")
    return bytes((len(raw),)) + raw


def encode_value(value: Value) -> bytes:
    encoder = _ENCODER_OF.get(type(value)) or _find_encoder(value)
    return encoder(value)


def type_name(value: Value) -> str:
    """RabbitMQ's name for the type that this value has on the wire."""
    return TYPE_NAMES[encode_value(value)[0]]


def _find_encoder(value: Value) -> Callable[[Any], bytes]:
    """The encoder for this value's type or, if there is none, for a base of the type."""
    for kind, encoder in _ENCODERS:
        if isinstance(value, kind):
            return encoder
    raise TypeError(f"no field type for {type(value).__name__}")


def _encode_int(value: int) -> bytes:
    if INT32_MIN <= value <= INT32_MAX:
        return b"I" + INT32.pack(value)
    if INT64_MIN <= value <= INT64_MAX:
        return b"l" + Int64.layout.pack(value)
    raise ValueError(f"{value} does not fit 64 bits")


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent < -DECIMAL_SCALE_MAX:
        raise ValueError(f"{value} does not fit AMQP's decimal")
    number = int("".join(map(str, digits)) or "0") * 10 ** max(exponent, 0)
    return b"D" + DECIMAL.pack(max(-exponent, 0), -number if sign else number)


def _encode_array(values: list[Value]) -> bytes:
    content = b"".join(map(encode_value, values))
    return b"A" + LENGTH.pack(len(content)) + content


def _encode_bytes(tag: bytes, raw: bytes) -> bytes:
    return tag + LENGTH.pack(len(raw)) + raw


# Subclasses stand before their bases.
_ENCODERS: tuple[tuple[type, Callable[[Any], bytes]], ...] = (
    (str, lambda v: _encode_bytes(b"S", v.encode("utf-8", "surrogateescape"))),
    (bool, lambda v: b"t\1" if v else b"t\0"),
    (Sized, lambda v: v.tag + v.layout.pack(v)),
    (int, _encode_int),
    (dict, lambda v: b"F" + encode_table(v)),
    (list, _encode_array),
    (type(None), lambda _v: b"V"),
    (Float32, lambda v: b"f" + FLOAT.pack(v)),
    (float, lambda v: b"d" + DOUBLE.pack(v)),
    (bytes, lambda v: _encode_bytes(b"S", v)),
    (bytearray, lambda v: _encode_bytes(b"x", bytes(v))),
    (Decimal, _encode_decimal),
)
_ENCODER_OF = {kind: _find_encoder(kind()) for kind, _ in _ENCODERS if kind is not Sized}
_ENCODER_OF |= {kind: _find_encoder(kind()) for kind in SIZED.values()}
