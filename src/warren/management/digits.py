"""Numbers that clients write as digits, in paths, queries and texts."""

from __future__ import annotations

DIGITS_MAX = 20  # as many as the largest number of 64 bits has; Python refuses to read very many


def number_of(text: str) -> int | None:
    """The number from 0 on that a text is; None if it is anything else."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
    return int(text) if is_number else None
