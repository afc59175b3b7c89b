"""Publisher confirms of a channel: which of its messages are safe or refused, and which are confirmed.

Messages are numbered as they are published. A message that does not go to disk is confirmed at the end of its
batch, any other when it is safe in every queue that it went to. Confirms go out in the order of the numbers,
as few cumulative acks.

Each queue names the `Safety` that says when its messages are safe. Most often all queues have the same one.
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
    """Messages up to `number` are safe when the round given for each safety is over."""

    number: int
    rounds: dict[Safety, int]


class Confirms:
    def __init__(self, output: Output, channel: int) -> None:
        self.output = output
        self.channel = channel
        self.on = False  # from confirm.select on
        self.published = 0  # the number of the last message
        self.confirmed = 0  # the number of the last message that is acked or nacked
        self.refusals = 0  # how often a queue has refused a message
        self.refused: deque[int] = deque()  # the numbers of messages to be nacked
        self.safety: Safety | None = None  # the safety of the queue that the last unsafe message went to
        self.unsafe = False  # whether `safety` has to make a message of this batch safe
        self.unsafe_longer = False  # whether that takes until the round after the present one is over
        self.elsewhere: dict[Safety, bool] = {}  # `unsafe_longer` for each other unsafe safety of this batch
        self.awaited: deque[Awaited] = deque()  # messages that are not safe yet, in order
        self.asked_for: dict[Safety, int] = {}  # the last round whose end we asked to be told
        self.over: dict[Safety, int] = {}  # the last round whose end we were told

    def __repr__(self) -> str:
        return f"<Confirms of channel {self.channel}: {self.confirmed} of {self.published} confirmed>"

    def note(self, outcome: int, safety: Safety | None) -> None:
        """Take down what a queue with this safety did with the message that is being published."""
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
        """Make this the present safety: `unsafe` and `unsafe_longer` are about it from now on."""
        if self.unsafe and self.safety is not None:
            self.elsewhere[self.safety] = self.unsafe_longer or self.elsewhere.get(self.safety, False)
            self.unsafe = self.unsafe_longer = False
        self.safety = safety

    def is_behind(self) -> bool:
        """Whether the present safety has so much to make safe that publishers should wait."""
        return self.safety is not None and self.safety.behind

    def take_unsafe(self) -> dict[Safety, bool]:
        """The safeties that have to make messages of this batch safe, each with whether that takes a round
        longer. They are forgotten here: the caller waits for them.
        """
        found, self.elsewhere = self.elsewhere, {}
        if self.unsafe:
            assert self.safety is not None, "whatever goes to disk says when it is safe"
            found[self.safety] = self.unsafe_longer or found.get(self.safety, False)
        self.unsafe = self.unsafe_longer = False
        return found

    def end_batch(self) -> None:
        """Confirm the messages of this batch now, or, if some of them are not safe yet, when they are.

        `warren perf throughput --confirm 1000` watches this, with `--durable --persistent` for the disk.
        """
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
        """Ask to be told when the round that gathers now is over."""
        if self.asked_for.get(safety) != safety.gathering:
            self.asked_for[safety] = safety.gathering
            safety.when_safe(partial(self._round_is_over, safety))

    def _round_is_over(self, safety: Safety, number: int) -> None:
        """This safety's round of this number is over: confirm what is safe by that."""
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
        """Nack each refused message up to this number, and ack the others."""
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
        """The channel is closed: messages that are not safe by now are never confirmed."""
        self.end_batch()
        self.awaited.clear()
        self.on = False
