"""A safety of a test's own, with several rounds on their way."""

from __future__ import annotations

from collections.abc import Callable


class Rounds:
    """The test says when a round begins, and which ones are over."""

    def __init__(self) -> None:
        self.gathering = 1
        self.behind = False
        self.waiting: dict[int, list[Callable[[int], None]]] = {}  # who waits for a round, by its number

    def when_safe(self, callback: Callable[[int], None]) -> None:
        self.waiting.setdefault(self.gathering, []).append(callback)

    def begin_next(self) -> None:
        self.gathering += 1

    def end(self, number: int) -> None:
        for tell in self.waiting.pop(number, []):
            tell(number)
