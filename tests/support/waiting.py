"""Waiting for a descriptor, of whatever number: `select.select` takes none above 1,023."""

from __future__ import annotations

import select


def until_readable(file: int, seconds: float | None = None) -> bool:
    """Whether it is, at the latest after so many seconds."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
