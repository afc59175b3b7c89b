"""The header `Range` (RFC 9110, 14.2), as far as it asks for one range of bytes."""

from __future__ import annotations

import re

from warren.management.errors import RangeNotSatisfiable

ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.ASCII | re.IGNORECASE)


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """From where to before where, of so many bytes. None if all is to be sent: there is no header, or one
    that is not understood, or that asks for several ranges, which a server may ignore.
    """
    found = ONE_RANGE.fullmatch(header) if header is not None else None
    if found is None:
        return None
    first, last = found.groups()
    if not first and not last:
        return None
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start = int(first)
        stop = min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None  # no range at all
    if start >= stop:
        raise RangeNotSatisfiable(f"there are {size} bytes", size)
    return start, stop
