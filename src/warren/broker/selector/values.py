"""The values in a selector: how they compare and calculate.

    kind      values of this kind
    number    integers of every width, timestamps, floats; a decimal becomes the nearest float, which loses
              nothing, since decimals on the wire have at most ten digits
    string    text
    boolean   true and false, which are no numbers
    opaque    bytes, arrays, tables: they are not NULL, and compare with nothing
    NULL      a header or property that the message does not have (None)

Values of different kinds do not compare. Only numbers and strings have an order; strings are ordered by their
characters. The result of any other comparison is unknown, which is NULL as a boolean: `'5' = 5`, `'5' <> 5`
and `TRUE < FALSE` are unknown.

Only numbers calculate. An integer divided by an integer is an integer, rounded towards zero, as in SQL and
Java. An integer beyond 64 bits becomes a float. Division by zero is NULL, and so is a calculation with
anything that is no number.
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

# By the type of one value, the types of the values that it compares with.
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
    """A value of a subclass, such as an Int8, as the plain int, float or str, so that its type says its kind.
    A Decimal becomes a float.
    """
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
    except (ZeroDivisionError, OverflowError):  # there is no result: NULL
        return None
