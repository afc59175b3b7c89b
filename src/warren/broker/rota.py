"""The order in which queues deliver to a channel that has a prefetch limit for all its consumers together.

A queue that may not deliver to the channel now joins a line. While anybody is in line, only the first queue
may deliver, and only one message; then it leaves the line, and joins again at the end if it has more. So the
queues are served in turn, however fast one of them fills. While the line is empty, every queue may deliver.

A queue in line may have nothing to deliver any more, if other channels have emptied it. So the end of a turn
also drains the rota, as if it were a queue: that drains the queues in line, one after the other.
"""

from __future__ import annotations

from typing import Protocol


class Drainable(Protocol):
    """What is drained at the end of a turn: a queue, or a rota."""

    def drain(self) -> None: ...


class Rota:
    """One channel's line of queues."""

    def __init__(self, touched: list[Drainable]) -> None:
        self.all_touched = touched  # what is to be drained in this turn
        self.touched = False  # whether this rota is among that
        self.full = False  # whether a queue was refused because of the limit, and not because of the line
        self.taken = 0  # messages that queues have delivered
        self.line: dict[Drainable, None] = {}  # the queues that wait
        self.first: Drainable | None = None  # the first of the line

    def admits(self, queue: Drainable, has_room: bool) -> bool:
        """Whether this queue may deliver a message now; if not, it joins the line. `has_room` says whether
        the channel's limit allows one more message.
        """
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
        """This queue has delivered a message."""
        self.taken += 1
        if self.first is not None:
            self.leave(queue)

    def leave(self, queue: Drainable) -> None:
        """This queue has had its turn, or has nothing to deliver to this channel."""
        self.line.pop(queue, None)
        self.first = next(iter(self.line), None)
        self.touch()

    def touch(self) -> None:
        """Have the line served in this turn: the channel may have room."""
        if self.first is not None and not self.touched:
            self.touched = True
            self.all_touched.append(self)

    def drain(self) -> None:
        try:
            self.serve()
        finally:
            self.touched = False

    def serve(self) -> None:
        """Have the queues in line deliver in turn, until the channel is full or none of them delivers."""
        idle, in_line = 0, len(self.line)  # queues in a row that delivered nothing; the line before them
        self.full = False
        while self.first is not None and not self.full and idle <= in_line:
            first, taken = self.first, self.taken
            first.drain()
            if self.taken != taken:
                idle, in_line = 0, len(self.line)
            elif not self.full:
                idle += 1
                self.leave(first)

    def __repr__(self) -> str:
        return f"<Rota: {len(self.line or ())} queues in line, {self.taken} messages taken>"
