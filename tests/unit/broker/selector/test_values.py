from __future__ import annotations

from decimal import Decimal
from enum import IntEnum, StrEnum

import pytest

from tests.unit.broker.selector.truth import of_headers, truth
from warren.amqp import table as t
from warren.amqp.properties import BasicProperties, decode_properties


class Level(IntEnum):
    HIGH = 7


class Region(StrEnum):
    EU = "eu"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("size = 7", True),
        ("size = 8", False),
        ("size <> 8", True),
        ("size != 8", True),
        ("size < 8", True),
        ("size < 7", False),
        ("size <= 7", True),
        ("size > 7", False),
        ("size >= 7", True),
        ("7 = size", True),
        ("6 < size", True),
        ("8 <= size", False),
        ("size = 7.0", True),
        ("size > half", True),
        ("region = 'eu'", True),
        ("region = 'EU'", False),
        ("region <> 'us'", True),
        ("region < 'us'", True),
        ("region > 'a'", True),
        ("yes = TRUE", True),
        ("yes = no", False),
        ("yes <> no", True),
        ("(size > 3) = yes", True),
        ("1 < 2", True),
    ],
)
def test_values_of_one_kind_compare(text: str, expected: bool) -> None:
    assert of_headers(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        *("missing = 1", "missing <> 1", "void = 1", "missing = missing", "missing < 'a'", "missing = TRUE"),
        *("digits = 7", "digits <> 7", "size = '7'", "size <> '7'", "size < '8'"),
        *("yes = 1", "yes <> 0", "size = TRUE", "zero = no", "yes > no", "TRUE >= FALSE"),
        *("raw = 'eu'", "bytes = 'eu'", "bytes <> 'us'", "list = 1", "table = 1", "list = list", "raw = raw"),
        *("missing LIKE '%'", "size LIKE '%'", "bytes LIKE '%'"),
        *("missing BETWEEN 1 AND 2", "size BETWEEN missing AND 8", "size BETWEEN 'a' AND 'b'"),
        *("missing IN (1)", "size IN ('a')", "size IN (8, 'a')", "list IN (1)", "yes IN (1)"),
        *("size", "region", "missing", "list", "size AND TRUE", "region OR FALSE"),
    ],
)
def test_values_of_different_kinds_or_none_give_unknown(text: str) -> None:
    assert of_headers(text) is None


@pytest.mark.parametrize(
    "value",
    [
        *(7, 7.0, t.Float32(7.0), Decimal("7.00"), Level.HIGH),
        *(kind(7) for kind in t.SIZED.values()),
    ],
)
def test_numbers_of_every_type_are_alike(value: t.Value) -> None:
    headers: t.Table = {"n": value}
    assert (
        of_headers("n = 7 AND n IN (1, 7) AND n BETWEEN 6.5 AND 7 AND n + 1 = 8 AND -n < 0", headers) is True
    )
    assert of_headers("n = TRUE", headers) is None


def test_decimal_equals_the_literal_that_looks_like_it() -> None:
    raw = BasicProperties(headers={"price": Decimal("0.10")}).encode()
    assert truth("price = 0.1 AND price < 0.11", decode_properties(raw)) is True


def test_string_of_a_type_of_its_own_is_a_string() -> None:
    assert of_headers("r = 'eu' AND r IN ('eu') AND r LIKE 'e%'", {"r": Region.EU}) is True


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + b", 13),
        ("a - b", 7),
        ("a * b", 30),
        ("a / b", 3),
        ("minus / 2", -3),
        ("minus / -2", 3),
        ("a / 4.0", 2.5),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("20 / 5 / 2", 2),
        ("-a", -10),
        ("+a", 10),
        ("- -a", 10),
        ("- + - -a", -10),
        ("2 * -b", -6),
        ("1-2", -1),
        ("a -b", 7),
        ("a - -b", 13),
        ("half + half", 1),
        ("9223372036854775807 + 1", 2**63),
        ("18446744073709551615 * 18446744073709551615", float((2**64 - 1) ** 2)),
    ],
)
def test_arithmetic_follows_precedence_and_goes_from_left_to_right(text: str, value: float) -> None:
    assert of_headers(f"{text} = {value!r}") is True


@pytest.mark.parametrize(
    "text",
    [
        *("a / 0", "a / zero", "1.5 / 0", "a / 0.0", "a + missing", "missing * 0", "-missing", "+missing"),
        *("a + digits", "region + 1", "-region", "+'x'", "a + yes", "-yes", "a * list", "1 + 'a' + 1"),
    ],
)
def test_arithmetic_without_a_result_is_null(text: str) -> None:
    assert of_headers(f"{text} IS NULL") is True
    assert of_headers(f"({text}) = 1") is None


def test_numbers_that_grow_beyond_a_float_do_no_harm() -> None:
    assert of_headers(f"{'big * ' * 400} big > 0", {"big": 2**63 - 1}) is True
    assert of_headers(f"{'x * ' * 400} x > 0", {"x": 1e300}) is True
    assert truth("expiration * expiration IS NULL", BasicProperties(expiration="9" * 255)) is True
