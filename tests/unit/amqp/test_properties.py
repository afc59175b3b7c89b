from __future__ import annotations

from dataclasses import fields

import pytest

from warren.amqp.errors import SyntaxFault
from warren.amqp.properties import PERSISTENT, BasicProperties, decode_properties

ALL = BasicProperties(
    content_type="text/plain",
    content_encoding="gzip",
    headers={"h": 1},
    delivery_mode=PERSISTENT,
    priority=9,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=1_700_000_000,
    type="t",
    user_id="u",
    app_id="a",
    cluster_id="k",
)
ALL_BYTES = (
    b"\xff\xfc" + b"\x0atext/plain" + b"\x04gzip" + b"\0\0\0\x07\x01hI\0\0\0\x01" + b"\x02" + b"\x09"
    b"\x01c" + b"\x01r" + b"\x0560000" + b"\x01m" + b"\x00\x00\x00\x00\x65\x53\xf1\x00"
    b"\x01t" + b"\x01u" + b"\x01a" + b"\x01k"
)


@pytest.mark.parametrize(
    ("properties", "golden"),
    [
        (BasicProperties(), b"\x00\x00"),
        (BasicProperties(delivery_mode=2), b"\x10\x00\x02"),
        (BasicProperties(headers={}), b"\x20\x00\0\0\0\0"),
        (BasicProperties(content_type="", cluster_id=""), b"\x80\x04\x00\x00"),
        (BasicProperties(delivery_mode=0, priority=0, timestamp=0), b"\x18\x40\0\0" + b"\0" * 8),
        (ALL, ALL_BYTES),
    ],
)
def test_properties_have_the_bytes_of_the_specification(properties: BasicProperties, golden: bytes) -> None:
    assert properties.encode() == golden
    assert decode_properties(golden) == properties


@pytest.mark.parametrize("name", [f.name for f in fields(BasicProperties)])
def test_each_property_travels_alone(name: str) -> None:
    alone = BasicProperties(**{name: getattr(ALL, name)})
    assert decode_properties(alone.encode()) == alone


def test_properties_cut_anywhere_are_a_syntax_error() -> None:
    for size in range(len(ALL_BYTES)):
        with pytest.raises(SyntaxFault):
            decode_properties(ALL_BYTES[:size])


@pytest.mark.parametrize("raw", [b"\x00\x00\x00", b"\x00\x01", b"\x00\x02", b"\x10\x01\x02"])
def test_flags_and_fields_must_match(raw: bytes) -> None:
    with pytest.raises(SyntaxFault):
        decode_properties(raw)


def test_text_that_is_not_utf8_survives() -> None:
    raw = b"\x04\x00\x02\xff\xfe"
    assert decode_properties(raw).encode() == raw
