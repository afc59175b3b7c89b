"""Decoding a large JSON object in several turns of the loop."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.management.large_json import decode_large_object

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values), st.sampled_from([None, 1]))
async def test_object_is_decoded_as_by_the_library(value: dict[str, Any], indent: int | None) -> None:
    assert await decode_large_object(json.dumps(value, indent=indent).encode()) == value


async def test_long_list_and_byte_order_mark_are_decoded() -> None:
    value = {"queues": [{"name": str(number)} for number in range(1000)]}
    assert await decode_large_object(b"\xef\xbb\xbf" + json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b'{"a":1,}', b'{"a":[', b'{"a":[1',
        b'{"a":[1,]}', b'{"a":[1}', b'{"a" 1}', b'{"a":1} x', b'{"a":NaN}', b'{"a":[nonsense]}',
        b"\xff{}", b"null", b"{1:2}",
    ],
)  # fmt: skip
async def test_what_is_no_object_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        await decode_large_object(body)
