"""Whose turn it is, among the queues that a channel consumes, while the channel as a whole has a limit.

A queue that may not deliver to the channel now joins the line. As long as there is one, only the first in it
may, one message; then it leaves, and joins again at the end if it has more. So queues are served one after
the other, however fast one of them fills. While none waits, none has to.

A queue in the line may have nothing to deliver any more, if other channels have emptied it. So `drain`, which
the end of a turn calls as it calls a queue's, drains the first queue and then sees who is first.
"""

from __future__ import annotations

from typing import Protocol


class Drainable(Protocol):
    """What a turn has to finish: a queue, or a rota."""

    def drain(self) -> None: ...


class Rota:
    """`line` are the queues that wait, the `first` one first. `full` says that one was refused because of the
    limit, and not because of others; `taken` counts messages.
    """

    def __init__(self, touched: list[Drainable]) -> None:
        self.all_touched = touched
        self.touched = False
        self.full = False
        self.taken = 0
        self.line: dict[Drainable, None] = {}
        self.first: Drainable | None = None

    def admits(self, queue: Drainable, has_room: bool) -> bool:
        """Whether this queue may deliver a message now, for which the channel has room or not."""
        if has_room and (self.first is None or self.first is queue):
            return True
        self.line[queue] = None
        if self.first is None:
            self.first = queue
        if has_room:
            self.touch()
        else:
            self.full = True
        return False

    def took(self, queue: Drainable) -> None:
        """It was this one's turn."""
        self.taken += 1
        if self.first is not None:
            self.leave(queue)

    def leave(self, queue: Drainable) -> None:
        """It has had its turn, or has nothing to deliver here."""
        self.line.pop(queue, None)
        self.first = next(iter(self.line), None)
        self.touch()

    def touch(self) -> None:
        """See to it that the line is served in this turn: there may be room."""
        if self.first is not None and not self.touched:
            self.touched = True
            self.all_touched.append(self)

    def drain(self) -> None:
        try:
            self.serve()
        finally:
            self.touched = False

    def serve(self) -> None:
        """Have the queues deliver in turn, until the channel is full or none of them does."""
        idle = 0
        self.full = False
        while self.first is not None and not self.full and idle <= len(self.line):
            first, taken = self.first, self.taken
            first.drain()
            if self.taken != taken:
                idle = 0
            elif not self.full:
                idle += 1
                self.leave(first)
