"""How much work the present turn of the event loop may still do.

Work is counted in units. One unit is about what it costs to put a small message into a queue, a third of a
microsecond; whoever does more takes more units. The count may go below zero: it is looked at between two
pieces of work, never in the middle of one.
"""

from __future__ import annotations


class Budget:
    """Shared by all that happens in one event loop. `left` is for what clients ask for; `draining` is for
    what queues do by themselves at the end of a turn: deliveries, and what their rules ask for.
    """

    def __init__(self, left: int = 0) -> None:
        self.left = left
        self.draining = left
