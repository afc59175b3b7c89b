"""Evaluates a selector and its negation, which together tell TRUE, FALSE and unknown apart."""

from __future__ import annotations

from warren.amqp import table as t
from warren.amqp.properties import BasicProperties
from warren.broker.selector import compile_selector

Truth = bool | None

HEADERS: t.Table = {
    "region": "eu",
    "size": 7,
    "minus": -7,
    "half": 0.5,
    "zero": 0,
    "yes": True,
    "no": False,
    "void": None,
    "raw": b"\xff",
    "bytes": bytearray(b"eu"),
    "list": [1],
    "table": {"a": 1},
    "digits": "7",
    "a-b": "dashed",
    "a": 10,
    "b": 3,
}


def truth(text: str, properties: BasicProperties) -> Truth:
    """What the selector says of the message: unknown if neither it nor its negation match."""
    is_true = compile_selector(text).matches(properties)
    is_false = compile_selector(f"NOT ({text})").matches(properties)
    assert not (is_true and is_false)
    return is_true if is_true or is_false else None


def of_headers(text: str, headers: t.Table = HEADERS) -> Truth:
    return truth(text, BasicProperties(headers=headers))
