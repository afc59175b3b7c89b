"""Field tables. The golden values are written by hand, one of each type."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest

from warren.amqp import table as t
from warren.amqp.errors import SyntaxFault

# type, value, bytes behind the type's letter
TYPES: list[tuple[str, t.Value, bytes]] = [
    ("t", True, b"\x01"),
    ("t", False, b"\x00"),
    ("b", t.Int8(-2), b"\xfe"),
    ("B", t.UInt8(254), b"\xfe"),
    ("s", t.Int16(-2), b"\xff\xfe"),
    ("u", t.UInt16(65_534), b"\xff\xfe"),
    ("I", -2, b"\xff\xff\xff\xfe"),
    ("i", t.UInt32(4_294_967_294), b"\xff\xff\xff\xfe"),
    ("l", t.Int64(-2), b"\xff" * 7 + b"\xfe"),
    ("L", t.OldInt64(-2), b"\xff" * 7 + b"\xfe"),
    ("f", t.Float32(1.5), b"\x3f\xc0\x00\x00"),
    ("d", 1.5, b"\x3f\xf8\x00\x00\x00\x00\x00\x00"),
    ("D", Decimal("-12.34"), b"\x02\xff\xff\xfb\x2e"),
    ("D", Decimal("0.00000"), b"\x05\x00\x00\x00\x00"),
    ("D", Decimal("1E-255"), b"\xff\x00\x00\x00\x01"),
    ("S", "grün", b"\0\0\0\x05gr\xc3\xbcn"),
    ("S", b"\xff\xfe", b"\0\0\0\x02\xff\xfe"),
    ("x", bytearray(b"\x00\x01"), b"\0\0\0\x02\x00\x01"),
    ("T", t.Timestamp(1), b"\0\0\0\0\0\0\0\x01"),
    ("V", None, b""),
    ("A", [1, "x", [None]], b"\0\0\0\x11" + b"I\0\0\0\x01" + b"S\0\0\0\x01x" + b"A\0\0\0\x01V"),
    ("A", [], b"\0\0\0\0"),
    ("F", {"k": True}, b"\0\0\0\x04" + b"\x01kt\x01"),
    ("F", {}, b"\0\0\0\0"),
]


def in_a_table(value: bytes, name: bytes = b"k") -> bytes:
    entry = bytes([len(name)]) + name + value
    return struct.pack(">I", len(entry)) + entry


def nested(letter: bytes, depth: int) -> bytes:
    """A value that holds others of its kind, so many deep, with an empty one innermost."""
    value = b""
    for _ in range(depth):
        inside = b"\x01k" + value if letter == b"F" and value else value
        value = letter + struct.pack(">I", len(inside)) + inside
    return in_a_table(value)


@pytest.mark.parametrize(("letter", "value", "payload"), TYPES)
def test_each_type_decodes_and_encodes_to_the_same_bytes(letter: str, value: t.Value, payload: bytes) -> None:
    raw = in_a_table(letter.encode() + payload)
    decoded, end = t.decode_table(raw)
    assert decoded == {"k": value}
    assert type(decoded["k"]) is type(value)
    assert end == len(raw)
    assert t.encode_table(decoded) == raw


def test_every_type_has_a_case() -> None:
    assert {letter for letter, _, _ in TYPES} == set("tbBsuIilLfdDSxTVAF")


@pytest.mark.parametrize(
    ("number", "letter"),
    [(2**31 - 1, b"I"), (-(2**31), b"I"), (2**31, b"l"), (-(2**31) - 1, b"l"), (2**63 - 1, b"l")],
)
def test_plain_integer_takes_the_width_it_needs(number: int, letter: bytes) -> None:
    assert t.encode_value(number)[:1] == letter


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, Decimal(2**31), Decimal("1E-256"), Decimal("NaN"), t.UInt8(256)]
)
def test_what_does_not_fit_is_refused(value: t.Value) -> None:
    with pytest.raises((ValueError, struct.error)):
        t.encode_value(value)


def test_value_without_a_field_type_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        t.encode_value(object())  # type: ignore[arg-type]


def test_names_keep_their_order_and_bytes() -> None:
    raw = in_a_table(b"V", b"zz")[4:] + in_a_table(b"V", b"\xff")[4:] + in_a_table(b"V", b"")[4:]
    whole = struct.pack(">I", len(raw)) + raw
    decoded, _ = t.decode_table(whole)
    assert list(decoded) == ["zz", "\udcff", ""]
    assert t.encode_table(decoded) == whole


def test_table_is_read_from_the_middle_and_says_where_it_ends() -> None:
    assert t.decode_table(b"xx" + in_a_table(b"V") + b"yy", 2) == ({"k": None}, 2 + 4 + 3)


@pytest.mark.parametrize("letter", [b"F", b"A"])
def test_table_may_be_nested_to_the_limit_and_no_deeper(letter: bytes) -> None:
    deepest = nested(letter, t.DEPTH_MAX)
    decoded, _ = t.decode_table(deepest)
    assert t.encode_table(decoded) == deepest
    with pytest.raises(SyntaxFault, match="nested"):
        t.decode_table(nested(letter, t.DEPTH_MAX + 1))


@pytest.mark.parametrize(("letter", "value", "payload"), TYPES)
def test_table_cut_anywhere_is_a_syntax_error(letter: str, value: t.Value, payload: bytes) -> None:
    raw = in_a_table(letter.encode() + payload)
    for size in range(len(raw)):
        with pytest.raises(SyntaxFault):
            t.decode_table(raw[:size])


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\0\0\x04\x01kZ\0",  # no such type
        b"\0\0\0\x03\x01kI\0\0\0\x01",  # the value goes on behind the table
        b"\0\0\0\x02\x05k",  # the name goes on behind the table
        b"\0\0\0\x01\x00",  # a name without a value
        b"\0\0\0\x08\x01kF\0\0\0\x09\0\0\0",  # the inner table is longer than all
        in_a_table(b"A\0\0\0\x02I\0") + b"\0\0\0",  # the array ends within its value
        in_a_table(b"F\0\0\0\x03\x01kI") + b"\0\0\0\x01",  # the inner table ends within its value
    ],
)
def test_malformed_table_is_a_syntax_error(raw: bytes) -> None:
    with pytest.raises(SyntaxFault):
        t.decode_table(raw)
