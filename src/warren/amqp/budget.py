"""How much work the present turn of the event loop may still do.

Work is counted in units. One unit is about the cost of putting a small message into a queue, a third of a
microsecond; larger pieces of work cost more units. The count may go below zero: it is checked between two
pieces of work, never in the middle of one.
"""

from __future__ import annotations


class Budget:
    """One for each event loop, shared by all its work."""

    def __init__(self, left: int = 0) -> None:
        self.left = left  # for requests of clients
        self.draining = left  # for the queues' own work at the end of a turn: deliveries, and their rules

    def __repr__(self) -> str:
        return f"<Budget: {self.left} left, {self.draining} for draining>"
