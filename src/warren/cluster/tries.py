"""When the shards of a node ask etcd for something.

As long as etcd answers, each shard asks when it wants. While it does not, one shard of the node tries at a
time, with waits between that double: they would all ask with every tick, and it is the same etcd.
"""

from __future__ import annotations


class Tries:
    """Of all shards of a node."""

    __slots__ = ("first", "last", "next_at", "patience", "unanswered_since", "wait")

    def __init__(self, *, patience: float, first: float, last: float) -> None:
        self.patience = patience  # how long etcd may take for an answer, until it counts as silent
        self.first = first  # the first wait
        self.last = last  # no wait is longer
        self.wait = 0.0  # between two tries; 0: etcd answers, as far as is known
        self.next_at = 0.0  # when the next shard may try, while etcd is silent
        self.unanswered_since: float | None = None  # when the oldest try was made since etcd has answered

    def may_ask(self, now: float) -> bool:
        return not self._is_silent(now) or now >= self.next_at

    def _is_silent(self, now: float) -> bool:
        since = self.unanswered_since
        return self.wait > 0 or (since is not None and now - since > self.patience)

    def asks(self, now: float) -> None:
        """A shard asks now."""
        if self._is_silent(now):
            self.wait = min(2 * self.wait or self.first, self.last)
            self.next_at = now + self.wait
        if self.unanswered_since is None:
            self.unanswered_since = now

    def failed(self, now: float) -> None:
        """Etcd could not be asked, or has not answered. What several shards tried at once fails as one."""
        if not self.wait:
            self.wait = self.first
            self.next_at = now + self.first

    def answered(self) -> None:
        """Etcd has answered a shard."""
        self.wait = self.next_at = 0.0
        self.unanswered_since = None
