"""How much memory messages that wait in queues may take, all queues together: those packed behind the ready
entries, and those that are ready, most of which are on disk as well.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Protocol

from warren.broker.entry_list import EntryList

READY_BYTES = 256 * 1024 * 1024
LOOKED_AT_MAX = 64
GIVEN_UP_A_TURN_MAX = 2_000


class Borrower(Protocol):
    """A lane, as the memory budget knows it."""

    ready: EntryList

    def needs_loan(self) -> bool: ...
    def return_loan(self) -> None: ...
    def is_over(self) -> bool: ...
    def give_up(self, most: int) -> int: ...


def at_once(work: Callable[[], None]) -> None:
    work()


class Memory:
    """What is packed behind the ready entries of a queue counts as used; beyond the limit it goes to disk.

    A lane may hold a few ready entries for nothing. To hold more it borrows from the one budget for all
    lanes: `borrowers` have done so, `lent_bytes` are those of all of them. `shrinking` are lanes that hold
    more than they may, and will give it up before long.
    """

    def __init__(
        self,
        limit_bytes: int,
        ready_limit_bytes: int = READY_BYTES,
        later: Callable[[Callable[[], None]], None] = at_once,
    ) -> None:
        self.used_bytes = 0
        self.limit_bytes = limit_bytes
        self.lent_bytes = 0
        self.ready_limit_bytes = ready_limit_bytes
        self.borrowers: dict[Borrower, None] = {}
        self.shrinking: dict[Borrower, None] = {}
        self.later = later
        self.is_scheduled = False

    def lend(self, lane: Borrower, more: int) -> bool:
        """Whether a lane may hold so many bytes more. If all are lent, some may lie idle."""
        if self.lent_bytes + more > self.ready_limit_bytes:
            self.collect_idle(lane)
            if self.lent_bytes + more > self.ready_limit_bytes:
                return False
        self.lent_bytes += more
        self.borrowers[lane] = None
        return True

    def take_back(self, lane: Borrower, lent: int) -> None:
        self.lent_bytes -= lent
        self.borrowers.pop(lane, None)

    def collect_idle(self, asking: Borrower) -> None:
        """From other lanes that hold little of what they might; each time some are looked at."""
        for lane in list(islice(self.borrowers, LOOKED_AT_MAX)):
            if lane is asking or lane.needs_loan():
                del self.borrowers[lane]  # the next time, others are looked at first
                self.borrowers[lane] = None
            else:
                lane.return_loan()

    def ready_bytes(self) -> int:
        """Of bodies that are ready in lanes that have borrowed; the others hold next to nothing."""
        return sum(lane.ready.bytes for lane in self.borrowers)

    # --- giving up ---

    def call_in(self) -> None:
        """Memory is short: nobody holds more than a little, if it is on disk as well."""
        for lane in list(self.borrowers):
            lane.return_loan()
            self.shrink_soon(lane)

    def shrink_soon(self, lane: Borrower) -> None:
        self.shrinking[lane] = None
        self.schedule()

    def schedule(self) -> None:
        if self.shrinking and not self.is_scheduled:
            self.is_scheduled = True
            self.later(self.shrink)

    def shrink(self) -> None:
        """Of very many lanes and entries some in each turn."""
        left = GIVEN_UP_A_TURN_MAX
        try:
            while self.shrinking and left > 0:
                lane = next(iter(self.shrinking))
                del self.shrinking[lane]
                left -= 1 + lane.give_up(left)
                if left <= 0 and lane.is_over():
                    self.shrinking[lane] = None
        finally:
            self.is_scheduled = False
            self.schedule()
