"""Keeps the messages of a replicated queue from its consumers until they are safe.

A message that only the leader of a queue has may be gone after the leader's end. Its publisher was not told
that it is safe, and will send it again; but a consumer that had seen it would have seen what never was. So a
lane whose log is replicated has a gate: the last position whose round is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from warren.broker.safety import Safety


class Gate:
    def __init__(self, safety: Safety, opens: Callable[[int], None]) -> None:
        self.safety = safety  # says when what is in the lane's log is safe
        self.opens = opens  # called with the last position that may go out
        self.number = 0  # of the round that the last message came in
        self.position = 0  # of that message
        self.earlier: deque[tuple[int, int]] = deque()  # the same of rounds before that are not over

    def note(self, position: int) -> None:
        """A message with this position was appended to the log in the round that gathers now."""
        number = self.safety.gathering
        if number != self.number:
            if self.number:
                self.earlier.append((self.number, self.position))
            self.number = number
            self.safety.when_safe(self._round_is_over)
        self.position = position

    def _round_is_over(self, number: int) -> None:
        position = 0
        while self.earlier and self.earlier[0][0] <= number:
            _, position = self.earlier.popleft()
        if self.number and self.number <= number:
            position, self.number = self.position, 0
        if position:
            self.opens(position)
