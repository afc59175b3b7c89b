"""A safety of a test's own, with several rounds on their way."""

from __future__ import annotations

from collections.abc import Callable


class Rounds:
    """The test says when a round begins, and which ones are over."""

    def __init__(self) -> None:
        self.gathering = 1
        self.behind = False
        self.waiting: dict[int, list[Callable[[int], None]]] = {}  # who waits for a round, by its number
        self.to_tell: list[Callable[[], None]] = []  # if nobody will ever say that a round is over

    def when_safe(self, callback: Callable[[int], None], ended: Callable[[], None] | None = None) -> None:
        self.waiting.setdefault(self.gathering, []).append(callback)
        if ended is not None:
            self.to_tell.append(ended)

    def when_ready(self, callback: Callable[[], None]) -> None:
        self.when_safe(lambda _number: callback())

    def begin_next(self) -> None:
        self.gathering += 1

    def end(self, number: int) -> None:
        for tell in self.waiting.pop(number, []):
            tell(number)

    def end_term(self) -> None:
        """Nobody says any more that a round is over."""
        self.waiting.clear()
        told, self.to_tell = self.to_tell, []
        for tell in told:
            tell()
