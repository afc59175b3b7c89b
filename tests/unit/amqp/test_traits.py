"""Reading and changing raw properties has the same result as decoding and encoding them."""

from __future__ import annotations

import pytest

from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Int64, Table, decode_value, encode_table, encode_value
from warren.amqp.traits import add_headers, expiration_of, header_of, priority_of

HEADERS: Table = {"a": 1, "": "empty", "nested": {"x": [1, None, "y"]}, "b" * 255: Int64(7)}
SHAPES = [
    BasicProperties(),
    BasicProperties(expiration="60000", priority=9),
    BasicProperties(content_type="text/plain", content_encoding="gzip", headers=HEADERS, priority=255),
    BasicProperties(headers={}, delivery_mode=2, correlation_id="c", reply_to="r", expiration="0"),
    BasicProperties(
        content_type="t", headers=HEADERS, expiration="1", message_id="m", timestamp=5, type="t", app_id="a"
    ),
]


@pytest.mark.parametrize("properties", SHAPES)
def test_expiration_and_priority_are_found(properties: BasicProperties) -> None:
    raw = properties.encode()
    assert expiration_of(raw) == (-1 if properties.expiration is None else int(properties.expiration))
    assert priority_of(raw) == (properties.priority or 0)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", " 1", "1" * 19])
def test_expiration_that_is_no_number_counts_as_none(text: str) -> None:
    assert expiration_of(BasicProperties(expiration=text).encode()) == -1


@pytest.mark.parametrize("properties", SHAPES)
def test_header_is_found_with_its_type(properties: BasicProperties) -> None:
    raw = properties.encode()
    for name, value in (properties.headers or {}).items():
        found = header_of(raw, name.encode())
        assert found == encode_value(value)
        assert decode_value(found) == value
    assert header_of(raw, b"missing") is None


@pytest.mark.parametrize("drop_expiration", [False, True])
@pytest.mark.parametrize("properties", SHAPES)
def test_headers_are_added_behind_those_that_are_there(
    properties: BasicProperties, drop_expiration: bool
) -> None:
    fields = encode_table({"new": "value", "count": Int64(3)})[4:]
    changed = decode_properties(add_headers(properties.encode(), fields, drop_expiration))
    properties = decode_properties(properties.encode())
    properties.headers = {**(properties.headers or {}), "new": "value", "count": Int64(3)}
    if drop_expiration:
        properties.expiration = None
    assert changed == properties
    assert list(changed.headers or {}) == list(properties.headers)
