"""Waiting for events of a broker in this process."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, TypeVar

import warren
from warren.broker.events import Event

WAIT_SECONDS_MAX = 20
E = TypeVar("E", bound=Event)


class Happenings:
    """While it is entered, it remembers all events of some kinds."""

    def __init__(self, broker: warren.Broker, *kinds: type[Event]) -> None:
        self.seen: list[Event] = []
        self.news = asyncio.Event()
        self.unsubscribe = [broker.subscribe(kind, self._note) for kind in kinds]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for unsubscribe in self.unsubscribe:
            unsubscribe()

    def _note(self, event: Event) -> None:
        self.seen.append(event)
        self.news.set()

    async def until(self, kind: type[E], count: int = 1) -> list[E]:
        """Wait until there were so many of this kind; take them away."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while len(found := [each for each in self.seen if isinstance(each, kind)]) < count:
                self.news.clear()
                await self.news.wait()
        self.seen = [each for each in self.seen if not isinstance(each, kind)]
        return found
