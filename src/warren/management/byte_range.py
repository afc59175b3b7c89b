"""The header `Range` (RFC 9110, 14.2), as far as it asks for one range of bytes."""

from __future__ import annotations

import re

from warren.management.errors import RangeNotSatisfiable

ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.ASCII | re.IGNORECASE)


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The range as (start, stop), of `size` bytes. None if all bytes are to be sent: there is no header, we
    do not understand it, or it asks for several ranges, which a server may ignore.
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
            return None  # the range is invalid
    if start >= stop:
        raise RangeNotSatisfiable(f"there are only {size} bytes", size)
    return start, stop
