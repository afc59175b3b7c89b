"""Publisher confirms of a channel: which of its messages are safe, or refused, and who has been told.

Messages are numbered as they are published. Those that need no disk are confirmed at the end of the batch,
the others when they are safe in every queue they went to; one cumulative ack for as many as possible, and
none overtakes another.

Each queue names the `Safety` that says when its messages are safe. Mostly it is the same one for all queues.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import NamedTuple

from warren.amqp.methods import BasicNack
from warren.amqp.writer import Output
from warren.broker.outcome import AFTER_NEXT, REFUSED, STORED
from warren.broker.safety import Safety


class Awaited(NamedTuple):
    """Messages up to this number are safe when these rounds are over."""

    number: int
    rounds: dict[Safety, int]


class Confirms:
    def __init__(self, output: Output, channel: int) -> None:
        self.output = output
        self.channel = channel
        self.on = False
        self.published = 0  # the number of the last message
        self.confirmed = 0  # the number up to which the client has been told
        self.refusals = 0  # how often a queue has refused a message
        self.refused: deque[int] = deque()  # the numbers of messages to be nacked
        self.safety: Safety | None = None  # of the queue that the last unsafe message went to
        self.unsafe = False  # whether a message of this batch is not safe there yet
        self.unsafe_longer = False  # and is only when the round after the present one is over
        self.elsewhere: dict[Safety, bool] = {}  # the same for other safeties of this batch, if there are any
        self.awaited: deque[Awaited] = deque()
        self.asked_for: dict[Safety, int] = {}  # the last round that this channel wants to hear of
        self.over: dict[Safety, int] = {}  # the last round that it has heard of

    def note(self, outcome: int, safety: Safety | None) -> None:
        """A queue, whose safety this is, has not just stored the message that is published next."""
        if outcome == REFUSED:
            self.refusals += 1
            if self.on and (not self.refused or self.refused[-1] != self.published + 1):
                self.refused.append(self.published + 1)
        elif outcome != STORED:
            if safety is not self.safety:
                self._turn_to(safety)
            self.unsafe = True
            if outcome == AFTER_NEXT:
                self.unsafe_longer = True

    def _turn_to(self, safety: Safety | None) -> None:
        """Note from now on what becomes safe there."""
        if self.unsafe and self.safety is not None:
            self.elsewhere[self.safety] = self.unsafe_longer or self.elsewhere.get(self.safety, False)
            self.unsafe = self.unsafe_longer = False
        self.safety = safety

    def is_behind(self) -> bool:
        """Whether messages of this channel go where so much waits to be safe that publishers should wait."""
        return self.safety is not None and self.safety.behind

    def take_unsafe(self) -> dict[Safety, bool]:
        """Where messages of this batch are not safe yet, and whether they take a round longer there. Whoever
        asks waits for them.
        """
        found, self.elsewhere = self.elsewhere, {}
        if self.unsafe:
            assert self.safety is not None, "whatever goes to disk says when it is safe"
            found[self.safety] = self.unsafe_longer or found.get(self.safety, False)
        self.unsafe = self.unsafe_longer = False
        return found

    def end_batch(self) -> None:
        """Confirm all that the queues have taken, or, if some of it is not safe yet, when it is."""
        if not self.on:
            self.unsafe = self.unsafe_longer = False
            self.elsewhere.clear()
        elif self.unsafe or self.elsewhere:
            self._await({safety: safety.gathering + longer for safety, longer in self.take_unsafe().items()})
        elif self.awaited:
            self.awaited[-1] = self.awaited[-1]._replace(number=self.published)
        else:
            self._confirm_up_to(self.published)

    def _await(self, rounds: dict[Safety, int]) -> None:
        last = self.awaited[-1].rounds if self.awaited else {}
        if all(last.get(safety, 0) >= number for safety, number in rounds.items()):
            rounds = self.awaited.pop().rounds
        self.awaited.append(Awaited(self.published, rounds))
        for safety in rounds:
            self._ask(safety)

    def _ask(self, safety: Safety) -> None:
        """To be told when the round is over that gathers there now."""
        if self.asked_for.get(safety) != safety.gathering:
            self.asked_for[safety] = safety.gathering
            safety.when_safe(partial(self._round_is_over, safety))

    def _round_is_over(self, safety: Safety, number: int) -> None:
        """All that was published before this round began is safe there."""
        self.over[safety] = number
        safe = 0
        while self.awaited and self._is_over(self.awaited[0].rounds):
            safe = self.awaited.popleft().number
        if safe:
            self._confirm_up_to(safe)
        if self.awaited and any(rounds.get(safety, 0) > number for _, rounds in self.awaited):
            self._ask(safety)

    def _is_over(self, rounds: dict[Safety, int]) -> bool:
        return all(self.over.get(safety, 0) >= number for safety, number in rounds.items())

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
