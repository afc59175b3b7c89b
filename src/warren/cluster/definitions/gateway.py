"""The way to etcd, as the definitions need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from warren.cluster.transactions import Answer, KeyValue, Transaction


class LastRead(NamedTuple):
    """The answer to a linearizable read of `LAST`."""

    reached: bool  # whether etcd answered
    kv: KeyValue | None = None
    reason: str = ""  # why it did not


class Gateway(Protocol):
    """The way to etcd. Each of these returns at once, and calls back later."""

    def send(self, transaction: Transaction, done: Callable[[Answer], None]) -> None: ...
    def read_last(self, done: Callable[[LastRead], None]) -> None: ...
    def load_again(self, reason: str) -> None:
        """Something was lost: load all definitions anew, and watch from there."""
        ...
