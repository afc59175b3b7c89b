"""Values of the API as text for a terminal or a file."""

from __future__ import annotations

import json
from collections.abc import Sequence

from warren.client.api import Row


def printable(text: str, allowed: str = "") -> str:
    """The text with escapes for control characters and for bytes that are not UTF-8."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in allowed else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def cell(value: object) -> str:
    """A value on one line, without tabs."""
    if value is None:
        return ""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bool | dict | list):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:.1f}" if isinstance(value, float) and not value.is_integer() else f"{value:.0f}"


def value_at(row: Row, column: str) -> object:
    """The value of a column; dots lead into nested ones: `message_stats.publish_details.rate`."""
    if column in row:
        return row[column]
    value: object = row
    for name in column.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def has_field(row: Row, column: str) -> bool:
    """Whether a row has this column at all; its value may be null."""
    if column in row:
        return True
    name, dot, rest = column.partition(".")
    inner = row.get(name)
    return bool(dot) and isinstance(inner, dict) and has_field(inner, rest)


def cells(row: Row, columns: Sequence[str]) -> list[str]:
    return [cell(value_at(row, column)) for column in columns]
