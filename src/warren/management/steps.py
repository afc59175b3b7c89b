"""Waiting for work that may be too much for one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from warren.broker.turns import Turns


async def take(turns: Turns, steps: Iterator[int]) -> None:
    """Take all of these steps, over several turns if they are much, even if the client hangs up meanwhile."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    turns.spread(steps, lambda: None if done.done() else done.set_result(None))
    await done
