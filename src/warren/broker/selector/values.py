"""The values of a selector and how they meet.

    kind      what it is made of
    number    integers of every width, timestamps, floats; a decimal is the float next to it, which loses
              nothing: those of the wire have at most ten digits
    string    text
    boolean   true and false, which are no numbers
    opaque    bytes, arrays, tables: there, and nothing else can be said of them
    NULL      what is not there (None)

Only values of one kind compare, and only numbers and strings have an order, strings that of their characters.
Everything else gives unknown, which is NULL as a boolean: `'5' = 5`, `'5' <> 5` and `TRUE < FALSE`.

Arithmetic is for numbers. Two integers divide to an integer, towards zero, as in SQL and Java. An integer
beyond 64 bits becomes a float. Division by zero gives NULL, and so does anything with what is no number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

Operator: TypeAlias = Callable[[Any, Any], Any]
Types: TypeAlias = Mapping[type, frozenset[type]]

NUMBERS = frozenset({int, float})
STRINGS = frozenset({str})
BOOLEANS = frozenset({bool})
PLAIN = NUMBERS | STRINGS | BOOLEANS | {type(None)}
INTEGER_MAX = 2**64 - 1

# By the type of one value, the types that the other may have.
EQUAL_TYPES: Types = {int: NUMBERS, float: NUMBERS, str: STRINGS, bool: BOOLEANS}
ORDER_TYPES: Types = {int: NUMBERS, float: NUMBERS, str: STRINGS}
NO_TYPES: frozenset[type] = frozenset()

COMPARISONS: dict[str, tuple[Operator, Types]] = {
    "=": (operator.eq, EQUAL_TYPES),
    "<>": (operator.ne, EQUAL_TYPES),
    "<": (operator.lt, ORDER_TYPES),
    "<=": (operator.le, ORDER_TYPES),
    ">": (operator.gt, ORDER_TYPES),
    ">=": (operator.ge, ORDER_TYPES),
}
# a < b is b > a
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def plain(value: object) -> object:
    """An Int8, a Decimal, a member of an enum as the plain value it is like: its type then says its kind."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float | Decimal):
        return float(value)
    return str.__str__(value) if isinstance(value, str) else value


def compare(operate: Operator, types: Types, left: object, right: object) -> bool | None:
    return operate(left, right) if type(right) in types.get(type(left), NO_TYPES) else None


def divide(left: float, right: float) -> float:
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


ARITHMETIC: dict[str, Operator] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divide,
}


def calculate(operate: Operator, left: object, right: object) -> int | float | None:
    if type(left) not in NUMBERS or type(right) not in NUMBERS:
        return None
    try:
        result: int | float = operate(left, right)
        return result if -INTEGER_MAX <= result <= INTEGER_MAX else float(result)
    except (ZeroDivisionError, OverflowError):  # what has no result is NULL
        return None
