"""Keeps the messages of a replicated queue from its consumers until they are safe.

A message that only the leader of a queue has may be gone after the leader's end. Its publisher was not told
that it is safe, and will send it again; but a consumer that had seen it would have seen what never was. So a
lane whose log is replicated has a gate, and so has the log of a replicated stream: the last place whose round
is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from warren.broker.safety import Safety

T = TypeVar("T")


class Gate(Generic[T]):
    """`T` says where a message is: by its position, or by more."""

    def __init__(self, safety: Safety, opens: Callable[[T], None]) -> None:
        self.safety = safety  # says when what is in the log is safe
        self.opens = opens  # called with the last place that may go out
        self.number = 0  # of the round that the last message came in
        self.place: T | None = None  # of that message
        self.earlier: deque[tuple[int, T | None]] = deque()  # the same of rounds before that are not over

    def note(self, place: T) -> None:
        """A message was appended to the log at this place, in the round that gathers now."""
        number = self.safety.gathering
        if number != self.number:
            if self.number:
                self.earlier.append((self.number, self.place))
            self.number = number
            self.safety.when_safe(self._round_is_over)
        self.place = place

    def _round_is_over(self, number: int) -> None:
        place = None
        while self.earlier and self.earlier[0][0] <= number:
            _, place = self.earlier.popleft()
        if self.number and self.number <= number:
            place, self.number = self.place, 0
        if place is not None:
            self.opens(place)
