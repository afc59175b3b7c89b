"""The two protocols between a queue and its rules.

`RuledQueue` is what a rulebook, its groups and its views need of their queue; `ClassicQueue` implements it.
`Judge` is what groups and views need of the rulebook; `Rulebook` implements it. Nothing else is used.
"""

from __future__ import annotations

from typing import Protocol

from warren.broker.consumer import Consumer, Ring
from warren.broker.death import Reason
from warren.broker.entry import Entry
from warren.broker.lane import Lane
from warren.broker.message import Message
from warren.broker.rules import Rules
from warren.broker.surroundings import Surroundings
from warren.broker.tally import Tally


class RuledQueue(Protocol):
    """A queue, as its rules know it."""

    name: str
    vhost: str
    surroundings: Surroundings
    rules: Rules
    lanes: list[Lane]  # one for each level of priority, from the lowest to the highest
    rings: list[Ring]  # consumers that get the next message, the highest priority first
    choosy: list[Consumer]  # consumers that have a view of their own, in the same order
    tally: Tally  # counts of its messages
    returning: int  # how many hold the queue; meanwhile it delivers nothing
    paused: bool  # whether an operator has paused it: it delivers nothing, but its other rules go on
    touched: bool  # whether the queue is to be drained in this turn
    deleted: bool

    @property
    def what(self) -> str: ...
    @property
    def consumers(self) -> list[Consumer]: ...
    @property
    def is_consumed(self) -> bool: ...
    def touch(self) -> None: ...
    def drain(self) -> None: ...
    def length(self) -> int: ...
    def body_bytes(self) -> int: ...
    def lane_of(self, message: Message) -> Lane: ...
    def next_consumer(self, size: int) -> Consumer | None: ...
    def most_to_deliver(self) -> int: ...
    def deliver(self, entry: Entry, consumer: Consumer) -> None: ...
    def goes_out(self, entry: Entry, no_ack: bool) -> None: ...
    def bury(self, entry: Entry, reason: Reason) -> None: ...
    def forget(self, entry: Entry) -> None: ...


class Judge(Protocol):
    """A rulebook, as groups and views know it: it says which consumers may get messages, and which messages
    may be delivered.
    """

    @property
    def room(self) -> int:
        """How many more messages may expire, or be dropped or delayed, in this turn."""

    def next_consumer(self, size: int) -> Consumer | None: ...
    def is_active(self, consumer: Consumer) -> bool: ...
    def is_unfit(self, entry: Entry) -> bool: ...
    def send_away(self, entry: Entry) -> None: ...
    def is_expired(self, message: Message) -> bool: ...
    def go_on_soon(self) -> None: ...
