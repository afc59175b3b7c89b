"""Field tables as JSON that an operator can read, with the exact type of every value.

    what JSON has itself    "text"   5   true   1.5   null   [1, 2]   {"name": "value"}
    other integers          {"!int16": 5}, and so on for each subclass of Sized
    floats                  {"!float32": 1.5}; those that are not finite by their bits:
                            {"!float": "7ff0000000000000"}, {"!float32": "7ff8000000000000"}
    bytes                   {"!bytes": "ff00"}, {"!bytearray": "ff00"}
    decimals                {"!decimal": "1.50"}
    a table of one field    {"!table": {"!odd": 1}}
    whose name has a "!"

The type matters: what a client asks for on redeclaring is compared with what is there, type included, and
a binding is the same only if its arguments encode to the same bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from warren.amqp.table import DOUBLE, SIZED, Float32, Sized, Table, Value
from warren.broker.parameters import Json

MARK = "!"
T = TypeVar("T")


def table_to_json(table: Table) -> dict[str, Json]:
    return {name: _write(value) for name, value in table.items()}


def table_from_json(text: Json) -> Table:
    return {name: _read(value) for name, value in expect(dict, text).items()}


def expect(kind: type[T], text: Any) -> T:
    """ValueError if it is of another type. It does not name the text, which may be a secret."""
    if type(text) is kind:
        return text
    raise ValueError(f"expected {kind.__name__}, found {type(text).__name__}")


def _write(value: Value) -> Json:
    for kind in type(value).__mro__:
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(value)
    raise TypeError(f"no field type for {type(value).__name__}")


def _read(text: Json) -> Value:
    if isinstance(text, list):
        return [_read(item) for item in text]
    if not isinstance(text, dict):
        return text
    if _looks_marked(text):
        ((name, content),) = text.items()
        return _read_marked(name, content)
    return table_from_json(text)


def _looks_marked(fields: dict[str, Any]) -> bool:
    return len(fields) == 1 and next(iter(fields)).startswith(MARK)


def _read_marked(name: str, content: Json) -> Value:
    marked = _MARKED.get(name)
    if marked is None:
        raise ValueError(f"unknown type of value '{name}'")
    try:
        return marked.read(content)
    except (TypeError, ArithmeticError, struct.error) as error:
        raise ValueError(f"not a value of type '{name}'") from error


def _write_table(table: Table) -> Json:
    text = table_to_json(table)
    return {"!table": text} if _looks_marked(table) else text


def _write_float(value: float) -> Json:
    return float(value) if math.isfinite(value) else {"!float": _non_finite(value)}


def _write_float32(value: float) -> Json:
    return {"!float32": float(value) if math.isfinite(value) else _non_finite(value)}


def _non_finite(value: float) -> str:
    """The bits, since there are many that are not a number."""
    return DOUBLE.pack(value).hex()


def _read_float(text: float | str) -> float:
    value: float = DOUBLE.unpack(bytes.fromhex(text))[0] if isinstance(text, str) else float(text)
    return value


@dataclass(frozen=True)
class _Marked:
    """A type that JSON does not have."""

    write: Callable[[Any], Json]
    read: Callable[[Any], Value]


def _sized(kind: type[Sized]) -> _Marked:
    def read(text: Any) -> Sized:
        kind.layout.pack(expect(int, text))  # raises if it does not fit
        return kind(text)

    return _Marked(int, read)


_SIZED = {MARK + kind.__name__.lower(): (kind, _sized(kind)) for kind in SIZED.values()}
_MARKED: dict[str, _Marked] = {
    "!float": _Marked(_write_float, _read_float),
    "!float32": _Marked(_write_float32, lambda text: Float32(_read_float(text))),
    "!bytes": _Marked(bytes.hex, bytes.fromhex),
    "!bytearray": _Marked(bytearray.hex, bytearray.fromhex),
    "!decimal": _Marked(str, Decimal),
    "!table": _Marked(_write_table, table_from_json),
    **{name: marked for name, (_, marked) in _SIZED.items()},
}


def _marking(name: str) -> Callable[[Any], Json]:
    write = _MARKED[name].write
    return lambda value: {name: write(value)}


_WRITERS: dict[type, Callable[[Any], Json]] = {
    str: lambda value: value,
    int: lambda value: value,
    bool: lambda value: value,
    type(None): lambda value: value,
    float: _write_float,
    Float32: _write_float32,
    list: lambda value: [_write(item) for item in value],
    dict: _write_table,
    bytes: _marking("!bytes"),
    bytearray: _marking("!bytearray"),
    Decimal: _marking("!decimal"),
    **{kind: _marking(name) for name, (kind, _) in _SIZED.items()},
}
