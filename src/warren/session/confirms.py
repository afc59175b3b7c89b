"""Publisher confirms of a channel: which of its messages are safe or refused, and which are confirmed.

Messages are numbered as they are published. A message that does not go to disk is confirmed at the end of its
batch, any other when it is safe in every queue that it went to. Confirms go out in the order of the numbers,
as few cumulative acks.

Each queue names the `Safety` that says when its messages are safe. Most often all queues have the same one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from warren.amqp.methods import BasicNack
from warren.amqp.writer import Output
from warren.broker.outcome import AFTER_NEXT_ROUND, REFUSED, STORED
from warren.broker.safety import Safety
from warren.broker.tally import Tally


class Awaited:
    """Messages up to a number that are safe when a round is over, and perhaps further rounds elsewhere."""

    def __init__(self, published: int, safety: Safety, longer: bool) -> None:
        self.published = published  # the number of the last of these messages
        self.safety = safety
        self.number = safety.gathering  # of the round
        self.longer = longer  # when that is over, the round that gathers then has to be over, too
        self.elsewhere: list[Awaited] = []  # the same of other safeties; seldom there


class Rounds:
    """What one channel knows of the rounds of one safety."""

    def __init__(self, confirms: Confirms, safety: Safety) -> None:
        self.confirms = confirms
        self.safety = safety
        self.asked_for = 0  # the last round whose end the channel asked to be told
        self.over = 0  # the last round whose end it was told

    def hear_of_end(self, number: int) -> None:
        """The safety tells that the round of this number is over."""
        self.over = number
        if self.confirms.longer:
            self.confirms.first_is_over(self)
        self.confirms.confirm_safe(self)

    def hear_of_no_end(self) -> None:
        """The safety will not tell any more whether a round is over: its queues have another leader."""
        self.confirms.wait_in_vain(self.safety)


class Confirms:
    def __init__(
        self, output: Output, channel: int, tally: Tally | None = None, totals: Tally | None = None
    ) -> None:
        self.output = output
        self.channel = channel
        self.tally = tally or Tally()  # counts of the channel
        self.totals = totals or Tally()  # counts of the vhost
        self.on = False  # from confirm.select on
        self.published = 0  # the number of the last message
        self.confirmed = 0  # the number of the last message that is acked or nacked
        self.refusals = 0  # how often a queue has refused a message
        self.refused: deque[int] = deque()  # the numbers of messages to be nacked
        self.in_vain: Callable[[], None] | None = None  # called if messages will never be known to be safe
        self.safety: Safety | None = None  # the safety of the queue that the last unsafe message went to
        self.unsafe = False  # whether `safety` has to make a message of this batch safe
        self.unsafe_longer = False  # whether that takes until the round after the present one is over
        self.elsewhere: dict[Safety, bool] = {}  # `unsafe_longer` for each other unsafe safety of this batch
        self.awaited: deque[Awaited] = deque()  # messages that are not safe yet, in order
        self.longer: list[Awaited] = []  # those that wait for the first of two rounds
        self.rounds: dict[Safety, Rounds] = {}  # what this channel knows of each safety's rounds

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
            if outcome == AFTER_NEXT_ROUND:
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
            self._await_rounds()
        elif self.awaited:
            last = self.awaited[-1]
            last.published = self.published
        else:
            self._confirm_up_to(self.published)

    def _await_rounds(self) -> None:
        """Wait for the rounds that this batch's messages are in: with one safety, as a rule, for one."""
        if self.elsewhere:
            self._await_several(self.take_unsafe())
            return
        safety = self.safety
        assert safety is not None, "whatever goes to disk says when it is safe"
        longer = self.unsafe_longer
        self.unsafe = self.unsafe_longer = False
        last = self.awaited[-1] if self.awaited else None
        if last is not None and last.safety is safety and not last.elsewhere and _lasts(last, longer):
            last.published = self.published
        else:
            self.awaited.append(self._await(safety, longer))
        self._ask(safety)

    def _await_several(self, unsafe: dict[Safety, bool]) -> None:
        first, *others = [self._await(safety, longer) for safety, longer in unsafe.items()]
        first.elsewhere = others
        self.awaited.append(first)
        for safety in unsafe:
            self._ask(safety)

    def _await(self, safety: Safety, longer: bool) -> Awaited:
        awaited = Awaited(self.published, safety, longer)
        if longer:
            self.longer.append(awaited)
        return awaited

    def first_is_over(self, rounds: Rounds) -> None:
        """The first of two rounds is over for some: deduplication has written, or writes now, its notes for
        the round that gathers.
        """
        for awaited in self.longer[:]:
            if awaited.safety is rounds.safety and awaited.number <= rounds.over:
                awaited.number, awaited.longer = rounds.safety.gathering, False
                self.longer.remove(awaited)

    def _ask(self, safety: Safety) -> None:
        """Ask to be told when the round that gathers now is over."""
        rounds = self.rounds.get(safety)
        if rounds is None:
            rounds = self.rounds[safety] = Rounds(self, safety)
        gathering = safety.gathering
        if rounds.asked_for != gathering:
            rounds.asked_for = gathering
            safety.when_safe(rounds.hear_of_end, rounds.hear_of_no_end)

    def confirm_safe(self, rounds: Rounds) -> None:
        """A round is over: confirm the messages that are safe now, and ask for the next round if need be."""
        safe = 0
        while self.awaited:
            head = self.awaited[0]
            if not self._is_safe(head):
                break
            safe = head.published
            self.awaited.popleft()
        if safe:
            self._confirm_up_to(safe)
        if self.awaited and rounds.asked_for <= rounds.over:  # else another call comes by itself
            self._ask(rounds.safety)

    def wait_in_vain(self, safety: Safety) -> None:
        if self.in_vain is not None and self.waits_for(safety):
            self.in_vain()

    def waits_for(self, safety: Safety) -> bool:
        """Whether messages are not confirmed because this safety has not made them safe."""
        for awaited in self.awaited:
            if awaited.safety is safety:
                return True
            for other in awaited.elsewhere:
                if other.safety is safety:
                    return True
        return False

    def _is_safe(self, awaited: Awaited) -> bool:
        rounds = self.rounds[awaited.safety]
        is_safe = not awaited.longer and rounds.over >= awaited.number
        for other in awaited.elsewhere:
            is_safe = is_safe and self._is_safe(other)
        return is_safe

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
            self.tally.confirmed += confirmed
            self.totals.confirmed += confirmed
            self.output.confirm(self.channel, count, confirmed > 1)

    def end(self) -> None:
        """The channel is closed: messages that are not safe by now are never confirmed."""
        self.end_batch()
        self.awaited.clear()
        self.longer.clear()
        self.rounds.clear()  # they refer back to this
        self.in_vain = None  # the channel refers to this
        self.on = False


def _lasts(awaited: Awaited, longer: bool) -> bool:
    """Whether messages that come now are not safe later than those that are awaited already."""
    number: int = awaited.safety.gathering
    return awaited.number >= number and (awaited.longer or not longer)
