"""The safety of a led shard: what waits until all members have a batch.

Rounds are the leader's indexes. The round that gathers is the batch that the leader appends next; it is over
when its index is committed. There is one `ShardSafety` for each term. When the term ends, those who wait are
told that it has: what they wait for may come true under the next leader, or not.

Whoever drives the protocol tells it what was appended and committed, and sets `owes` from the leader's
`is_behind` once a turn. While the leader hands over, publishers are held: all that they have published is
committed first, and they find the next leader then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

Waiter: TypeAlias = tuple[int, Callable[[int], None], Callable[[], None] | None]
"""Who waits for an index, and whom to call if the term ends before."""


def _at_once(callback: Callable[[], None]) -> None:
    callback()


class ShardSafety:
    """A `warren.broker.safety.Safety` by index."""

    def __init__(self, later: Callable[[Callable[[], None]], None] = _at_once) -> None:
        self.later = later  # calls back in a turn to come
        self.gathering = 1  # the index of the next batch
        self.owes = False  # a follower owes so much that publishers should wait
        self.is_held = False  # publishers should wait until the term is over, or goes on
        self.committed = 0
        self.has_ended = False  # the term
        self.wanted = 0  # the index of the last batch that somebody waits for
        self.waiters: deque[Waiter] = deque()  # by index, in order
        self.publishers: deque[tuple[int, Callable[[], None]]] = deque()  # those who had to wait, by index

    @property
    def behind(self) -> bool:
        return (self.owes or self.is_held) and not self.has_ended

    def when_safe(self, callback: Callable[[int], None], ended: Callable[[], None] | None = None) -> None:
        """When the batch that gathers now is committed, call back with its index; if the term ends before, or
        has ended already, call `ended`.
        """
        if not self.has_ended:
            self.wanted = self.gathering
            self.waiters.append((self.gathering, callback, ended))
        elif ended is not None:
            self.later(ended)

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call back when the batch that gathers now is committed and publishers are not held, or when the
        term has ended. Whoever asks was told that the safety is behind, so that it has not.
        """
        assert not self.has_ended, "who publishes now finds the next leader"
        self.wanted = self.gathering
        self.publishers.append((self.gathering, callback))

    def hold(self, *, is_held: bool) -> None:
        """Hold publishers from now on, or let them go on."""
        self.is_held = is_held
        self._let_go()

    def _let_go(self) -> None:
        publishers = self.publishers
        while publishers and (self.has_ended or (publishers[0][0] <= self.committed and not self.is_held)):
            publishers.popleft()[1]()

    @property
    def wants_batch(self) -> bool:
        """Whether somebody waits for the batch that gathers: it is appended even if it is empty."""
        return self.wanted == self.gathering

    @property
    def is_under_way(self) -> bool:
        """Whether a batch was appended that is not committed yet."""
        return self.committed < self.gathering - 1

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
            number, callback, _ = waiters.popleft()
            callback(number)
        self._let_go()

    def end(self) -> int:
        """The term is over. Have those told who wait in vain, and say how many they are. Publishers go on,
        and find the next leader.
        """
        self.has_ended = True
        self.wanted = 0
        left, self.waiters = self.waiters, deque()
        for _, _, ended in left:
            if ended is not None:
                self.later(ended)
        self._let_go()
        return len(left)
