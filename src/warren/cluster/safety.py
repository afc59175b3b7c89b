"""The safety of a led shard: what waits until all members have a batch.

Rounds are the leader's indexes. The round that gathers is the batch that the leader appends next; it is over
when its index is committed. There is one `ShardSafety` for each term. When the term ends, nobody who waits is
called any more: what they wait for may come true under the next leader, or not.

Whoever drives the protocol tells it what was appended and committed, and sets `behind` from the leader's
`is_behind` once a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class ShardSafety:
    """A `warren.broker.safety.Safety` by index."""

    __slots__ = ("behind", "committed", "gathering", "has_ended", "waiters")

    def __init__(self) -> None:
        self.gathering = 1  # the index of the next batch
        self.behind = False  # a follower owes so much that publishers should wait
        self.committed = 0
        self.has_ended = False  # the term
        self.waiters: deque[tuple[int, Callable[[int], None]]] = deque()  # by index, in order

    def when_safe(self, callback: Callable[[int], None]) -> None:
        """When the batch that gathers now is committed, call back with its index."""
        if not self.has_ended:
            self.waiters.append((self.gathering, callback))

    @property
    def wants_batch(self) -> bool:
        """Whether somebody waits for the batch that gathers: it is appended even if it is empty."""
        return bool(self.waiters) and self.waiters[-1][0] == self.gathering

    def appended(self, index: int) -> None:
        """The batch that gathered was appended with this index; another one gathers now."""
        assert index == self.gathering, (index, self.gathering)
        self.gathering = index + 1

    def commit(self, index: int) -> None:
        """All batches up to this index are committed: call those who wait, in order."""
        assert self.committed <= index < self.gathering, (self.committed, index, self.gathering)
        self.committed = index
        waiters = self.waiters
        while waiters and waiters[0][0] <= index and not self.has_ended:
            number, callback = waiters.popleft()
            callback(number)

    def end(self) -> int:
        """The term is over. Say how many wait in vain."""
        left = len(self.waiters)
        self.has_ended = True
        self.waiters.clear()
        return left
