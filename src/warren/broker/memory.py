"""The memory that messages waiting in queues may take, for all queues of a node together.

There are two budgets. One is for messages that are packed behind the ready entries of a queue; when it is
used up, such messages go to disk. The other is for ready entries, most of which are on disk as well, so that
a queue can give them up and read them again later.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Protocol

READY_BYTES = 256 * 1024 * 1024
LOOKED_AT_MAX = 64  # borrowers that are asked for idle memory each time
GIVEN_UP_A_TURN_MAX = 2_000  # entries, and lanes


class Borrower(Protocol):
    """The methods of a lane that the memory budget uses."""

    def ready_bytes(self) -> int: ...
    def needs_loan(self) -> bool: ...
    def return_loan(self) -> None: ...
    def holds_too_much(self) -> bool: ...
    def give_up(self, most: int) -> int: ...


def at_once(work: Callable[[], None]) -> None:
    work()


class Memory:
    """Both budgets. Every lane may hold a few ready entries for nothing; to hold more, it borrows here."""

    def __init__(
        self,
        limit_bytes: int,
        ready_limit_bytes: int = READY_BYTES,
        later: Callable[[Callable[[], None]], None] = at_once,
    ) -> None:
        self.used_bytes = 0  # taken by packed messages
        self.limit_bytes = limit_bytes  # for packed messages: beyond that they go to disk
        self.lent_bytes = 0  # lent to lanes for ready entries
        self.ready_limit_bytes = ready_limit_bytes  # how much may be lent
        self.borrowers: dict[Borrower, None] = {}  # lanes that have borrowed
        self.shrinking: dict[Borrower, None] = {}  # lanes that hold more than they may, and will give it up
        self.laden: dict[Borrower, None] = {}  # lanes that held more than they may, and could not give it up
        self.later = later  # calls a function in a turn to come
        self.is_scheduled = False  # whether `shrink` will be called

    def lend(self, lane: Borrower, more: int) -> bool:
        """Lend a lane so many bytes more, if there are any; return whether there were. When the budget is
        used up, take back first what other lanes have borrowed and do not need.
        """
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
        """Take back the loans of lanes that hold little. Only some lanes are looked at each time."""
        for lane in list(islice(self.borrowers, LOOKED_AT_MAX)):
            if lane is asking or lane.needs_loan():
                del self.borrowers[lane]  # move the lane to the end: next time, others are looked at first
                self.borrowers[lane] = None
            else:
                lane.return_loan()

    def ready_bytes(self) -> int:
        """The size of the ready bodies in all lanes that hold more than they may without a loan. Other lanes
        hold next to nothing.
        """
        for lane in [lane for lane in self.laden if not lane.holds_too_much()]:
            del self.laden[lane]
        return sum(lane.ready_bytes() for lane in {**self.borrowers, **self.shrinking, **self.laden})

    # --- giving up ---

    def call_in(self) -> None:
        """Memory is short: take back all loans. Lanes then give up ready entries that are on disk as well."""
        for lane in list(self.borrowers):
            lane.return_loan()
            self.shrink_soon(lane)

    def forget(self, lane: Borrower) -> None:
        """The lane has been emptied."""
        self.shrinking.pop(lane, None)
        self.laden.pop(lane, None)

    def shrink_soon(self, lane: Borrower) -> None:
        """Have the lane give up what it holds beyond its share, in a turn to come."""
        self.shrinking[lane] = None
        self.schedule()

    def schedule(self) -> None:
        if self.shrinking and not self.is_scheduled:
            self.is_scheduled = True
            self.later(self.shrink)

    def shrink(self) -> None:
        """Have lanes give up entries: at most `GIVEN_UP_A_TURN_MAX` a turn, the rest in the next turns."""
        left = GIVEN_UP_A_TURN_MAX
        try:
            while self.shrinking and left > 0:
                lane = next(iter(self.shrinking))
                del self.shrinking[lane]
                left -= 1 + lane.give_up(left)
                if lane.holds_too_much():
                    (self.shrinking if left <= 0 else self.laden)[lane] = None
        finally:
            self.is_scheduled = False
            self.schedule()

    def __repr__(self) -> str:
        packed, lent = f"{self.used_bytes}/{self.limit_bytes}", f"{self.lent_bytes}/{self.ready_limit_bytes}"
        return f"<Memory: {packed} bytes packed, {lent} bytes lent>"
