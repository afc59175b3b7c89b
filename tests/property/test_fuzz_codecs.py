"""Tables, methods and properties: what was encoded comes back, and nonsense is a fault and nothing else."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes import FakeBroker
from tests.support.frames import (
    CLASS_BASIC,
    CONTENT_HEAD,
    HEADER,
    encode_frame,
    method_frame,
)
from warren.amqp import methods as m
from warren.amqp import table as t
from warren.amqp.errors import CommandInvalid, SyntaxFault
from warren.amqp.properties import BasicProperties, decode_properties


def sized(kind: type[t.Sized]) -> st.SearchStrategy[t.Sized]:
    bits, signed = 8 * kind.layout.size, kind.layout.format[-1:].islower()
    low = -(2 ** (bits - 1)) if signed else 0
    return st.integers(low, low + 2**bits - 1).map(kind)


short_bytes = st.binary(max_size=255)
short_strings = short_bytes.map(lambda raw: raw.decode("utf-8", "surrogateescape"))
floats = st.floats(allow_nan=False)
leaves: st.SearchStrategy[t.Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(t.INT32_MIN, t.INT32_MAX),
    st.text(max_size=300).filter(lambda text: text.isprintable() or not text),
    st.binary(min_size=1, max_size=50).map(lambda raw: b"\xff" + raw),
    st.binary(max_size=50).map(bytearray),
    floats,
    st.floats(width=32, allow_nan=False).map(t.Float32),
    st.builds(
        lambda n, scale: Decimal(n).scaleb(-scale), st.integers(t.INT32_MIN, t.INT32_MAX), st.integers(0, 255)
    ),
    *(sized(kind) for kind in t.SIZED.values()),
)
values: st.SearchStrategy[t.Value] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(short_strings, inner, max_size=4),
    max_leaves=20,
)
tables: st.SearchStrategy[t.Table] = st.dictionaries(short_strings, values, max_size=6)

ARGUMENTS: dict[str, st.SearchStrategy[object]] = {
    "Octet": st.integers(0, 2**8 - 1),
    "Short": st.integers(0, 2**16 - 1),
    "Long": st.integers(0, 2**32 - 1),
    "LongLong": st.integers(0, 2**64 - 1),
    "Bit": st.booleans(),
    "ShortStr": short_strings,
    "LongStr": st.binary(max_size=1000),
    "FieldTable": tables,
}


@st.composite
def methods(draw: st.DrawFn) -> m.Method:
    kind = draw(st.sampled_from(list(m.METHODS.values())))
    return kind(**{name: draw(ARGUMENTS[argument]) for name, argument in kind.layout})


properties = st.builds(
    BasicProperties,
    headers=st.none() | tables,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    **{
        name: st.none() | short_strings
        for name in (
            "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id",
            "type", "user_id", "app_id", "cluster_id",
        )
    },
)  # fmt: skip


def same(one: t.Value, other: t.Value) -> bool:
    """Equal, and of the same types all the way down, since the types are the widths on the wire."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@given(tables, st.binary(max_size=10))
def test_table_comes_back_with_its_types_and_says_where_it_ends(table: t.Table, behind: bytes) -> None:
    encoded = t.encode_table(table)
    decoded, end = t.decode_table(encoded + behind)
    assert end == len(encoded)
    assert same(decoded, table)
    assert t.encode_table(decoded) == encoded


@given(methods())
def test_method_comes_back(method: m.Method) -> None:
    encoded = method.encode()
    decoded = m.decode_method(encoded)
    assert decoded == method
    assert decoded.encode() == encoded


@given(properties)
def test_properties_come_back(given_properties: BasicProperties) -> None:
    encoded = given_properties.encode()
    decoded = decode_properties(encoded)
    assert decoded == given_properties
    assert decoded.encode() == encoded


@given(methods(), st.data())
def test_method_cut_anywhere_is_a_syntax_fault(method: m.Method, data: st.DataObject) -> None:
    encoded = method.encode()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(SyntaxFault):
        m.decode_method(encoded[:cut])


@st.composite
def mutations(draw: st.DrawFn, sound: st.SearchStrategy[bytes]) -> bytes:
    """Sound bytes of which some were changed, or any bytes at all."""
    raw = bytearray(draw(sound))
    for _ in range(draw(st.integers(1, 3))):
        if raw:
            raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw)


@given(st.binary(max_size=200) | mutations(tables.map(t.encode_table)))
def test_any_bytes_are_a_table_or_a_syntax_fault(raw: bytes) -> None:
    with suppress(SyntaxFault):
        decoded, end = t.decode_table(raw)
        assert end <= len(raw)
        assert same(t.decode_table(t.encode_table(decoded))[0], decoded) or has_nan(decoded)


def has_nan(value: t.Value) -> bool:
    if isinstance(value, dict):
        return any(map(has_nan, value.values()))
    if isinstance(value, list):
        return any(map(has_nan, value))
    return value != value  # noqa: PLR0124 - what not-a-number is known by


@given(
    st.builds(
        bytes.__add__, st.sampled_from([m.METHOD_ID.pack(*ids) for ids in m.METHODS]), st.binary(max_size=100)
    )
    | st.binary(max_size=100)
    | mutations(methods().map(lambda method: method.encode()))
)
def test_any_bytes_are_a_method_or_a_fault(raw: bytes) -> None:
    with suppress(SyntaxFault, CommandInvalid):
        m.decode_method(raw)


@given(st.binary(max_size=100) | mutations(properties.map(lambda some: some.encode())))
def test_broker_takes_exactly_those_properties_that_can_be_decoded(raw: bytes) -> None:
    """A publish is only scanned, for speed; what passes must not fail when somebody decodes it later."""
    try:
        decode_properties(raw)
        code = 0
    except SyntaxFault as fault:
        code = fault.code
    assert code_of_publish_with(raw) == code


def code_of_publish_with(raw_properties: bytes) -> int:
    """The code of the connection.close that follows, or 0."""
    broker = FakeBroker()
    client = broker.connect().open()
    client.feed(method_frame(1, m.BasicPublish(routing_key="nowhere")))
    client.feed(encode_frame(HEADER, 1, CONTENT_HEAD.pack(CLASS_BASIC, 0, 0) + raw_properties))
    assert not broker.world.errors
    return sum(close.reply_code for close in client.methods(0) if isinstance(close, m.ConnectionClose))
