"""Values in words, the same in a terminal and on a page."""

from __future__ import annotations

from datetime import UTC, date, datetime

from warren.pipeline.report.result import Value

WHOLE_FROM = 1000.0
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
BYTES_A_UNIT = 1024


def in_words(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, datetime):
        return moment(value)
    return value.isoformat() if isinstance(value, date) else printable(value)


def number(value: float) -> str:
    """A number with about three digits: more would suggest a precision that is not there."""
    if abs(value) >= WHOLE_FROM or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def moment(value: datetime) -> str:
    """A time in UTC, with milliseconds unless it is a whole second."""
    utc = value.astimezone(UTC) if value.tzinfo else value
    text = utc.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{utc.microsecond // 1000:03}" if utc.microsecond else text


def printable(text: str) -> str:
    """The text, with control characters shown as escapes: names come from clients, and could otherwise send
    commands to a terminal.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def byte_size(count: float) -> str:
    for unit in BYTE_UNITS[:-1]:
        if count < BYTES_A_UNIT:
            return f"{number(count)} {unit}"
        count /= BYTES_A_UNIT
    return f"{number(count)} {BYTE_UNITS[-1]}"


def is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
