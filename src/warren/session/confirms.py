"""Publisher confirms of a channel: which of its messages are safe, or refused, and who has been told.

Messages are numbered as they are published. Those that need no disk are confirmed at the end of the batch,
the others when the round of writing is over that they are in; one cumulative ack for as many as possible, and
none overtakes another.
"""

from __future__ import annotations

from collections import deque

from warren.amqp.methods import BasicNack
from warren.amqp.writer import Output
from warren.broker.outcome import AFTER_NEXT, REFUSED, STORED
from warren.broker.store import Store


class Confirms:
    """`unsafe`: something of the present batch is on its way to disk; `unsafe_longer`: for two rounds.
    `awaited` says with which round how many are safe.
    """

    def __init__(self, output: Output, channel: int, store: Store) -> None:
        self.output = output
        self.channel = channel
        self.store = store
        self.on = False
        self.published = 0
        self.confirmed = 0
        self.refusals = 0
        self.refused: deque[int] = deque()
        self.unsafe = False
        self.unsafe_longer = False
        self.asked_for = 0
        self.awaited: deque[tuple[int, int]] = deque()

    def note(self, outcome: int) -> None:
        """What a queue said of the message that is published next, if it was not that it has it."""
        if outcome == REFUSED:
            self.refusals += 1
            if self.on and (not self.refused or self.refused[-1] != self.published + 1):
                self.refused.append(self.published + 1)
        elif outcome != STORED:
            self.unsafe = True
            if outcome == AFTER_NEXT:
                self.unsafe_longer = True

    def end_batch(self) -> None:
        """Confirm all that the queues have taken, or, if some of it is on its way to disk, when that is
        safe.
        """
        if not self.on:
            self.unsafe = self.unsafe_longer = False
        elif self.unsafe:
            self._await_round()
        elif self.awaited:
            self.awaited[-1] = (self.awaited[-1][0], self.published)
        else:
            self._confirm_up_to(self.published)

    def _await_round(self) -> None:
        number = self.store.gathering + self.unsafe_longer
        self.unsafe = self.unsafe_longer = False
        if self.awaited and self.awaited[-1][0] >= number:
            number = self.awaited.pop()[0]
        self.awaited.append((number, self.published))
        self._ask_for_round()

    def _ask_for_round(self) -> None:
        """To be told when the round is over that gathers now."""
        if self.asked_for != self.store.gathering:
            self.asked_for = self.store.gathering
            self.store.when_safe(self._round_is_safe)

    def _round_is_safe(self, number: int) -> None:
        """What was published before this round began is on disk."""
        safe = 0
        while self.awaited and self.awaited[0][0] <= number:
            safe = self.awaited.popleft()[1]
        if safe:
            self._confirm_up_to(safe)
        if self.awaited:
            self._ask_for_round()

    def _confirm_up_to(self, count: int) -> None:
        """Those that a queue has refused are nacked, each for itself."""
        while self.refused and self.refused[0] <= count:
            number = self.refused.popleft()
            self._ack_up_to(number - 1)
            self.confirmed = number
            nack = BasicNack(delivery_tag=number, multiple=False, requeue=False)
            self.output.method(self.channel, nack.encode())
        self._ack_up_to(count)

    def _ack_up_to(self, count: int) -> None:
        confirmed = count - self.confirmed
        if confirmed:
            self.confirmed = count
            self.output.confirm(self.channel, count, confirmed > 1)

    def end(self) -> None:
        """The channel is closed: what is not safe by now is not confirmed any more."""
        self.end_batch()
        self.awaited.clear()
        self.on = False
