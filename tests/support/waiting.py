"""Waiting for a descriptor of any number: `select.select` takes none above 1,023."""

from __future__ import annotations

import select


def until_readable(file: int, seconds: float | None = None) -> bool:
    """Whether there is something to read within so many seconds."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
