"""Long work on the event loop, at a pace that leaves room for all others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")
TURN_SECONDS = 0.002


async def at_a_pace(items: Iterable[T]) -> AsyncIterator[T]:
    """The same items, in each turn of the loop as many as are dealt with in `TURN_SECONDS`, plus one."""
    began = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began >= TURN_SECONDS:
            await asyncio.sleep(0)
            began = time.perf_counter()
