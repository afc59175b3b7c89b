"""Letters that other nodes send to queues that this one leads: the receiver's part of `letters.py`.

A letter is published like any other message, and is done with when it is safe in its queue, or was refused.
A line of letters belongs to one queue, as this node has it in this term. What of it has come is remembered,
so that what comes again is left out; what is done with is said again whenever an answer may have been lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from warren.broker.message import Message
from warren.broker.outcome import AFTER_NEXT_ROUND, ON_ITS_WAY
from warren.broker.safety import Safety, when_all_safe
from warren.cluster.config import RunId, StoreId
from warren.cluster.messages import Letter, Letters, LettersDone


class LedQueue(Protocol):
    """A queue that this node leads, as its letters know it."""

    safety: Safety | None
    deleted: bool

    def publish(self, message: Message) -> int: ...


class Inbox:
    """What has come of one line."""

    __slots__ = ("done", "is_old", "line", "queue", "received", "sender", "unsafe")

    def __init__(self, sender: StoreId, line: int, queue: LedQueue, settled: int) -> None:
        self.sender = sender
        self.line = line
        self.queue = queue
        self.received = settled  # all letters up to this number are in the queue, or were refused
        self.done = settled  # and up to this one they are safe
        self.is_old = False  # whether it was there when its sender was last linked to
        self.unsafe = 0  # how many times the inbox waits for its queue


class LetterReceiver:
    def __init__(self, find: Callable[[Letters], LedQueue | None], time_ms: Callable[[], int]) -> None:
        self.find = find  # the queue of some letters; None if this node does not lead it
        self.time_ms = time_ms  # the time of day
        self.inboxes: dict[int, Inbox] = {}  # by line
        self.runs: dict[StoreId, RunId] = {}  # of the nodes that were heard of
        self.answers: dict[tuple[StoreId, int], LettersDone] = {}  # of this turn, by sender and line

    def take_answers(self) -> list[tuple[StoreId, LettersDone]]:
        """What has to be sent now."""
        answers, self.answers = self.answers, {}
        return [(sender, answer) for (sender, _), answer in answers.items()]

    # --- what happens ---

    def received(self, sender: StoreId, letters: Letters) -> None:
        inbox = self._inbox(sender, letters)
        if inbox is None or letters.first > inbox.received + 1:
            self._answer(
                sender, letters.line, letters.settled if inbox is None else inbox.done, is_here=False
            )
            return
        longer = self._publish(inbox, letters)
        if longer is not None:
            safety = inbox.queue.safety
            assert safety is not None, "a queue with a log has a safety"
            inbox.unsafe += 1
            when_all_safe(
                [(safety, longer)],
                partial(self._is_safe, inbox, inbox.received),
                partial(self._has_ended, inbox),
            )
        elif not inbox.unsafe:
            inbox.done = inbox.received
        self._answer(sender, letters.line, inbox.done)

    def link_up(self, sender: StoreId, run: RunId) -> None:
        """A node can be answered, over a new link: what was said over an older one may be lost. The lines of
        an earlier run of that node do not go on; but those that have come since the last link may be of this
        run, whose own link was faster.
        """
        is_same = self.runs.get(sender, run) == run
        self.runs[sender] = run
        for inbox in [inbox for inbox in self.inboxes.values() if inbox.sender == sender]:
            if is_same or not inbox.is_old:
                inbox.is_old = True
                self._answer(sender, inbox.line, inbox.done)
            else:
                del self.inboxes[inbox.line]

    def sweep(self) -> None:
        """Let go of queues that are deleted, or that this node does not lead any more."""
        for line in [line for line, inbox in self.inboxes.items() if inbox.queue.deleted]:
            del self.inboxes[line]

    # --- a line ---

    def _inbox(self, sender: StoreId, letters: Letters) -> Inbox | None:
        """Where these letters go; None if this node does not lead their queue, or does not know what was
        before them.
        """
        queue, inbox = self.find(letters), self.inboxes.get(letters.line)
        if inbox is not None and (inbox.queue is not queue or inbox.sender != sender):
            del self.inboxes[letters.line]
            inbox = None
        if queue is None:
            return None
        if inbox is None and letters.first == letters.settled + 1:
            inbox = self.inboxes[letters.line] = Inbox(sender, letters.line, queue, letters.settled)
        return inbox

    def _publish(self, inbox: Inbox, letters: Letters) -> bool | None:
        """Publish those that are new. Return whether they are safe one round later than usual; None if there
        is nothing to wait for.
        """
        longer: bool | None = None
        for letter in letters.letters[inbox.received + 1 - letters.first :]:
            outcome = inbox.queue.publish(message_of(letter, self.time_ms()))
            inbox.received += 1
            if outcome in {ON_ITS_WAY, AFTER_NEXT_ROUND}:
                longer = outcome == AFTER_NEXT_ROUND or bool(longer)
        return longer

    def _is_safe(self, inbox: Inbox, up_to: int) -> None:
        inbox.unsafe -= 1
        inbox.done = max(inbox.done, up_to if inbox.unsafe else inbox.received)
        if self.inboxes.get(inbox.line) is inbox:
            self._answer(inbox.sender, inbox.line, inbox.done)

    def _has_ended(self, inbox: Inbox) -> None:
        """The term has ended: the next leader may have what is not safe, or not."""
        if self.inboxes.get(inbox.line) is inbox:
            del self.inboxes[inbox.line]
            self._answer(inbox.sender, inbox.line, inbox.done, is_here=False)

    def _answer(self, sender: StoreId, line: int, up_to: int, *, is_here: bool = True) -> None:
        self.answers[sender, line] = LettersDone(line, up_to, is_here)


def message_of(letter: Letter, time_ms: int) -> Message:
    """A letter as a message that comes now, by this node's clock: its TTL begins in its new queue."""
    return Message(
        letter.exchange,
        letter.routing_key,
        letter.properties,
        letter.body,
        letter.persistent,
        time_ms,
        letter.died,
    )
