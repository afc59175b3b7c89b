"""Which bytes the header `Range` asks for."""

from __future__ import annotations

import pytest

from warren.management.byte_range import parse_range
from warren.management.errors import RangeNotSatisfiable


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=0-99", (0, 100)),
        ("bytes=10-19", (10, 20)),
        ("bytes=90-", (90, 100)),
        ("bytes=99-99", (99, 100)),
        ("bytes=90-1000", (90, 100)),
        ("bytes=-1", (99, 100)),
        ("bytes=-1000", (0, 100)),
        ("Bytes = 1 - 2 ", (1, 3)),
    ],
)
def test_one_range_is_cut_to_what_there_is(header: str, expected: tuple[int, int]) -> None:
    assert parse_range(header, 100) == expected


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-4",
        "bytes=0-1,4-5",
        "lines=0-1",
        "bytes=\N{FULLWIDTH DIGIT ONE}-",
    ],
)
def test_what_is_not_one_range_of_bytes_is_ignored(header: str | None) -> None:
    assert parse_range(header, 100) is None


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_range_beyond_the_end_cannot_be_satisfied(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable) as raised:
        parse_range(header, 100)
    assert raised.value.size == 100


def test_of_nothing_no_range_can_be_satisfied() -> None:
    with pytest.raises(RangeNotSatisfiable):
        parse_range("bytes=0-", 0)
