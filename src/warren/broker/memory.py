"""How much memory transient messages that wait in queues may take, all queues together."""

from __future__ import annotations


class Memory:
    """What is packed behind the ready entries of a queue counts as used; beyond the limit it goes to disk."""

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        self.limit_bytes = limit_bytes
