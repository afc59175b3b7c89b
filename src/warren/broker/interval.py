"""Spans of time as arguments of streams give them: a number and a unit, such as `7D`."""

from __future__ import annotations

import re

SECOND_MS = 1000
DAY_MS = 24 * 3600 * SECOND_MS
UNITS_MS = {
    "Y": 365 * DAY_MS,
    "M": 30 * DAY_MS,
    "D": DAY_MS,
    "h": 3600 * SECOND_MS,
    "m": 60 * SECOND_MS,
    "s": SECOND_MS,
}
INTERVAL = re.compile(r"([0-9]{1,12})([YMDhms])", re.ASCII)


def interval_ms(text: str) -> int:
    """The length of an interval; raises ValueError if the text is none."""
    found = INTERVAL.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a number and one of {'/'.join(UNITS_MS)}, not {text!r}")
    return int(found[1]) * UNITS_MS[found[2]]
